//! Times in different timescales. Nothing here overflows: results that do not fit are clamped.

use std::time::Duration;

const NANOS: i128 = 1_000_000_000;

fn clamp(time: i128) -> i64 {
    time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// A duration in units of a timescale, rounded down.
pub(crate) fn ticks(time: Duration, timescale: u32) -> i64 {
    let nanos = i128::try_from(time.as_nanos()).unwrap_or(i128::MAX / i128::from(u32::MAX));
    clamp(nanos * i128::from(timescale) / NANOS)
}

/// A duration of `time` units of a timescale, rounded down; zero where `time` is negative.
pub(crate) fn duration(time: i64, timescale: u32) -> Duration {
    let nanos = i128::from(time.max(0)) * NANOS / i128::from(timescale.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Converts `time` from timescale `from` to timescale `to`, rounded up.
pub(crate) fn rescale_up(time: i64, from: u32, to: u32) -> i64 {
    let from = i128::from(from.max(1));
    clamp(-(-i128::from(time) * i128::from(to)).div_euclid(from))
}

/// Whether `a` is before `b`, each with its timescale.
pub(crate) fn before(a: (i64, u32), b: (i64, u32)) -> bool {
    i128::from(a.0) * i128::from(b.1) < i128::from(b.0) * i128::from(a.1)
}

/// The first multiple of `step` after `time`; `step` is positive.
pub(crate) fn multiple_after(time: i64, step: i64) -> i64 {
    let step = i128::from(step.max(1));
    clamp((i128::from(time).div_euclid(step) + 1) * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_as_said_and_never_overflow() {
        assert_eq!(ticks(Duration::from_millis(1_001), 30_000), 30_030);
        assert_eq!(ticks(Duration::MAX, u32::MAX), i64::MAX);
        assert_eq!(duration(30_030, 30_000), Duration::from_millis(1_001));
        assert_eq!(duration(-5, 10), Duration::ZERO);
        assert_eq!(duration(i64::MAX, 1), Duration::from_nanos(u64::MAX));
        assert_eq!(rescale_up(1, 3, 10), 4);
        assert_eq!(rescale_up(-1, 3, 10), -3);
        assert_eq!(rescale_up(3, 3, 10), 10);
        assert_eq!(rescale_up(i64::MIN, 1, u32::MAX), i64::MIN);
        assert!(before((1, 3), (1, 2)) && !before((2, 4), (1, 2)));
        assert_eq!(multiple_after(0, 10), 10);
        assert_eq!(multiple_after(9, 10), 10);
        assert_eq!(multiple_after(-1, 10), 0);
        assert_eq!(multiple_after(i64::MAX, 2), i64::MAX);
    }
}
