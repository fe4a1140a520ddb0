//! Wall-clock times at which media were captured.
//!
//! The *epoch* is the capture time of the stream's time 0. The date of a sample is the epoch plus
//! its presentation time. Players align tracks by such dates (hls.js does). So all tracks and
//! segments of a period should have one epoch, to within the rounding of dates.
//!
//! Samples arrive late, never early, so the earliest arrival gives the best epoch. Arrivals may
//! later give another epoch, because the network has become faster or the publisher's clock drifts.
//! An estimate then follows it slowly. The epoch follows the estimate when the two are far apart,
//! at the same stream time for all tracks. Each step has a cost: if a player knows one track's
//! dates from before the step and another's from after it, the tracks are apart by the step as long
//! as both are listed. If the wall clock itself was set, or the machine slept, the epoch follows at
//! once, with a new period.

use std::collections::VecDeque;

use crate::UnixMicros;

/// The most that the estimate moves at the start of a segment, in microseconds. For segments of two
/// seconds this is 50 a second, about the drift of clocks.
const STEP: i64 = 100;
/// The least time between two moves, in microseconds of stream time.
const APART: i64 = 1_500_000;
/// The epoch follows the estimate when they differ by this many microseconds. Nobody sees such a
/// difference, and clocks need some minutes to drift so far.
const HELD: i64 = 20_000;
/// The earliest arrival counts for this long, in microseconds of stream time, and up to twice as
/// long.
const RECENT: i64 = 10_000_000;
/// A difference of at least this many microseconds means that the wall clock was set.
const SET: i64 = 1_000_000;
/// Number of epochs that are remembered, for tracks that come later than others.
const REMEMBERED: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Epoch {
    period: u64,
    /// Stream time from which it applies. The first epoch of a period ignores this.
    from: i64,
    /// Whether it is the first of its period.
    first: bool,
    micros: i64,
}

/// The dates of a stream. All times are in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Dates {
    /// Newest last.
    epochs: VecDeque<Epoch>,
    /// Estimate of the epoch from arrivals, and the stream time at which it last moved.
    estimate: (i64, i64),
    /// How far the wall clock is ahead of the clock that never steps, as far as the epoch follows
    /// it.
    ahead: i64,
    /// The smallest epoch that arrivals gave in this span of stream time, and in the one before.
    earliest: [Option<i64>; 2],
    /// When this span began.
    since: i64,
    /// Corrections of the wall clock: from a period on, their sum since the stream began.
    sets: Vec<(u64, i64)>,
}

impl Dates {
    /// Begins the stream: the sample of stream time `t` was captured now.
    pub(crate) fn begin(&mut self, t: i64, now: i64, ahead: i64) {
        let micros = now.saturating_add(ahead).saturating_sub(t);
        self.epochs.push_back(Epoch { period: 0, from: t, first: true, micros });
        self.estimate = (micros, t);
        self.ahead = ahead;
        self.since = t;
    }

    /// The epoch for media presented at stream time `t` of a period, in whole milliseconds. So if a
    /// publisher's clock counts milliseconds, its dates do too, and writing them rounds nothing.
    pub(crate) fn epoch(&self, period: u64, t: i64) -> i64 {
        let holds = |epoch: &&Epoch| {
            epoch.period < period || epoch.period == period && (epoch.first || epoch.from <= t)
        };
        let found = self.epochs.iter().rev().find(holds).or(self.epochs.front());
        found.map_or(0, |epoch| (epoch.micros + 500).div_euclid(1000) * 1000)
    }

    /// When media presented at stream time `t` of a period were captured.
    pub(crate) fn of(&self, period: u64, t: i64) -> UnixMicros {
        UnixMicros(u64::try_from(self.epoch(period, t).saturating_add(t)).unwrap_or(0))
    }

    /// Takes the arrival of a sample of stream time `t`.
    pub(crate) fn observe(&mut self, t: i64, now: i64) {
        // `now` is by the clock that never steps, so a step of the wall clock does not look like an
        // early arrival.
        let tells = now.saturating_sub(t);
        if t.saturating_sub(self.since) >= RECENT {
            self.earliest = [None, self.earliest[0]];
            self.since = t;
        }
        let least = &mut self.earliest[0];
        *least = Some(least.map_or(tells, |known| known.min(tells)));
    }

