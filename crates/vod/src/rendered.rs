use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;

/// A playlist or manifest that a delivery rendered for a title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub bytes: Bytes,
    /// Hash of the bytes, for an ETag.
    pub hash: u64,
}

/// Rendered texts by the names that deliveries gave them.
#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<BTreeMap<Box<str>, Slot>>);

/// Empty until the text is rendered.
pub(crate) type Slot = Arc<OnceLock<Rendered>>;

impl Shelf {
    pub(crate) fn slots(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Slot>> {
        // No panic can leave a slot half inserted.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of all playlists and manifests per segment or I-frame. They are counted before the texts
/// are rendered.
pub(crate) const EACH: usize = 64;

/// FNV-1a hash.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
