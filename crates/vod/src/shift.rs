use std::time::Duration;

/// A title's time where several timescales measure it: whole units of `1 / per_second`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shift {
    /// Units.
    pub units: u64,
    /// Units in a second; a divisor of every track's timescale, so that the moment is the same
    /// in each.
    pub per_second: u32,
}

impl Shift {
    /// The smallest that brings all these times (each with its timescale) to 0 or later.
    pub(crate) fn covering(times: impl Iterator<Item = (i64, u32)> + Clone) -> Self {
        let divisor = times.clone().map(|(_, timescale)| timescale).reduce(|a, b| {
            let (mut a, mut b) = (a, b);
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        });
        let per_second = divisor.unwrap_or(1).max(1);
        let needed = |(time, timescale): (i64, u32)| {
            let late = i128::from(time).min(0).unsigned_abs() * u128::from(per_second);
            u64::try_from(late.div_ceil(timescale.max(1).into())).unwrap_or(u64::MAX)
        };
        Self { units: times.map(needed).max().unwrap_or_default(), per_second }
    }

    /// In units of a track's timescale.
    pub fn in_timescale(self, timescale: u32) -> i64 {
        let each = u64::from(timescale / self.per_second.max(1));
        i64::try_from(self.units.saturating_mul(each)).unwrap_or(i64::MAX)
    }

    /// As a duration, rounded down to the nanosecond.
    pub fn duration(self) -> Duration {
        let nanos = u128::from(self.units) * 1_000_000_000 / u128::from(self.per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_is_the_same_moment_in_every_timescale() {
        let shift = Shift::covering([(-1_024, 48_000), (-1_024, 12_288)].into_iter());
        // A twelfth of a second.
        assert_eq!((shift.units, shift.per_second), (32, 384));
        assert_eq!((shift.in_timescale(48_000), shift.in_timescale(12_288)), (4_000, 1_024));
        assert_eq!(shift.duration(), Duration::from_nanos(83_333_333));
        assert_eq!(Shift::covering([(5, 90_000)].into_iter()).units, 0);
        assert_eq!(Shift::covering([(-1, 44_100), (0, 1_001)].into_iter()).per_second, 7);
        assert_eq!(Shift::covering(std::iter::empty()).in_timescale(90_000), 0);
    }
}
