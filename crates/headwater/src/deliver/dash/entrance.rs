//! Where a new player begins: behind live by the latency target.
//!
//! Where a publisher was away, or has not sent for a while, no media may be there. dash.js, up to 5.2 at
//! least, then waits in the period that was the newest when it began, for ever. So a manifest waits for
//! media at that place. A new period is listed once the place is in the period. While no publisher is
//! there, the latency target is farther, so that the place is in the old media.

use std::sync::Arc;

use live::{Segment, State, Status, Stream, Track, Window};
use media::Kind;

use super::{Manifested, has_ended, is_regular, latency_target, listed, on_clock};

/// A period without audio, or without video, waits this many milliseconds for it, in time of the media.
/// Silence stands in for missing audio sooner. dash.js, up to 5.2 at least, plays a period to its end with
/// the kinds of media that it had when dash.js first read of it.
const STRAGGLES: i64 = 4000;

/// A player computes where to begin up to this many milliseconds after the manifest was written.
const LATE: i64 = 1000;

/// Media that a publisher foretold are listed until it has sent nothing for this many milliseconds.
const SILENT: i64 = 1000;

/// A hole between two periods of at most this many milliseconds holds no player up.
const GAP: i64 = 100;

/// Where a player that reads the manifest now begins, and what the manifest says because of that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entrance {
    /// Whether the publisher sends, so that media that are foretold will come.
    pub(super) sends: bool,
    /// Whether the ends of the segments being made are foretold.
    pub(super) regular: bool,
    /// Whether the newest period is not listed yet.
    pub(super) held: bool,
    /// How much farther from live than usual players should be, in milliseconds.
    pub(super) farther: u64,
    /// Until when there are media, in milliseconds since `availabilityStartTime`.
    end: i64,
}

impl Entrance {
    pub(super) fn at(stream: &Stream, state: &State, now: u64) -> Self {
        let regular = is_regular(stream, state);
        let usual = Self { sends: true, regular, held: false, farther: 0, end: 0 };
        let listed = listed(&state.tracks);
        let newest = Newest::of(state, &listed).filter(|_| !has_ended(state));
        let Some(newest) = newest else { return usual };

        let millis = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let now = millis(now) - millis(state.epoch.0 / 1000);
        let sends = state.status == Status::Live && now <= newest.end + SILENT;
        let regular = regular && sends;
        let usual = Self { sends, regular, end: newest.end, ..usual };
        let place = now - millis(latency_target(stream.settings(), regular));
        let end = if sends { newest.foretold } else { newest.end };
        let usual = usual.farther(place, end);
        // Where a player is to be farther from live, it may begin before the new period.
        let moved = place - millis(usual.farther);
        match newest.before {
            Some(before) if newest.is_incomplete(&listed) || newest.is_beyond(moved, before) => {
                Self { held: true, ..usual }.farther(place, before)
            }
            _ => usual,
        }
    }

    /// Whether no media are listed where a player would begin, but may be soon. `asked` is what held when
    /// the player asked. Where media came meanwhile, and not to that place, the publisher is slower than
    /// real time: it will not come to that place.
    pub(super) fn is_worth_a_wait(&self, asked: &Self) -> bool {
        self.farther > 0 && (self.held || self.end == asked.end)
    }

    /// For how many milliseconds the publisher must have sent nothing to make the manifest say this.
    pub(super) fn waited(&self) -> u64 {
        if self.sends || self.held {
            return 0;
        }
        // It is rounded up to a second.
        SILENT.unsigned_abs() + self.farther.saturating_sub(1000)
    }

    /// Moves `place` to before the `end` of the listed media. The manifest changes at most once a second
    /// by that.
    fn farther(self, place: i64, end: i64) -> Self {
        let beyond = (place + LATE - end).max(0).unsigned_abs();
        Self { farther: beyond.div_ceil(1000) * 1000, ..self }
    }
}

/// The newest period. Times are in milliseconds since `availabilityStartTime`.
struct Newest {
    start: i64,
    /// Until when it has media.
    end: i64,
    /// Until when media are foretold.
    foretold: i64,
    /// The kinds of its media, and how long each track of it lasts.
    tracks: Vec<(Kind, i64)>,
    /// The end of the period before, if the newest is young and another one is listed.
    before: Option<i64>,
}

impl Newest {
    fn of(state: &State, listed: &[Arc<Track>]) -> Option<Self> {
        let newest = |track: &Arc<Track>| {
            let window = track.window();
            let segment = Arc::clone(window.newest_manifested()?);
            Some((track.kind, window, segment))
        };
        let newest: Vec<_> = listed.iter().filter_map(newest).collect();
        let period = newest.iter().map(|(_, _, segment)| segment.period).max()?;
        let runs = || newest.iter().filter(|(_, _, segment)| segment.period == period);
        let start = |segment: &Segment| on_clock(state, segment, segment.period_start);
        let end = |segment: &Segment| on_clock(state, segment, segment.presented_end());
        let lasts =
            |(kind, _, segment): &(Kind, _, Arc<Segment>)| (*kind, end(segment) - start(segment));
        let tracks: Vec<_> = runs().map(lasts).collect();
        // Only a young period is compared with the one before. So the look back is short.
        let is_young = tracks.iter().all(|&(_, lasts)| lasts < STRAGGLES);
        let before = newest.iter().filter(|_| is_young).filter_map(|(_, window, _)| {
            window.listed().rev().find(|segment| segment.period != period).map(|before| end(before))
        });
        let known = runs().map(|(_, _, segment)| end(segment)).max()?;
        let foretold = runs().map(|(_, window, segment)| foretold(state, window, segment)).max()?;
        Some(Self {
            start: runs().map(|(_, _, segment)| start(segment)).min()?,
            end: known,
            foretold: foretold.max(known),
            before: before.max(),
            tracks,
        })
    }

    /// Whether it still waits for one kind of the listed media.
    fn is_incomplete(&self, listed: &[Arc<Track>]) -> bool {
        let has = |kind| self.tracks.iter().any(|(of, _)| *of == kind);
        let waits = |kind| !has(kind) && listed.iter().any(|track| track.kind == kind);
        waits(Kind::Audio) || waits(Kind::Video)
    }

    /// Whether a player that begins at about `place` finds neither the media `before` nor these.
    fn is_beyond(&self, place: i64, before: i64) -> bool {
        before + GAP < self.start && place < self.start && before < place + LATE
    }
}

/// Until when media are foretold after a track's newest segment: the end of the segment after this one. If
/// this one ended elsewhere than foretold, its end.
fn foretold(state: &State, window: &Window, segment: &Segment) -> i64 {
    let is_open = window.open.as_ref().is_some_and(|open| open.msn == segment.msn);
    let known = segment.presented_end();
    let holds = |&end: &i64| if is_open { end >= known } else { end == known };
    let foretold = segment.expected_end.filter(holds);
    on_clock(state, segment, foretold.map_or(known, |end| 2 * end - segment.presents))
}
