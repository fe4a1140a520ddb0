use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::Title;

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
pub(crate) struct Shelf(Mutex<BTreeMap<Box<str>, Rendered>>);

/// Bytes that playlists and manifests have for a segment or an I-frame, all together: what is
/// counted for them before they are written.
pub(crate) const EACH: usize = 64;

impl Title {
    /// What was rendered of this title by this name, or what `render` makes of it now. It is kept
    /// as long as the title, so `name` is to be one of few; others wait while it is made.
    pub fn rendered(&self, name: &str, render: impl FnOnce() -> Bytes) -> Rendered {
        // What is on the shelf is whole, whoever panicked.
        let mut shelf = self.shelf.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rendered) = shelf.get(name) {
            return rendered.clone();
        }
        let bytes = render();
        let rendered = Rendered { hash: hash(&bytes), bytes };
        // Two playlists a track, one of each text, a playlist and a manifest of all, twice over.
        if shelf.len() < 4 * (1 + self.tracks.len() + self.texts.len()) {
            shelf.insert(name.into(), rendered.clone());
        }
        rendered
    }
}

/// FNV-1a.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
