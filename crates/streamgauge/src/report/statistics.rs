//! Summaries of repeated measurements.

/// A summary of several values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) count: usize,
}

impl Summary {
    /// Summarises the finite values; `None` if there are none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let upper = values[middle];
        // Halved before adding, so that the largest numbers have a mean, too.
        let median =
            if values.len() % 2 == 1 { upper } else { values[middle - 1] / 2.0 + upper / 2.0 };
        Some(Self { median, min, max, count: values.len() })
    }

    /// Whether smallest and largest value differ by more than this share of the median.
    pub(super) fn spreads_beyond(&self, share: f64) -> bool {
        self.count > 1 && self.max - self.min > share * self.median.abs()
    }
}

/// Where a quantity along x crosses its threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Inflexion {
    /// Here, between the last point that passed and the first that failed.
    At(f64),
    /// Every point passed; this is the last.
    Beyond(f64),
    /// No point passed before this, the first.
    Before(f64),
}

/// Finds the inflexion point of points (x, y) in rising order of x. It interpolates linearly
/// between the last point that passed and the first that failed. With `more`, y must not be below
/// the threshold; otherwise it must not be above.
pub(super) fn inflexion(points: &[(f64, f64)], threshold: f64, more: bool) -> Option<Inflexion> {
    let margin = |y: f64| if more { y - threshold } else { threshold - y };
    let failed = points.iter().position(|(_, y)| margin(*y) < 0.0);
    match failed {
        None => points.last().map(|(last, _)| Inflexion::Beyond(*last)),
        Some(0) => points.first().map(|(first, _)| Inflexion::Before(*first)),
        Some(at) => {
            let (held, failed) = (points[at - 1], points[at]);
            let (over, under) = (margin(held.1), -margin(failed.1));
            Some(Inflexion::At(held.0 + (failed.0 - held.0) * (over / (over + under))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let summary = Summary::of([3.0, f64::NAN, 1.0, 2.0]).unwrap();
        assert_eq!(summary, Summary { median: 2.0, min: 1.0, max: 3.0, count: 3 });
        assert_eq!(Summary::of([1.0, 4.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of([f64::MAX, f64::MAX]).unwrap().median, f64::MAX);
        assert_eq!(Summary::of([f64::INFINITY]), None);
    }

    #[test]
    fn spread_is_of_the_median() {
        assert!(!Summary::of([100.0, 110.0, 95.0]).unwrap().spreads_beyond(0.15));
        assert!(Summary::of([100.0, 110.0, 94.0]).unwrap().spreads_beyond(0.15));
        assert!(!Summary::of([0.0, 0.0]).unwrap().spreads_beyond(0.15));
        assert!(!Summary::of([5.0]).unwrap().spreads_beyond(0.0));
    }

    #[test]
    fn inflexions_are_interpolated() {
        let falling = [(100.0, 400.0), (200.0, 200.0), (300.0, 50.0)];
        let Some(Inflexion::At(x)) = inflexion(&falling, 100.0, true) else { panic!() };
        assert!((x - 266.666).abs() < 0.01, "{x}");
        // A latency: values above the threshold fail.
        let rising = [(1.0, 10.0), (2.0, 20.0), (3.0, 40.0)];
        assert_eq!(inflexion(&rising, 30.0, false), Some(Inflexion::At(2.5)));
        // A value equal to the threshold passes.
        assert_eq!(inflexion(&rising, 30.0, true), Some(Inflexion::Before(1.0)));
        assert_eq!(inflexion(&[(1.0, 9.0), (2.0, 9.0)], 9.0, true), Some(Inflexion::Beyond(2.0)));
        assert_eq!(inflexion(&[], 1.0, true), None);
    }

    #[test]
    fn a_server_that_recovers_has_failed() {
        let points = [(1.0, 10.0), (2.0, 0.0), (3.0, 10.0)];
        assert_eq!(inflexion(&points, 5.0, true), Some(Inflexion::At(1.5)));
    }
}
