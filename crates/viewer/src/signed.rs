//! A histogram of values of either sign.

use hdrhistogram::{AdditionError, Counter, CreationError, Histogram};

/// A histogram of values of either sign: a latency between two clocks that disagree is below 0. A
/// [`Histogram`] counts only values of 0 and more.
#[derive(Debug, Clone)]
pub struct Signed<C: Counter> {
    /// All values, those below 0 as 0.
    clamped: Histogram<C>,
    /// How far values are below 0. Made with the first one: most runs have none.
    below: Option<Box<Histogram<C>>>,
}

impl<C: Counter> Signed<C> {
    /// Makes an empty histogram. Values further from 0 than `longest` count as that far from it. All values are
    /// exact to `digits` digits.
    ///
    /// # Errors
    /// hdrhistogram has no such range or precision.
    pub fn new(longest: u64, digits: u8) -> Result<Self, CreationError> {
        Ok(Self { clamped: Histogram::new_with_bounds(1, longest, digits)?, below: None })
    }

    /// Records a value.
    pub fn record(&mut self, value: i64) {
        self.clamped.saturating_record(value.max(0).unsigned_abs());
        if value < 0 {
            let below =
                self.below.get_or_insert_with(|| Box::new(Histogram::new_from(&self.clamped)));
            below.saturating_record(value.unsigned_abs());
        }
    }

    /// Adds the values of a histogram without any below 0.
    ///
    /// # Errors
    /// One of them is beyond the range.
    pub fn add(&mut self, values: &Histogram<C>) -> Result<(), AdditionError> {
        self.clamped.add(values)
    }

    /// All values, those below 0 as 0.
    pub fn clamped(&self) -> &Histogram<C> {
        &self.clamped
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.clamped.len()
    }

    /// The smallest value. 0 if there is none.
    pub fn min(&self) -> i64 {
        self.below.as_ref().map_or_else(|| signed(self.clamped.min()), |below| -signed(below.max()))
    }

    /// The largest value. 0 if there is none.
    pub fn max(&self) -> i64 {
        match &self.below {
            Some(below) if below.len() == self.count() => -signed(below.min()),
            _ => signed(self.clamped.max()),
        }
    }

    /// The mean. 0 if there is no value.
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52 values")]
    pub fn mean(&self) -> f64 {
        let below = self.below.as_ref().map_or(0.0, |below| below.mean() * below.len() as f64);
        self.clamped.mean() - below / (self.count().max(1)) as f64
    }

    /// The value that a share `quantile` of all values does not exceed. 0 if there is no value.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "fewer than 2^52 values, and a share is at least 0"
    )]
    pub fn at(&self, quantile: f64) -> i64 {
        let rank = (quantile * self.count() as f64).ceil().max(1.0) as u64;
        match &self.below {
            // The smallest value is the one furthest below 0.
            Some(below) if rank <= below.len() => {
                let furthest = (below.len() - rank) as f64 + 0.5;
                -signed(below.value_at_quantile(furthest / below.len() as f64))
            }
            _ => signed(self.clamped.value_at_quantile(quantile)),
        }
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_sorted_values() {
        for values in [
            vec![-5, -3, -3, 0, 2, 4, 9],
            vec![-7, -1],
            vec![0],
            vec![3, 8],
            (-40..=60).collect(),
            (-300..-200).collect(),
        ] {
            let mut histogram = Signed::<u64>::new(1000, 3).unwrap();
            values.iter().rev().for_each(|value| histogram.record(*value));
            let (count, sum) = (values.len(), values.iter().sum::<i64>());
            assert_eq!(histogram.count(), count as u64);
            assert_eq!((histogram.min(), histogram.max()), (values[0], values[count - 1]));
            assert!((histogram.mean() - sum as f64 / count as f64).abs() < 1e-9, "{values:?}");
            for share in (0..=64).map(|parts| f64::from(parts) / 64.0) {
                let rank = (share * count as f64).ceil().max(1.0) as usize;
                assert_eq!(histogram.at(share), values[rank - 1], "{share} of {values:?}");
            }
        }
    }

    #[test]
    fn values_out_of_range_count_as_its_ends() {
        let mut histogram = Signed::<u32>::new(1000, 1).unwrap();
        assert_eq!((histogram.at(0.5), histogram.min(), histogram.max()), (0, 0, 0));
        assert!(histogram.mean().abs() < 1e-9);
        for value in [i64::MIN, i64::MAX] {
            histogram.record(value);
        }
        let far = 900..1100;
        assert!(far.contains(&-histogram.min()) && far.contains(&histogram.max()), "{histogram:?}");
    }
}
