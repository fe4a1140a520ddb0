use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
pub(crate) struct Shelf(Mutex<BTreeMap<Box<str>, Slot>>);

/// Empty until it is written.
type Slot = Arc<OnceLock<Rendered>>;

impl Shelf {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Slot>> {
        // A slot is put there whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that playlists and manifests have for a segment or an I-frame, all together: what is
/// counted for them before they are written.
pub(crate) const EACH: usize = 64;

impl Title {
    /// What was rendered of this title by this name, or what `render` makes of it now. It is kept
    /// as long as the title, so `name` is to be one of few; others that ask for it wait while it is
    /// made.
    pub fn rendered(&self, name: &str, render: impl FnOnce() -> Bytes) -> Rendered {
        let slot = {
            let mut slots = self.shelf.slots();
            // Two playlists a track, one of each text, a playlist and a manifest of all, twice over.
            let room = slots.len() < 4 * (1 + self.tracks.len() + self.texts.len());
            match slots.get(name) {
                Some(slot) => Arc::clone(slot),
                None if room => Arc::clone(slots.entry(name.into()).or_default()),
                None => Slot::default(),
            }
        };
        let made = || {
            let bytes = render();
            Rendered { hash: hash(&bytes), bytes }
        };
        slot.get_or_init(made).clone()
    }

    /// Whether [`rendered`](Self::rendered) answers at once.
    pub fn is_rendered(&self, name: &str) -> bool {
        self.shelf.slots().get(name).is_some_and(|slot| slot.get().is_some())
    }
}

/// FNV-1a.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
