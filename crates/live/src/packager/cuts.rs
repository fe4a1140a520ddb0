//! Where a track's segments end.

use std::collections::VecDeque;
use std::time::Duration;

use media::{Kind, Sample};

use super::{Packager, Timing};
use crate::rescale;
use crate::timeline::ORIGIN;

/// How much longer than the target duration a segment may be while it waits for its keyframe. Such
/// a segment is allowed, because RFC 8216bis 4.4.3.1 compares `TARGETDURATION` with durations
/// rounded to seconds.
const ROUNDED: Duration = Duration::from_millis(450);
/// Number of successive segments of one duration that forecast the duration of the next.
const ALIKE: usize = 3;
/// Number of the leading track's latest segment starts that other tracks may still cut at.
const BOUNDARIES: usize = 16;

/// Where a track's segments may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cutting<'a> {
    /// Near the segment target: video at keyframes, audio anywhere.
    Leading,
    /// Where the leading track starts a segment.
    Following(&'a Boundaries),
    /// Only where a segment would become too long: the leading track has not told yet what segments
    /// may last.
    Nowhere,
}

/// Where the leading track starts segments, in microseconds of stream time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Boundaries {
    /// Starts of segments, the newest last.
    pub(crate) starts: VecDeque<i64>,
    /// Where the next segment most likely starts.
    pub(crate) next: Option<i64>,
}

impl Boundaries {
    pub(crate) fn push(&mut self, start: i64) {
        self.starts.push_back(start);
        if self.starts.len() > BOUNDARIES {
            self.starts.pop_front();
        }
    }
}

impl Packager {
    /// Longest duration of a segment, in the track's timescale. A segment that `waits` for a keyframe
    /// may last a little longer.
    pub(super) fn at_latest(&self, waits: bool) -> i64 {
        let rounded = if waits { ROUNDED } else { Duration::ZERO };
        self.duration_ticks(self.target_duration + rounded)
    }

    /// Least duration of a segment of a track that follows the leading track, in its timescale.
    pub(super) fn shortest_segment(&self) -> i64 {
        self.duration_ticks(self.settings.segment_target) / 8
    }

    /// Whether the segment being made ends before `sample`.
    pub(super) fn starts_segment(&self, sample: &Sample, cutting: Cutting<'_>) -> bool {
        let Some(open) = self.segments.open() else { return false };
        let elapsed = self.newest - self.opened;
        let video = self.header.track.kind() == Kind::Video;
        // A track that follows waits for the leading track's keyframe as video does.
        let waits = video || matches!(cutting, Cutting::Following(_));
        let at_latest = self.at_latest(waits);
        let ends = (sample.dts + i64::from(sample.duration)).max(self.newest);
        if ends - open.start > at_latest {
            return true;
        }
        let target = self.duration_ticks(self.settings.segment_target);
        match cutting {
            Cutting::Following(boundaries) => boundaries
                .starts
                .iter()
                .rev()
                .map(|&boundary| rescale(boundary, 1_000_000, self.header.track.timescale))
                .take_while(|&boundary| boundary > open.start + self.shortest_segment())
                .any(|boundary| boundary <= sample.pts()),
            Cutting::Leading if video => {
                let Some((_, distance)) = self.keyframe.filter(|_| sample.sync) else {
                    return sample.sync && elapsed >= target;
                };
                // The distance from the keyframe before forecasts the distance to the next.
                let next = match self.keyframe {
                    Some((at, _)) if self.newest > at => self.newest - at,
                    _ => distance.unwrap_or(0),
                };
                // The cut is at the keyframe nearest to a multiple of the target on the stream's
                // timeline, and not nearest to the target after this segment's start. So renditions
                // cut at the same keyframes, whenever each began.
                let due = self.due(self.opened, target);
                self.newest + next / 2 >= due || elapsed + next > at_latest
            }
            Cutting::Leading => elapsed + i64::from(sample.duration) / 2 >= target,
            Cutting::Nowhere => false,
        }
    }

    /// How long a segment that begins now lasts if keyframes stay `distance` apart, after a segment that
    /// lasted `last`. The first segment of a period may be shorter than the others, because cuts are near
    /// multiples of the target. `None` if the segment after this one lasts longer or shorter: a forecast
    /// is for both.
    fn next_cut(&self, last: i64, distance: i64) -> Option<i64> {
        let distance = distance.max(1);
        let target = self.duration_ticks(self.settings.segment_target);
        // The number of keyframe distances in a segment that begins at `start`.
        let count = |start: i64| {
            let least = (self.due(start, target) - start - distance / 2).max(1);
            let whole = (least + distance - 1) / distance;
            whole.min(self.at_latest(true) / distance).max(1)
        };
        let this = count(self.opened);
        let is_steady = count(self.opened + this * distance) == this;
        // Durations of segments are exact. Source times, and so the distance, may be rounded.
        let of_last = ((last + distance / 2) / distance).max(1);
        is_steady.then(|| last * this / of_last)
    }

    /// When a segment that starts at `start` should end: the multiple of the target after the one
    /// nearest to the start. Multiples count from the stream's origin, where the first publisher's
    /// first keyframe is. A start halfway between two multiples belongs to the earlier.
    fn due(&self, start: i64, target: i64) -> i64 {
        let target = target.max(1);
        let origin = rescale(ORIGIN, 1_000_000, self.header.track.timescale);
        let turn = (start - origin + target * 9 / 20).div_euclid(target);
        origin + (turn + 1) * target
    }

    /// Where a segment that begins with `first` most likely ends: where the leading track's segment
    /// ends, or after as long as the segments before it lasted. `None` if there is no forecast.
    pub(super) fn expected_end(&self, first: &Sample, cutting: Cutting<'_>) -> Option<i64> {
        if let Cutting::Following(boundaries) = cutting {
            let next = rescale(boundaries.next?, 1_000_000, self.header.track.timescale);
            let Timing::Units(units) = &self.timing else { return None };
            let end = first.dts + i64::from(first.duration);
            return units.first_from(end, next).filter(|_| next > end);
        }
        let before = self.window().segments.iter().rev().take_while(|s| s.period == self.period);
        let before: Vec<_> = before.take(ALIKE).collect();
        let last = i64::try_from(before.first()?.duration).ok()?;
        // The first segment of a period tells nothing of the others.
        let others = before.iter().filter(|segment| segment.presents != segment.period_start);
        let durations: Vec<u64> = others.map(|segment| segment.duration).collect();
        let frame = u64::from(first.duration);
        let alike =
            durations.iter().all(|other| other.abs_diff(last.unsigned_abs()) < frame.max(1));
        let known = durations.len() == ALIKE || self.regular;
        let lasts = match self.keyframe {
            Some((_, Some(distance))) => self.next_cut(last, distance),
            _ => Some(last),
        };
        let lasts = lasts.filter(|&lasts| durations.is_empty() || lasts == last);
        lasts.filter(|_| alike && known).map(|lasts| first.pts() + lasts)
    }
}
