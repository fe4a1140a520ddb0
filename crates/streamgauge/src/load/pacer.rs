//! The schedule of an open loop, separate from the worker that follows it.
//!
//! The time of a request depends on its number alone. A stall of the server or of the generator
//! does not change when later requests are due. Every wait counts from the time when the request
//! should have been sent. So there is no coordinated omission, and no figure has to be corrected
//! afterwards.

use std::time::Duration;

/// One worker's part of a constant rate: requests `lane`, `lane + lanes`, … of the whole.
///
/// Times are in nanoseconds since the start of the run.
#[derive(Debug, Clone)]
pub struct Schedule {
    per_second: f64,
    total: u64,
    next: u64,
    lanes: u64,
}

impl Schedule {
    /// Makes part `lane` of `lanes` (at least 1) of `total` requests at `per_second`.
    pub fn new(per_second: f64, total: u64, lane: u64, lanes: u64) -> Self {
        Self { per_second, total, next: lane, lanes: lanes.max(1) }
    }

    /// How many requests of a constant rate lie within `duration`. The first is due at 0. A request
    /// that is due exactly at the end does not count.
    pub fn requests_in(per_second: f64, duration: Duration) -> u64 {
        // 5 s at 100 per second are 500, even if the product is rounded.
        let exact = per_second * duration.as_secs_f64();
        let whole = exact.round();
        let count = if (exact - whole).abs() < 1e-6 { whole } else { exact.ceil() };
        count as u64
    }

    /// When request number `number` of the whole is due.
    fn due_at(&self, number: u64) -> u64 {
        // f64 holds nanoseconds exactly for 104 days.
        (number as f64 * 1e9 / self.per_second) as u64
    }

    /// When the next request is due, if there is one.
    pub fn next_due(&self) -> Option<u64> {
        (self.next < self.total).then(|| self.due_at(self.next))
    }

    /// Takes the next request if it is due at `now`; returns its number and time. Call it until it
    /// returns `None`: after a stall several requests are due, each at its own time.
    pub fn take_due(&mut self, now: u64) -> Option<(u64, u64)> {
        let due = self.next_due().filter(|due| *due <= now)?;
        let number = self.next;
        self.next += self.lanes;
        Some((number, due))
    }

    /// How many requests of this part have not been taken.
    pub fn left(&self) -> u64 {
        self.total.saturating_sub(self.next).div_ceil(self.lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn times_depend_on_the_number_alone() {
        let mut schedule = Schedule::new(100.0, 5, 0, 1);
        assert_eq!(schedule.take_due(0), Some((0, 0)));
        assert_eq!(schedule.take_due(9 * MS), None);
        assert_eq!(schedule.next_due(), Some(10 * MS));
        // The worker stood still for 35 ms: three more requests are due, at their own times.
        let due: Vec<_> = std::iter::from_fn(|| schedule.take_due(45 * MS)).collect();
        assert_eq!(due, [(1, 10 * MS), (2, 20 * MS), (3, 30 * MS), (4, 40 * MS)]);
        assert_eq!((schedule.next_due(), schedule.left()), (None, 0));
    }

    #[test]
    fn lanes_divide_the_whole_without_loss_or_repetition() {
        let mut all = Vec::new();
        for lane in 0..3 {
            let mut schedule = Schedule::new(1e6, 1000, lane, 3);
            let left = schedule.left();
            let taken: Vec<_> = std::iter::from_fn(|| schedule.take_due(u64::MAX)).collect();
            assert_eq!(taken.len() as u64, left);
            all.extend(taken);
        }
        all.sort_unstable();
        assert_eq!(all.len(), 1000);
        for (number, (found, due)) in (0..).zip(&all) {
            assert_eq!((*found, *due), (number, number * 1000));
        }
    }

    #[test]
    fn a_duration_holds_whole_requests() {
        let requests = |rate, ms| Schedule::requests_in(rate, Duration::from_millis(ms));
        assert_eq!(requests(100.0, 5000), 500);
        assert_eq!(requests(0.5, 3000), 2);
        assert_eq!(requests(0.1, 1000), 1);
        assert_eq!(requests(1000.0 / 3.0, 3000), 1000);
        assert_eq!(requests(100.0, 0), 0);
    }

    #[test]
    fn a_rate_does_not_drift_over_a_day() {
        let schedule = Schedule::new(30.0, u64::MAX, 0, 1);
        assert_eq!(schedule.due_at(30 * 86_400), 86_400_000 * MS);
    }
}
