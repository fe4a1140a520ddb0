//! Wall-clock times at which media were captured.
//!
//! The *epoch* is the capture time of the stream's time 0. The date of a sample is the epoch plus
//! its presentation time. Players align tracks by such dates (hls.js does). So an epoch belongs to
//! a period: it is the same for all tracks of the period, and never changes.
//!
//! Samples arrive late, never early, so the earliest arrival gives the best epoch. Arrivals may
//! later give another epoch, because the network has become faster or the publisher's clock drifts.
//! Or somebody sets the wall clock. Once the epoch is far off, a period has to begin, because only
//! a new period may have another epoch. A period that begins for another reason also takes the best
//! epoch known.

use std::collections::VecDeque;

use crate::UnixMicros;

/// How far an epoch may be off before a period has to begin, in microseconds. DASH players judge by
/// their clocks which segments are available, and latency is measured by dates: both tolerate an
/// error of 250 ms. But each period interrupts viewers. Most publishers' clocks need an hour or more
/// to drift by 250 ms, and the samples that begin a stream are seldom so late.
const HELD: i64 = 250_000;
/// How long arrivals are collected before the earliest of them can make a period begin, in
/// microseconds. A network that is slow for some minutes does not look like a clock that drifts.
/// So drift and early arrivals make at most one period begin in this time.
const SPAN: i64 = 1_800_000_000;
/// Number of epochs that are remembered, for tracks that come later than others. No more than some
/// tens of periods begin in a minute, and tracks are not a minute apart.
const REMEMBERED: usize = 32;

/// The dates of a stream. All times are in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Dates {
    /// Periods that began with a new epoch, and their epochs in whole milliseconds. Newest last.
    epochs: VecDeque<(u64, i64)>,
    /// The smallest epoch that arrivals gave in this span, and in the one before, by the clock that
    /// never steps.
    earliest: [i64; 2],
    /// When this span began.
    since: i64,
}

impl Dates {
    /// Begins the stream: the sample of stream time `t` was captured now. `now` is by the clock
    /// that never steps, and the wall clock is `ahead` of it.
    pub(crate) fn begin(&mut self, t: i64, now: i64, ahead: i64) {
        self.earliest = [now.saturating_sub(t); 2];
        self.since = now;
        self.turn(0, ahead);
    }

    /// Goes on with the dates of another machine: the epoch of the newest period.
    pub(crate) fn resume(period: u64, epoch: i64, now: i64, ahead: i64) -> Self {
        let earliest = [epoch.saturating_sub(ahead); 2];
        Self { epochs: VecDeque::from([(period, epoch)]), earliest, since: now }
    }

    /// The epoch of a period, in whole milliseconds. So if a publisher's clock counts milliseconds,
    /// its dates do too, and writing them rounds nothing.
    pub(crate) fn epoch(&self, period: u64) -> i64 {
        let found = self.epochs.iter().rev().find(|&&(from, _)| from <= period);
        found.or(self.epochs.front()).map_or(0, |&(_, epoch)| epoch)
    }

    /// When media presented at stream time `t` of a period were captured.
    pub(crate) fn of(&self, period: u64, t: i64) -> UnixMicros {
        UnixMicros(u64::try_from(self.epoch(period).saturating_add(t)).unwrap_or(0))
    }

    /// Takes the arrival of a sample of stream time `t`.
    pub(crate) fn observe(&mut self, t: i64, now: i64) {
        // `now` is by the clock that never steps, so a step of the wall clock does not look like an
        // early arrival.
        let tells = now.saturating_sub(t);
        if now.saturating_sub(self.since) >= SPAN {
            self.earliest = [tells, self.earliest[0]];
            self.since = now;
        }
        self.earliest[0] = self.earliest[0].min(tells);
    }

    /// Whether the newest epoch is so far off that a period has to begin.
    pub(crate) fn is_off(&self, ahead: i64) -> bool {
        let known = self.earliest[1].saturating_add(ahead);
        self.epochs.back().is_some_and(|&(_, epoch)| known.saturating_sub(epoch).abs() >= HELD)
    }

