//! A copy that becomes the stream: its machine has gone, and the publisher comes here.

use super::copy::newest;
use crate::UnixMicros;
use crate::change::{Adoption, Description};
use crate::dates::Dates;
use crate::gop::Learnt;
use crate::info::Status;
use crate::stream::Stream;

/// How many versions are left out. Other copies may have seen newer ones than this machine, and versions only grow.
const LEFT_OUT: u64 = 1000;

/// The version from which on [`LEFT_OUT`] versions are left out.
///
/// A copy that has just begun may have shown nothing of a track, while others have seen much of that track. A
/// track has fewer than a thousand versions in a second. So no version is above the stream's age in
/// milliseconds, or above that of the machine that went on with the stream last.
fn least_version(since: UnixMicros, now: UnixMicros) -> u64 {
    u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX / 2)
}

impl Stream {
    /// Makes a copy the stream itself, which waits for its publisher. Returns whether it does.
    ///
    /// New media then begin a period, and continue the numbers, names and dates. A copy of a stream that is
    /// over ends instead.
    pub(crate) fn adopt(&self, now: UnixMicros) -> bool {
        let mut inner = self.lock();
        let state = self.state();
        if !inner.is_mirrored {
            return false;
        }
        if state.status == Status::Ended {
            drop(inner);
            self.end_copy();
            return false;
        }
        inner.is_mirrored = false;
        inner.owner = None;
        // If the stream was given away from here before, it waited for a publisher at that time, too.
        inner.lost = None;
        let ahead = self.ahead();
        inner.began = Some(state.epoch);
        let newest = inner.tracks.iter().filter_map(newest).max_by_key(|newest| newest.period);
        let (period, epoch) = newest.map_or_else(
            || (0, i64::try_from(state.epoch.0).unwrap_or(i64::MAX)),
            |newest| (newest.period, newest.epoch()),
        );
        inner.period = period;
        inner.set_period_begun();
        inner.dates = Dates::resume(period, epoch, i64::try_from(now.0).unwrap_or(i64::MAX), ahead);
        inner.epoch = UnixMicros(u64::try_from(epoch.saturating_sub(ahead)).unwrap_or(0));
        let regular = self.settings().target_duration;
        let known = self.is_settled().then(|| self.target_duration());
        inner.learnt = known
            .map(|target_duration| Learnt { target_duration, regular: target_duration == regular });
        if inner.adoptions.len() == Description::MOST_ADOPTIONS {
            inner.adoptions.remove(0);
        }
        let places = super::copy::places(&inner);
        inner.adoptions.push(Adoption { at: now, places });
        let (learnt, least) = (inner.learnt, least_version(self.since(), now));
        for track in &mut inner.tracks {
            track.follow_another();
            track.packager.adopt(learnt, least, LEFT_OUT);
            track.last_sample = now;
            (track.silent, track.missing) = (false, false);
            // The other machine may have made renditions of a source that it did not offer. If this machine
            // makes some, it decides about that anew.
            track.handle.set_offered(true);
            track.began = track.packager.window().newest().map(|_| now);
        }
        self.announce_after(&inner, LEFT_OUT);
        tracing::info!(stream = self.name(), "goes on here");
        true
    }
}
