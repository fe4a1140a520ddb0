use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;

/// What a delivery has written of a title: a playlist, a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub bytes: Bytes,
    /// Of the bytes: other bytes have another, for an ETag.
    pub hash: u64,
}

/// By the names deliveries gave.
#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<BTreeMap<Box<str>, Slot>>);

/// Empty until it is written.
pub(crate) type Slot = Arc<OnceLock<Rendered>>;

impl Shelf {
    pub(crate) fn slots(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Slot>> {
        // A slot is put there whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that playlists and manifests have for a segment or an I-frame, all together: what is
/// counted for them before they are written.
pub(crate) const EACH: usize = 64;

/// FNV-1a.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