    /// Begins a period, with the best epoch known.
    pub(crate) fn turn(&mut self, period: u64, ahead: i64) {
        // The span before must not bring the period's epoch back to where it was.
        let best = self.earliest[0].min(self.earliest[1]);
        self.earliest[1] = best;
        let epoch = best.saturating_add(ahead).saturating_add(500).div_euclid(1000) * 1000;
        if self.epochs.back().is_none_or(|&(_, newest)| newest != epoch) {
            self.epochs.push_back((period, epoch));
        }
        if self.epochs.len() > REMEMBERED {
            self.epochs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_700_000_000_000_000;
    const MINUTE: i64 = 60_000_000;

    fn begun() -> Dates {
        let mut dates = Dates::default();
        dates.begin(0, NOON, 0);
        dates
    }

    /// Takes a sample every ten seconds for these minutes, each late by what `late` says for its
    /// stream time. A period begins where one has to. Returns the minutes and epochs of these
    /// periods, the epochs relative to the first.
    fn turns(
        dates: &mut Dates,
        minutes: std::ops::Range<i64>,
        late: impl Fn(i64) -> i64,
    ) -> Vec<(i64, i64)> {
        let mut turns = Vec::new();
        for t in (minutes.start * MINUTE..minutes.end * MINUTE).step_by(10_000_000) {
            dates.observe(t, NOON + t + late(t));
            if dates.is_off(0) {
                let period = turns.len() as u64 + 1;
                dates.turn(period, 0);
                turns.push((t / MINUTE, dates.epoch(period) - NOON));
            }
        }
        turns
    }

    #[test]
    fn a_clock_that_drifts_is_followed_in_few_periods_and_stays_near() {
        for ppm in [-1000, -200, -50, 50, 200, 1000] {
            let late = |t: i64| t / 1_000_000 * ppm;
            let turns = turns(&mut begun(), 0..1440, late);
            let steps = turns.windows(2).map(|pair| (pair[0], pair[1]));
            for ((from, before), (to, after)) in steps.chain([((0, 0), turns[0])]) {
                assert!(to - from >= 29 && (after - before).abs() >= HELD, "{ppm}: {turns:?}");
                // No epoch was ever off by more than this much drift and two spans make up.
                let most = HELD + 2 * SPAN / 1_000_000 * ppm.abs();
                let (least, greatest) = (late(from * MINUTE), late(to * MINUTE));
                let off = (before - least).abs().max((before - greatest).abs());
                assert!(off <= most + 100_000, "{ppm}: {off} in {turns:?}");
            }
        }
    }

    #[test]
    fn a_small_difference_and_a_slow_network_begin_no_period() {
        assert_eq!(turns(&mut begun(), 0..1440, |t| if t > 0 { -249_000 } else { 0 }), []);
        let slow = |t: i64| if (t / MINUTE) % 40 < 29 { 700_000 } else { 0 };
        assert_eq!(turns(&mut begun(), 0..1440, slow), []);
    }

    #[test]
    fn samples_that_come_earlier_than_the_first_begin_one_period_and_not_at_once() {
        let early = |t: i64| if t > 0 { -800_000 } else { 0 };
        let mut dates = begun();
        assert_eq!(turns(&mut dates, 0..1440, early), [(30, -800_000)]);
        // A track that comes later has the old epoch in the old period.
        assert_eq!(dates.epoch(0), NOON);
    }

    #[test]
    fn a_period_for_another_reason_takes_the_best_epoch_and_needs_no_further_one() {
        let mut dates = begun();
        dates.observe(MINUTE, NOON + MINUTE - 800_000);
        assert!(!dates.is_off(0));
        dates.turn(1, 0);
        assert_eq!((dates.epoch(0), dates.epoch(1)), (NOON, NOON - 800_000));
        assert_eq!(turns(&mut dates, 1..1440, |_| -800_000), []);
    }

    #[test]
    fn a_clock_that_was_set_is_followed_with_the_next_period_and_not_before() {
        let mut dates = begun();
        let hour = 60 * MINUTE;
        assert!(!dates.is_off(HELD - 1) && !dates.is_off(1 - HELD));
        assert!(dates.is_off(HELD) && dates.is_off(hour) && dates.is_off(-hour));
        assert_eq!(dates.epoch(1), NOON);
        dates.turn(1, hour);
        assert!(!dates.is_off(hour));
        assert_eq!((dates.epoch(0), dates.epoch(1)), (NOON, NOON + hour));
    }

    #[test]
    fn only_the_newest_epochs_are_remembered() {
        let mut dates = begun();
        for period in 1..100_000 {
            dates.turn(period, period as i64 * 1000);
        }
        assert_eq!(dates.epochs.len(), REMEMBERED);
        assert_eq!(dates.epoch(99_999), NOON + 99_999_000);
        assert_eq!(dates.epoch(0), dates.epoch(99_968));
    }
}
