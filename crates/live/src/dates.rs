//! When media were captured, by the wall clock.
//!
//! What is said is the time of capture of the stream's time 0, its *epoch*: the date of a sample is its
//! presentation time after that. Players place tracks on each other by such dates (hls.js does), so
//! for all tracks and segments of a period it is one number, to within what dates are rounded to.
//! Samples arrive late, never early, so the earliest arrival tells the epoch best. Where that is found
//! to be another one, because the network has become quicker or the publisher's clock drifts, an estimate
//! follows it slowly. The epoch follows the estimate when it is far off, for all tracks at the same stream
//! time: each step costs, since a player that knows one track's dates from before the step and another's
//! from after it has them apart by the step for as long as both are listed. Where the wall clock itself
//! was set, or the machine slept, the epoch follows at once, with a new period.

use std::collections::VecDeque;

use crate::UnixMicros;

/// The estimate moves by no more at the start of a segment, in microseconds: 50 in a second for segments
/// of two seconds, which is about what clocks drift.
const STEP: i64 = 100;
/// It moves no more often than that, in microseconds of stream time.
const APART: i64 = 1_500_000;
/// The epoch follows the estimate where it is off by so many microseconds: what nobody sees, and what
/// takes clocks some minutes.
const HELD: i64 = 20_000;
/// For so long the earliest arrival counts, in microseconds of stream time, and up to twice as long.
const RECENT: i64 = 10_000_000;
/// The wall clock was set where it is off by more, in microseconds.
const SET: i64 = 1_000_000;
/// Epochs that are remembered, for tracks that come later than others.
const REMEMBERED: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Epoch {
    period: u64,
    /// Stream time from which on it holds; not asked for in a period's first.
    from: i64,
    /// Whether it is its period's first.
    first: bool,
    micros: i64,
}

/// The dates of a stream. All times are in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Dates {
    /// Newest last.
    epochs: VecDeque<Epoch>,
    /// What arrivals tell the epoch to be, and the stream time at which it moved last.
    estimate: (i64, i64),
    /// What the wall clock was ahead of the clock that never steps, as far as the epoch follows it.
    ahead: i64,
    /// The least that arrivals tell, of this span of stream time and of the one before.
    earliest: [Option<i64>; 2],
    /// When this span began.
    since: i64,
    /// From which period on the wall clock had been set by how much, in all.
    sets: Vec<(u64, i64)>,
}

impl Dates {
    /// The stream begins: the sample of stream time `t` was captured now.
    pub(crate) fn begin(&mut self, t: i64, now: i64, ahead: i64) {
        let micros = now.saturating_add(ahead).saturating_sub(t);
        self.epochs.push_back(Epoch { period: 0, from: t, first: true, micros });
        self.estimate = (micros, t);
        self.ahead = ahead;
        self.since = t;
    }

    /// The epoch of what is shown at stream time `t` of a period, in whole milliseconds: so the date of
    /// what a publisher's clock of milliseconds says is one of milliseconds, and not rounded when told.
    pub(crate) fn epoch(&self, period: u64, t: i64) -> i64 {
        let holds = |epoch: &&Epoch| {
            epoch.period < period || epoch.period == period && (epoch.first || epoch.from <= t)
        };
        let found = self.epochs.iter().rev().find(holds).or(self.epochs.front());
        found.map_or(0, |epoch| (epoch.micros + 500).div_euclid(1000) * 1000)
    }

    /// When what is shown at stream time `t` of a period was captured.
    pub(crate) fn of(&self, period: u64, t: i64) -> UnixMicros {
        UnixMicros(u64::try_from(self.epoch(period, t).saturating_add(t)).unwrap_or(0))
    }

    /// A sample of stream time `t` arrived.
    pub(crate) fn observe(&mut self, t: i64, now: i64) {
        // By the clock that never steps, so that a step is not taken for an early arrival.
        let tells = now.saturating_sub(t);
        if t.saturating_sub(self.since) >= RECENT {
            self.earliest = [None, self.earliest[0]];
            self.since = t;
        }
        let least = &mut self.earliest[0];
        *least = Some(least.map_or(tells, |known| known.min(tells)));
    }

    /// A segment of the leading track begins. From stream time `from` on, which no track has
    /// reached, the epoch may be nearer the truth.
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

    /// Whether the wall clock was set, and is to be followed with the next period.
    pub(crate) fn is_set(&self, ahead: i64) -> bool {
        !self.epochs.is_empty() && (ahead - self.ahead).abs() >= SET
    }

    /// A period begins.
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

    /// From which period on the wall clock had been set by how much since the stream began.
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

    /// When each of so many segments of two seconds began after the one before, and the epoch then.
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
        // From now on samples arrive earlier.
        assert_eq!(told(&mut dates, 1..200, -800_000), [0; 199]);
        assert_eq!(told(&mut dates, 200..400, -800_000), [-20_000; 200]);
        // Before that, and for a track that comes later, it is what it was.
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
