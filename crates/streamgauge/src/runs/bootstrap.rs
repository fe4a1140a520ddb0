//! How sure a change between repeated measurements is: the bootstrap.
//!
//! The repetitions of both runs are drawn anew many times, with replacement, and the change between
//! the medians or means of what was drawn is computed each time. The interval holds the middle of these
//! changes (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). The drawing
//! has a fixed seed, so that the same runs always give the same interval.

use super::statistics::Summary;
use crate::random::{below, mix};

/// How many times repetitions are drawn anew.
pub(crate) const RESAMPLES: u32 = 2000;
/// The share of the changes that the interval holds.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// What is computed of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistic {
    /// The value in the middle.
    Median,
    /// The mean: of values that are 0 or 1, the share of those that are 1.
    Mean,
}

impl Statistic {
    /// `None` of no values.
    pub(crate) fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Median => Summary::of(values.iter().copied()).map(|summary| summary.median),
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            Self::Mean if !values.is_empty() => {
                Some(values.iter().sum::<f64>() / values.len() as f64)
            }
            Self::Mean => None,
        }
    }
}

/// The relative change from one value to another: 0.1 for a tenth more. From 0 to anything else it
/// is infinite.
pub(crate) fn change(before: f64, after: f64) -> f64 {
    if before == after { 0.0 } else { (after - before) / before.abs() }
}

/// The interval of the relative change between the statistics of two samples, from its lower to its
/// upper end. `None` if one of the samples has fewer than two values: one value tells nothing about
/// its spread.
///
/// With two or three values in each sample, the interval of medians reaches from the smallest to the largest
/// change between any value before and any value after.
pub(crate) fn interval(before: &[f64], after: &[f64], statistic: Statistic) -> Option<(f64, f64)> {
    if before.len() < 2 || after.len() < 2 {
        return None;
    }
    let mut drawn = 0;
    let mut of = |sample: &[f64]| {
        let values = sample.iter().map(|_| {
            drawn += 1;
            sample[below(mix(drawn), sample.len() as u64) as usize]
        });
        statistic.of(&values.collect::<Vec<_>>())
    };
    let mut changes = Vec::new();
    for _ in 0..RESAMPLES {
        changes.push(change(of(before)?, of(after)?));
    }
    changes.sort_by(f64::total_cmp);
    // As many changes lie below the interval as above it.
    let outside = (f64::from(RESAMPLES) * (1.0 - CONFIDENCE) / 2.0).floor() as usize;
    Some((*changes.get(outside)?, *changes.get(changes.len() - 1 - outside)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(interval(&[1.0], &[1.0, 2.0], Statistic::Median), None);
        assert_eq!(interval(&[1.0, 2.0], &[], Statistic::Median), None);
    }

    #[test]
    fn few_values_give_the_whole_range() {
        let (low, high) = interval(&[100.0, 110.0], &[120.0, 150.0], Statistic::Median).unwrap();
        assert_eq!((low, high), (change(110.0, 120.0), change(100.0, 150.0)));
        let (low, high) =
            interval(&[100.0, 104.0, 110.0], &[120.0, 130.0, 150.0], Statistic::Median).unwrap();
        assert_eq!((low, high), (change(110.0, 120.0), change(100.0, 150.0)));
    }

    /// Two of five may fail by chance where none did before: a bootstrap draws none of them once in
    /// 13 times. Three of five hardly can.
    #[test]
    fn a_share_is_a_mean() {
        let none = [0.0; 5];
        let two = interval(&none, &[1.0, 0.0, 1.0, 0.0, 0.0], Statistic::Mean);
        assert_eq!(two, Some((0.0, f64::INFINITY)));
        let three = interval(&none, &[1.0, 0.0, 1.0, 0.0, 1.0], Statistic::Mean);
        assert_eq!(three, Some((f64::INFINITY, f64::INFINITY)));
        assert_eq!(Statistic::Mean.of(&[1.0, 0.0, 1.0, 0.0]), Some(0.5));
        assert_eq!(Statistic::Mean.of(&[]), None);
    }

    #[test]
    fn equal_values_have_no_spread() {
        assert_eq!(interval(&[4.0; 5], &[5.0; 5], Statistic::Median), Some((0.25, 0.25)));
        assert_eq!(interval(&[0.0; 3], &[0.0; 3], Statistic::Median), Some((0.0, 0.0)));
        assert_eq!(
            interval(&[0.0; 3], &[2.0; 3], Statistic::Median),
            Some((f64::INFINITY, f64::INFINITY))
        );
        // Of a value below 0, a rise is a rise.
        assert_eq!(interval(&[-4.0; 2], &[-3.0; 2], Statistic::Median), Some((0.25, 0.25)));
    }

    #[test]
    fn the_same_values_always_give_the_same_interval() {
        let (before, after) = ([9.0, 11.0, 10.0, 10.5, 9.5], [10.0, 12.0, 11.0, 11.5, 10.2]);
        let of = || interval(&before, &after, Statistic::Median);
        assert_eq!(of(), of());
    }

    /// The spread of a median is known: of n values from a normal distribution, it is 1.253 times
    /// that of the mean (Kenney and Keeping, Mathematics of Statistics, 1962, 10.10).
    #[test]
    fn the_width_is_that_of_medians() {
        let sample = |from: u64, centre: f64| -> Vec<f64> {
            (0..400).map(|number| centre + normal(from + number)).collect()
        };
        let (low, high) =
            interval(&sample(0, 100.0), &sample(1000, 100.0), Statistic::Median).unwrap();
        let expected = 2.0 * 1.96 * 1.253 * (2.0_f64 / 400.0).sqrt() / 100.0;
        let width = high - low;
        assert!((0.7..1.4).contains(&(width / expected)), "{width} of {expected}");
    }

    #[test]
    fn the_true_change_is_as_often_inside_as_is_said() {
        let (runs, size) = (200, 9);
        let mut inside = 0;
        for run in 0..runs {
            let sample = |from: u64, centre: f64| -> Vec<f64> {
                (0..size).map(|number| centre + normal(from + number)).collect()
            };
            let from = 1000 + run * 4 * size;
            let before = sample(from, 100.0);
            let after = sample(from + 2 * size, 110.0);
            let (low, high) = interval(&before, &after, Statistic::Median).unwrap();
            inside += u32::from((low..=high).contains(&0.1));
        }
        let share = f64::from(inside) / runs as f64;
        assert!((0.9..=1.0).contains(&share), "{share}");
    }

    /// A value of the normal distribution: the sum of twelve uniform ones, less 6.
    fn normal(number: u64) -> f64 {
        let uniform = |turn: u64| (mix(mix(number) ^ turn) >> 11) as f64 / (1_u64 << 53) as f64;
        (0..12).map(uniform).sum::<f64>() - 6.0
    }
}
