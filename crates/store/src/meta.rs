use object_store::ObjectMeta;
use payload::{FileVersion, Kind, Metadata};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::time::{Duration, UNIX_EPOCH};

/// What identifies one version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) size: u64,
    /// Entity tag without its quotes. Some stores give it with quotes and some without.
    pub(crate) etag: Option<String>,
    /// A hash of the entity tag.
    hash: u64,
    /// Seconds since 1970.
    pub(crate) modified: i64,
}

impl Meta {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.size, meta.e_tag.as_deref(), meta.last_modified.timestamp())
    }

    pub(crate) fn new(size: u64, etag: Option<&str>, modified: i64) -> Self {
        let etag = etag.map(|tag| tag.trim_matches('"').to_owned());
        let hash = hash(&[etag.as_deref().unwrap_or_default().as_bytes()]);
        Self { size, etag, hash, modified }
    }

    /// The entity tag for If-Match (RFC 9110 13.1.1), which knows only strong ones.
    pub(crate) fn strong_etag(&self) -> Option<String> {
        let tag = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"))?;
        Some(format!("\"{tag}\""))
    }

    pub(crate) fn version(&self) -> FileVersion {
        FileVersion::of_object(self.hash, self.size, self.modified)
    }

    pub(crate) fn metadata(&self) -> Metadata {
        let since = u64::try_from(self.modified).map(Duration::from_secs);
        let modified = since.ok().and_then(|since| UNIX_EPOCH.checked_add(since));
        let version = self.version();
        Metadata { kind: Kind::File, len: self.size, modified, version, state: None }
    }
}

/// A hash of some bytes, each of them with its length.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// The first 8 bytes of the digest.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = digest(parts);
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}
