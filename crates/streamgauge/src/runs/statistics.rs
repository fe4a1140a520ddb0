//! Summaries of repeated measurements.

/// A summary of several values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl Summary {
    /// Summarises the finite values; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
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
    pub(crate) fn spreads_beyond(&self, share: f64) -> bool {
        self.count > 1 && self.max - self.min > share * self.median.abs()
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
}
