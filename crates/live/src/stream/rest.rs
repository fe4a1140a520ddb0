//! A stream that nobody publishes makes room for those that are published.

use std::sync::TryLockError;

use payload::memory::{GaveUp, Holder, Pressure};

use super::{Inner, Stream};
use crate::UnixMicros;

impl Holder for Stream {
    /// The oldest segment of each track; once there is only the newest, everything, and the stream is over.
    fn give_up(&self) -> GaveUp {
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return GaveUp::Busy,
        };
        if inner.is_published() {
            return GaveUp::All(0);
        }
        match inner.shorten(Pressure::Last) {
            0 => GaveUp::All(self.vanish(&mut inner)),
            segments => GaveUp::Some(segments),
        }
    }
}

impl Stream {
    /// Lets go of all tracks. The stream is over, and forgotten when it is swept. Answers how many segments
    /// there were.
    fn vanish(&self, inner: &mut Inner) -> u64 {
        if inner.tracks.is_empty() {
            return 0;
        }
        // Numbers go on where it is published anew. That of a segment without an end was used, too.
        inner.first_msn = inner.next_msn() + 1;
        let mut segments = 0;
        for track in inner.tracks.drain(..) {
            segments += track.packager.window().all().count() as u64;
            track.vanish();
        }
        inner.ended = Some(UnixMicros::default());
        self.announce(inner);
        tracing::info!(stream = %self.name, "stream ended: others need its memory");
        segments
    }
}