    /// Adjusts the epoch when a segment of the leading track begins. A new epoch applies from
    /// stream time `from` on, which no track has reached.
    pub(crate) fn adjust(&mut self, period: u64, from: i64, ahead: i64) {
        let Some(earliest) = self.earliest.iter().flatten().min() else { return };
        let Some(newest) = self.epochs.back() else { return };
        if !self.is_set(ahead) {
            self.ahead = ahead;
        }
        let (estimate, moved) = self.estimate;
        if from - moved < APART {
            return;
        }
        let off = earliest + self.ahead - estimate;
        let micros = estimate + off.clamp(-STEP, STEP);
        self.estimate = (micros, from);
        if (micros - newest.micros).abs() >= HELD {
            self.push(Epoch { period, from, first: false, micros });
        }
    }

    /// Whether the wall clock was set and the next period has to follow it.
    pub(crate) fn is_set(&self, ahead: i64) -> bool {
        !self.epochs.is_empty() && (ahead - self.ahead).abs() >= SET
    }

    /// Begins a period.
    pub(crate) fn turn(&mut self, period: u64, ahead: i64) {
        let Some(newest) = self.epochs.back() else { return };
        let by = if self.is_set(ahead) { ahead - self.ahead } else { 0 };
        if by != 0 {
            let before = self.sets.last().map_or(0, |&(_, before)| before);
            if self.sets.len() == REMEMBERED {
                self.sets.remove(0);
            }
            self.sets.push((period, before + by));
        }
        let micros = newest.micros.saturating_add(by);
        self.estimate.0 = self.estimate.0.saturating_add(by);
        self.ahead += by;
        self.push(Epoch { period, from: newest.from, first: true, micros });
    }

    /// Corrections of the wall clock: from a period on, their sum since the stream began.
    pub(crate) fn sets(&self) -> &[(u64, i64)] {
        &self.sets
    }

    fn push(&mut self, epoch: Epoch) {
        self.epochs.push_back(epoch);
        if self.epochs.len() > REMEMBERED {
            self.epochs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_700_000_000_000_000;

    fn begun() -> Dates {
        let mut dates = Dates::default();
        dates.begin(1_000_000, NOON, 0);
        dates
    }

    /// Begins these segments of two seconds, with samples `late` microseconds late. Returns the
    /// epoch after each, relative to the first.
    fn told(dates: &mut Dates, segments: std::ops::Range<i64>, late: i64) -> Vec<i64> {
        let mut told = Vec::new();
        for segment in segments {
            let t = 1_000_000 + segment * 2_000_000;
            dates.observe(t, NOON + segment * 2_000_000 + late);
            dates.adjust(0, t, 0);
            told.push(dates.epoch(0, t) - (NOON - 1_000_000));
        }
        told
    }

    #[test]
    fn an_epoch_is_held_until_what_arrivals_tell_is_far_from_it() {
        let mut dates = begun();
        // From now on samples arrive 0.8 s earlier.
        assert_eq!(told(&mut dates, 1..200, -800_000), [0; 199]);
        assert_eq!(told(&mut dates, 200..400, -800_000), [-20_000; 200]);
        // Before the step, also for a track that comes later, the epoch is still the old one.
        assert_eq!(dates.epoch(0, 1_000_000 + 200 * 2_000_000 - 1), NOON - 1_000_000);
        assert_eq!(told(&mut dates, 400..401, -800_000), [-40_000]);
    }

    #[test]
    fn a_difference_that_is_small_is_never_told() {
        assert_eq!(told(&mut begun(), 1..2000, -19_000), [0; 1999]);
    }

    #[test]
    fn late_arrivals_move_nothing_until_none_is_early() {
        let mut dates = begun();
        dates.observe(1_000_000, NOON);
        told(&mut dates, 1..10, 300_000);
        assert_eq!(dates.estimate.0, NOON - 1_000_000);
        told(&mut dates, 10..40, 300_000);
        assert!(dates.estimate.0 > NOON - 1_000_000);
    }

    #[test]
    fn a_clock_that_was_set_is_followed_with_the_next_period_and_not_before() {
        let mut dates = begun();
        let hour = 3_600_000_000;
        assert!(!dates.is_set(900_000));
        assert!(dates.is_set(hour) && dates.is_set(-hour));
        dates.turn(1, hour);
        assert!(!dates.is_set(hour));
        assert_eq!(dates.sets(), [(1, hour)]);
        assert_eq!(dates.epoch(1, 0) - dates.epoch(0, i64::MAX), hour);
        // A period for another reason changes nothing.
        dates.turn(2, hour + 1000);
        assert_eq!(dates.epoch(2, 0), dates.epoch(1, 0));
    }
}
