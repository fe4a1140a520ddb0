//! How long parts are.

use std::time::Duration;

use media::Sample;

use super::{Packager, Timing};

/// What `PART-TARGET` adds to a part's duration, for the rounding of source clocks.
const ROUNDING: Duration = Duration::from_millis(1);
/// Least duration of a part that is not its segment's last, as a share of `PART-TARGET`. It is a
/// little more than RFC 8216bis 4.4.4.9 demands, because durations are written rounded.
const LEAST_PART: f64 = 0.86;

impl Packager {
    /// `PART-TARGET` in the track's timescale, once the frame rate is known.
    pub(crate) fn part_limit(&self) -> Option<u32> {
        self.part_limit
    }

    /// The longest that a part may be, as far as that is known.
    pub(super) fn longest_part(&self) -> i64 {
        self.part_limit.map_or_else(|| self.longest_segment(), i64::from)
    }

    /// Whether enough samples are pending to decide how long a part is.
    pub(super) fn has_learnt(&self) -> bool {
        let (Some(first), Some(last)) = (self.pending.first(), self.pending.last()) else {
            return false;
        };
        let filled = last.dts + i64::from(last.duration) - first.dts;
        let frame = i64::from(last.duration);
        let target = self.duration_ticks(self.settings.part_target);
        match &self.timing {
            Timing::Units(_) => filled + frame / 2 >= target,
            // A single step may be a pause. The frame rate shows after a few steps.
            Timing::Frames(cadence) => {
                self.pending.len() > 4 && filled + cadence.step().unwrap_or(0) / 2 >= target
                    || cadence.step().is_some() && filled + frame / 2 >= target
            }
        }
    }

    /// Longest duration of a part. The first call decides it: the whole number of frames nearest to
    /// the target, and a millisecond for the rounding of source clocks.
    pub(super) fn settled_limit(&mut self) -> u32 {
        if let Some(limit) = self.part_limit {
            return limit;
        }
        let target = self.duration_ticks(self.settings.part_target);
        let lasts = |sample: &Sample| i64::from(sample.duration);
        let newest = self.pending.last().map_or(1, lasts).max(1);
        let longest = self.pending.iter().map(lasts).max().unwrap_or(1);
        let (frame, usual) = match &self.timing {
            Timing::Units(_) => (Some(newest), newest),
            Timing::Frames(cadence) => (cadence.step(), cadence.usual().unwrap_or(newest)),
        };
        let limit = match frame {
            Some(frame) => ((target + frame / 2) / frame).max(1) * frame,
            // Irregular frames can fill a part of the target's length, unless they come less often.
            None if usual < target => target,
            None => longest.max(usual),
        };
        let limit = limit + self.duration_ticks(ROUNDING);
        let limit = limit.min(self.duration_ticks(self.target_duration));
        let limit = u32::try_from(limit).unwrap_or(u32::MAX).max(1);
        self.part_limit = Some(limit);
        limit
    }

    /// Whether the pending samples fill a part: the next one, when it is due as expected, would
    /// make the part too long.
    pub(super) fn is_complete(&self, least: i64, limit: i64) -> bool {
        let (Some(first), Some(last)) = (self.pending.first(), self.pending.last()) else {
            return false;
        };
        let filled = last.dts + i64::from(last.duration) - first.dts;
        let step = match &self.timing {
            Timing::Frames(cadence) => cadence.step(),
            Timing::Units(_) => None,
        };
        filled >= least && filled + step.unwrap_or(i64::from(last.duration)) > limit
    }
}

/// Least duration of a part that is not its segment's last, for a `PART-TARGET` of `limit`.
pub(super) fn least_part(limit: i64) -> i64 {
    (limit as f64 * LEAST_PART).ceil() as i64
}
