//! The index of an object's local copy: a small file beside it, which says what the copy has.
//!
//! An index is written to another name, and then renamed. It ends with its digest. An index that is
//! torn, or of another form, counts as none. It may be wrong about blocks that were written shortly
//! before a crash. So it has a digest of each block, and a block is compared with it before it is
//! read for the first time.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::blocks::Sum;
use crate::meta::{Meta, digest};

/// The first bytes of an index. They change with its form.
const MAGIC: &[u8; 8] = b"hwblock1";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    /// Address of the root.
    pub(crate) url: String,
    /// Path below the root.
    pub(crate) path: String,
    pub(crate) meta: Meta,
    /// Number, digest and last use of each block.
    pub(crate) blocks: Vec<(u32, Sum, u64)>,
}

impl Index {
    fn encode(&self) -> Vec<u8> {
        // Writing to memory does not fail.
        let body = postcard::to_stdvec(self).unwrap_or_default();
        [&MAGIC[..], &body, &digest(&[&body])].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (body, sum) = rest.split_at_checked(rest.len().checked_sub(32)?)?;
        (digest(&[body]) == sum).then(|| postcard::from_bytes(body).ok()).flatten()
    }

    /// Reads an index; `None` if it is damaged.
    pub(crate) fn read(at: &Path) -> io::Result<Option<Self>> {
        Ok(Self::decode(&fs::read(at)?))
    }

    /// Replaces the index at this path.
    pub(crate) fn write(&self, at: &Path) -> io::Result<()> {
        let new = at.with_extension("new");
        fs::write(&new, self.encode())?;
        fs::rename(&new, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let meta = Meta::new(5 << 20, Some("x"), -7);
        let blocks = vec![(0, 1, 2), (4, u64::MAX, 3)];
        Index { url: "s3://b".to_owned(), path: "a/b.mp4".to_owned(), meta, blocks }
    }

    #[test]
    fn an_index_is_read_as_it_was_written_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("x.index");
        index().write(&at).unwrap();
        assert_eq!(Index::read(&at).unwrap(), Some(index()));
        let bytes = fs::read(&at).unwrap();
        for length in 0..bytes.len() {
            assert_eq!(Index::decode(&bytes[..length]), None, "{length}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Index::decode(&damaged), None, "{at}");
        }
    }
}
