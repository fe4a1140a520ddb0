//! Ends streams that nobody publishes, when others need their memory or their places.

use std::sync::TryLockError;
use std::time::Duration;

use payload::memory::{GaveUp, Holder, Pressure};

use super::{Inner, Stream};
use crate::UnixMicros;

impl Holder for Stream {
    /// Gives up the oldest segment of each track. When only the newest segments are left, gives up
    /// everything and ends the stream.
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
            0 => GaveUp::All(self.vanish(&mut inner, "others need its memory")),
            segments => GaveUp::Some(segments),
        }
    }
}

impl Stream {
    /// Whether the stream may still be published again, and for how long publishers sent media.
    /// `None` if somebody publishes it.
    pub(crate) fn rest(&self) -> Option<(bool, Duration)> {
        let inner = self.lock();
        let newest = inner.tracks.iter().map(|track| track.last_sample).max();
        let lived = newest.map_or(Duration::ZERO, |newest| newest.since(self.since));
        (!inner.is_published()).then_some((!inner.is_over(), lived))
    }

    /// Ends the stream at once unless somebody publishes it. Returns whether the stream is over.
    pub(crate) fn leave(&self) -> bool {
        let mut inner = self.lock();
        let leaves = !inner.is_published();
        if leaves {
            self.end_now(&mut inner, "others need its place");
        }
        leaves
    }

    /// Ends the stream at once, because another machine has it. Its publishers find that they were replaced.
    pub fn expel(&self) {
        let mut inner = self.lock();
        inner.publishers.clear();
        inner.is_mirrored = false;
        self.end_now(&mut inner, "another machine has it");
    }

    /// Takes the stream from its publishers, for another machine goes on with it. Whatever they sent becomes parts.
    pub(crate) fn cede(&self, now: UnixMicros) {
        let mut inner = self.lock();
        inner.publishers.clear();
        for track in &mut inner.tracks {
            match track.packager.flush(now) {
                Ok(true) => track.publish(),
                Ok(false) => {}
                Err(error) => tracing::warn!(stream = %self.name, %error, "last samples"),
            }
        }
        self.announce(&inner);
    }

    /// Makes the stream a copy of what another machine goes on with. Its viewers stay. Returns whether it is one now:
    /// nobody may publish it, and it must not be over. Renditions are no longer made here of its media.
    pub fn become_copy(&self) -> bool {
        let mut inner = self.lock();
        let is_free = !inner.is_published() && !inner.is_over();
        if is_free {
            inner.is_mirrored = true;
            // Its memory counts as that of a published stream, as with any copy.
            inner.account.resume();
            inner.publishers.clear();
            // The other machine has cut what follows.
            inner.tracks.iter_mut().for_each(|track| track.packager.discard());
        }
        is_free
    }

    /// Ends a copy at once. Does nothing if the stream is no copy, or no longer.
    pub(crate) fn end_copy(&self) {
        let mut inner = self.lock();
        if std::mem::take(&mut inner.is_mirrored) {
            self.end_now(&mut inner, "its copy is over");
        }
    }

    fn end_now(&self, inner: &mut Inner, why: &str) {
        self.vanish(inner, why);
        // A stream without tracks ends, too: somebody may be waiting for its first.
        if !inner.is_over() {
            inner.ended = Some(UnixMicros::default());
            self.announce(inner);
        }
    }

    /// Removes all tracks and ends the stream; a sweep forgets it later. Returns how many segments
    /// it removed. `why` is for the log.
    fn vanish(&self, inner: &mut Inner, why: &str) -> u64 {
        if inner.tracks.is_empty() {
            return 0;
        }
        // If somebody publishes the name again, segment numbers go on from here. The number of the
        // unfinished segment is used, too.
        inner.first_msn = inner.next_msn() + 1;
        let mut segments = 0;
        for track in inner.tracks.drain(..) {
            segments += track.packager.window().all().count() as u64;
            track.vanish();
        }
        inner.ended = Some(UnixMicros::default());
        self.announce(inner);
        tracing::info!(stream = %self.name, "stream ended: {why}");
        segments
    }
}
