//! Maps publisher time to stream time.
//!
//! A stream has one timeline, in microseconds, that continues through reconnects. A publisher's
//! clock may start anywhere. An offset maps each source track to the timeline. The tracks of a
//! publisher share one offset, so samples captured together stay together. A track whose clock
//! jumps gets a new offset. The other tracks take that offset when their clock jumps as well.

/// The stream's timeline starts here, not at 0: a track may begin a little before the track whose
/// first sample set the origin, and CMAF has no negative decode times.
pub(crate) const ORIGIN: i64 = 1_000_000;

/// A clock may run back by this many microseconds (reordering between an encoder's threads). Its
/// times are then held.
const BACK: i64 = 200_000;
/// A clock may run ahead of the rest of the stream by this many microseconds.
const AHEAD: i64 = 10_000_000;
/// The first sample of a publisher that joins others may be off by this many microseconds and still
/// count as timed by their clock. One encoder opens its connections one after another, and its
/// largest rendition takes a second or two longer than its smallest. An encoder with a clock of its
/// own, which begins at 0 like most, must not count as the same encoder only because the stream is
/// young.
const BESIDE: i64 = 3_000_000;

/// How one publisher's clock maps to the stream's timeline, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    shared: Option<i64>,
    /// Whether `shared` is another publisher's offset that no sample has confirmed.
    borrowed: bool,
}

/// How one source track maps to the timeline.
#[derive(Debug, Default)]
pub(crate) struct TrackClock {
    offset: Option<i64>,
    /// Publisher's time and wall-clock time of the last sample.
    last: Option<(i64, i64)>,
}

/// How to move a sample's time onto the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// Add this to the publisher's time.
    Offset(i64),
    /// Add `offset`. The publisher's clock jumped by `by` microseconds, and the offset is new:
    /// decoders must be told.
    Jumped { offset: i64, by: i64 },
}

impl Timeline {
    /// A timeline that takes another publisher's offset if that is plausible: one encoder may
    /// publish several renditions.
    pub(crate) fn beside(offset: Option<i64>) -> Self {
        Self { shared: offset, borrowed: offset.is_some() }
    }

    /// The offset the tracks share.
    pub(crate) fn offset(&self) -> Option<i64> {
        self.shared
    }

    /// Maps time `t` of a track at wall-clock time `now`. `here` is the latest time that any track
    /// has reached or, if later, the wall clock's estimate of it. If the track's publisher returns,
    /// `end` is where the track's own media end.
    pub(crate) fn map(
        &mut self,
        track: &mut TrackClock,
        t: i64,
        (now, here): (i64, i64),
        end: Option<i64>,
    ) -> Mapped {
        let last = track.last.replace((t, now));
        if let (Some(offset), Some((last, then))) = (track.offset, last) {
            let step = t.saturating_sub(last);
            let elapsed = now.saturating_sub(then).max(0);
            if (-BACK..=AHEAD.saturating_add(elapsed)).contains(&step) {
                // A track that sent nothing while the others jumped seems not to have jumped.
                let off = |offset: i64| t.saturating_add(offset).abs_diff(here);
                let offset = match self.shared {
                    Some(shared) if off(shared) + BACK.unsigned_abs() < off(offset) => shared,
                    _ => offset,
                };
                track.offset = Some(offset);
                return Mapped::Offset(offset);
            }
            // The other tracks may have jumped before this one. Then it takes their offset.
            if let Some(shared) = self.shared
                && shared != offset
                && plausible(t, shared, here, AHEAD)
            {
                track.offset = Some(shared);
                return Mapped::Offset(shared);
            }
            let offset = here.saturating_sub(t);
            self.shared = Some(offset);
            track.offset = Some(offset);
            return Mapped::Jumped { offset, by: step };
        }
        let borrowed = std::mem::take(&mut self.borrowed);
        let shared = self.shared.filter(|&shared| {
            // A publisher that returns with the others' clock continues where its media end.
            let at = t.saturating_add(shared);
            let follows = end.is_none_or(|end| at >= end - BACK);
            if borrowed {
                follows && plausible(t, shared, here, BESIDE)
            } else {
                // What lies before the timeline begins is dropped. The rest is beside the other track.
                let is_early = at < 0 && here.saturating_sub(at) <= BESIDE;
                is_early || plausible(t, shared, here, AHEAD)
            }
        });
        let offset = shared.unwrap_or_else(|| here.saturating_sub(t));
        if borrowed {
            self.shared = Some(offset);
        }
        self.shared.get_or_insert(offset);
        track.offset = Some(offset);
        Mapped::Offset(offset)
    }
}

/// Whether time `t`, mapped by `offset`, is at most `reach` away from `here`.
fn plausible(t: i64, offset: i64, here: i64, reach: i64) -> bool {
    let at = t.saturating_add(offset);
    at >= 0 && at.abs_diff(here) <= reach.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(timeline: &mut Timeline, track: &mut TrackClock, t: i64, now: i64, here: i64) -> Mapped {
        timeline.map(track, t, (now, here), None)
    }

    #[test]
    fn tracks_share_the_first_offset_and_follow_each_other_through_a_jump() {
        let mut timeline = Timeline::default();
        let (mut audio, mut video) = (TrackClock::default(), TrackClock::default());
        let start = 4_294_967_000_000;
        assert_eq!(
            map(&mut timeline, &mut video, start, 0, ORIGIN),
            Mapped::Offset(ORIGIN - start)
        );
        let early = start - 21_333;
        assert_eq!(
            map(&mut timeline, &mut audio, early, 0, ORIGIN),
            Mapped::Offset(ORIGIN - start)
        );
        // The encoder restarts at 0, video first.
        let here = ORIGIN + 500_000;
        let jumped = Mapped::Jumped { offset: here, by: -start };
        assert_eq!(map(&mut timeline, &mut video, 0, 500_000, here), jumped);
        let step = start + 480_000;
        assert_eq!(
            map(&mut timeline, &mut audio, step, 500_000, here),
            Mapped::Offset(ORIGIN - start)
        );
        assert_eq!(map(&mut timeline, &mut audio, 5_000, 520_000, here), Mapped::Offset(here));
        assert_eq!(map(&mut timeline, &mut video, 33_000, 533_000, here), Mapped::Offset(here));
    }

    #[test]
    fn a_track_may_begin_before_the_timeline_does() {
        let mut timeline = Timeline::default();
        let (mut video, mut audio) = (TrackClock::default(), TrackClock::default());
        map(&mut timeline, &mut video, 1_500_000, 0, ORIGIN);
        assert_eq!(map(&mut timeline, &mut audio, 0, 0, ORIGIN), Mapped::Offset(-500_000));
        // It catches up with the timeline. A clock of its own would not.
        let mut other = TrackClock::default();
        let here = ORIGIN + 4_000_000;
        assert_eq!(map(&mut timeline, &mut other, 0, 4_000_000, here), Mapped::Offset(here));
    }

    #[test]
    fn a_pause_that_the_wall_clock_confirms_is_not_a_jump() {
        let mut timeline = Timeline::default();
        let mut track = TrackClock::default();
        map(&mut timeline, &mut track, 0, 0, ORIGIN);
        let later = 25_000_000;
        assert_eq!(
            map(&mut timeline, &mut track, later, later, ORIGIN + later),
            Mapped::Offset(ORIGIN)
        );
        let far = later + 11_000_000;
        assert!(matches!(
            map(&mut timeline, &mut track, far, later, ORIGIN + later),
            Mapped::Jumped { by: 11_000_000, .. }
        ));
    }
}
