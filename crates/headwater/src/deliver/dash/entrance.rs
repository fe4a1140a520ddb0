//! Where a new player begins: behind live by the latency target.
//!
//! Where a publisher was away, or has not sent for a while, no media may be there. dash.js, up to 5.2 at
//! least, then waits in the period that was the newest when it began, for ever. So a manifest waits for
//! media at that place. A new period is listed once the place is in the period. While no publisher is
//! there, the latency target is farther, so that the place is in the old media.

use std::sync::Arc;
use std::time::Duration;

use live::{Segment, State, Status, Stream};
use media::Kind;

use super::{Manifested, has_ended, is_regular, latency_target, listed, on_clock};

/// A period without audio, or without video, waits this long for it, in time of the media. Silence
/// stands in for missing audio sooner. dash.js, up to 5.2 at least, plays a period to its end with
/// the kinds of media that it had when dash.js first read of it.
const STRAGGLES: Duration = Duration::from_secs(4);

/// A player computes where to begin up to this many milliseconds after the manifest was written.
const LATE: i64 = 1000;

/// Media that a publisher foretold are listed until it has sent nothing for this many milliseconds.
const SILENT: i64 = 1000;

/// A hole between two periods of at most this many milliseconds holds no player up.
const GAP: i64 = 100;

/// Where a player that reads the manifest now begins, and what the manifest says because of that.
pub(super) struct Entrance {
    /// The wall clock, in milliseconds since 1970.
    pub(super) now: u64,
    /// Whether the publisher sends, so that media that are foretold will come.
    pub(super) sends: bool,
    /// Whether the ends of the segments being made are foretold.
    pub(super) regular: bool,
    /// Whether the newest period is not listed yet.
    pub(super) held: bool,
    /// How much farther from live than usual players should be, in milliseconds.
    pub(super) farther: u64,
}

impl Entrance {
    pub(super) fn at(stream: &Stream, state: &State, now: u64) -> Self {
        let regular = is_regular(stream, state);
        let usual = Self { now, sends: true, regular, held: false, farther: 0 };
        if has_ended(state) {
            return usual;
        }
        let listed = listed(&state.tracks);
        let newest: Vec<_> = listed
            .iter()
            .filter_map(|track| {
                let window = track.window();
                let segment = Arc::clone(window.newest_manifested()?);
                Some((track.kind, window, segment))
            })
            .collect();
        let Some(period) = newest.iter().map(|(_, _, segment)| segment.period).max() else {
            return usual;
        };
        let millis = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let now = millis(now) - millis(state.epoch.0 / 1000);

        let runs = || newest.iter().filter(|(_, _, segment)| segment.period == period);
        let start_of = |segment: &Segment| on_clock(state, segment, segment.period_start);
        let start = runs().map(|(_, _, segment)| start_of(segment)).min().unwrap_or(0);
        let known = |segment: &Segment| on_clock(state, segment, segment.presented_end());
        let known = runs().map(|(_, _, segment)| known(segment)).max().unwrap_or(0);
        let sends = state.status == Status::Live && now <= known + SILENT;
        let regular = regular && sends;
        let usual = Self { sends, regular, ..usual };
        let foretold = runs().map(|(_, window, segment)| {
            let is_open = window.open.as_ref().is_some_and(|open| open.msn == segment.msn);
            foretold(state, segment, is_open)
        });
        let end = foretold.filter(|_| sends).max().map_or(known, |foretold| foretold.max(known));
        let live = now - millis(latency_target(stream.settings(), regular));
        // Only of a young period is it asked what came before: the look back is short then.
        let is_young = live < start || end - start < STRAGGLES.as_millis() as i64;
        let before = newest.iter().filter(|_| is_young).filter_map(|(_, window, _)| {
            let before = window.listed().rev().find(|segment| segment.period != period)?;
            Some(on_clock(state, before, before.presented_end()))
        });
        let Some(before) = before.max() else { return usual.beyond(live, end) };
        let waits = |kind| {
            !runs().any(|(of, _, _)| *of == kind) && listed.iter().any(|track| track.kind == kind)
        };
        let is_incomplete = (waits(Kind::Audio) || waits(Kind::Video))
            && runs().all(|(_, _, segment)| {
                on_clock(state, segment, segment.presented_end()) - start_of(segment)
                    < STRAGGLES.as_millis() as i64
            });
        let is_in_hole = before + GAP < start && live < start && before < live + LATE;
        if is_incomplete || is_in_hole {
            return Self { held: true, ..usual }.beyond(live, before);
        }
        usual.beyond(live, end)
    }

    /// Whether no media are listed where a player would begin, if it were not told to stay farther away.
    pub(super) fn is_in_void(&self) -> bool {
        self.farther > 0
    }

    /// Moves the place that is `live`, in milliseconds of the manifest, to before the `end` of the listed
    /// media. The manifest changes at most once a second by that.
    fn beyond(self, live: i64, end: i64) -> Self {
        let beyond = (live + LATE - end).max(0).unsigned_abs();
        Self { farther: beyond.div_ceil(1000) * 1000, ..self }
    }
}

/// Until when media are foretold after a track's newest segment, or its known end: the end of the segment
/// after this one, unless this one ended elsewhere than foretold.
fn foretold(state: &State, segment: &Segment, is_open: bool) -> i64 {
    let known = segment.presented_end();
    let foretold =
        segment.expected_end.filter(|&end| if is_open { end >= known } else { end == known });
    on_clock(state, segment, foretold.map_or(known, |end| 2 * end - segment.presents))
}
