//! Axes: their range, their ticks, and the places of values on the page.

use crate::number;

/// Larger values are not drawn. They are damage, and nothing else would be visible.
pub(super) const LARGEST: f64 = 1e15;

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
    /// For a share q of all values: 1/(1-q) on a logarithmic scale, 90 %, 99 %, 99.9 % …
    Percentile,
}

/// The description of an axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    /// Its title, with the unit.
    pub(super) title: String,
    pub(super) scale: Scale,
    /// The range that it must show; `None` for the range of the values.
    pub(super) range: Option<(f64, f64)>,
    /// Whether a linear axis begins at 0 in any case.
    pub(super) from_zero: bool,
    /// Whether a linear axis ends at the last value, not at a tick.
    pub(super) exact: bool,
}

/// An axis on the page.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    scale: Scale,
    low: f64,
    high: f64,
    pub(super) from: f64,
    pub(super) to: f64,
    /// Values with their labels. A label may be empty, for a line only.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// How long a range of values is on this axis.
    pub(super) fn length(&self, (low, high): (f64, f64)) -> f64 {
        match self.scale {
            Scale::Linear if self.from_zero => high.max(0.0) - low.min(0.0),
            Scale::Linear => high - low,
            Scale::Log | Scale::Percentile => (high / low).ln(),
        }
    }

    /// Places the axis, with about `count` ticks. `drawn` are the values on it.
    pub(super) fn place(
        &self,
        drawn: impl Iterator<Item = f64>,
        (from, to): (f64, f64),
        count: usize,
    ) -> Placed {
        let (low, high) = self.range.unwrap_or_else(|| range(drawn, self.scale));
        let (low, high, ticks) = match self.scale {
            Scale::Linear => linear((low, high), self.from_zero, self.exact, count),
            // Labels of powers of ten are short, and there are few of them.
            Scale::Log => logarithmic(low, high, count + count / 2),
            Scale::Percentile => percentiles(high),
        };
        Placed { scale: self.scale, low, high, from, to, ticks }
    }
}

impl Placed {
    /// Place of a value. A value beyond the axis is at its end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let along = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log | Scale::Percentile => {
                (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        let along = if along.is_finite() { along.clamp(0.0, 1.0) } else { 0.0 };
        self.from + along * (self.to - self.from)
    }
}

/// The range of the values that the scale can show; a default range if there are none.
pub(super) fn range(values: impl Iterator<Item = f64>, scale: Scale) -> (f64, f64) {
    let shown = values.filter(|value| is_shown(*value, scale));
    let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low <= high { (low, high) } else { (1.0, 10.0) }
}

/// Whether the scale can show a value.
pub(super) fn is_shown(value: f64, scale: Scale) -> bool {
    let positive = scale == Scale::Linear || value > 0.0;
    value.is_finite() && value.abs() <= LARGEST && positive
}

/// Divides a linear axis into steps of 1, 2 or 5 times a power of ten.
fn linear(
    (low, high): (f64, f64),
    from_zero: bool,
    exact: bool,
    count: usize,
) -> (f64, f64, Vec<(f64, String)>) {
    let mut low = if from_zero || (low > 0.0 && low <= high / 4.0) { low.min(0.0) } else { low };
    let mut high = high;
    let least = 1e-9_f64.max(low.abs().max(high.abs()) * 1e-6);
    if high - low < least {
        // A single value: the axis goes from 0 to it, or around 0.
        (low, high) = if high.abs() < least { (0.0, 1.0) } else { (low.min(0.0), high.max(0.0)) };
    }
    let step = step((high - low) / count.max(2) as f64);
    let (first, last) = if exact {
        ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor())
    } else {
        ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil())
    };
    let mut ticks = Vec::new();
    let mut at = first;
    while at <= last && ticks.len() < 50 {
        ticks.push((at * step, number::plain(at * step)));
        at += 1.0;
    }
    if exact { (low, high, ticks) } else { (first * step, last * step, ticks) }
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `rough`.
fn step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Divides a logarithmic axis at powers of ten. If there are few, it adds 2 and 5; if there are
/// many, only some have labels.
fn logarithmic(low: f64, high: f64, count: usize) -> (f64, f64, Vec<(f64, String)>) {
    let low = low.max(1e-9);
    let high = high.max(low);
    let between: &[f64] = &[1.0, 2.0, 5.0];
    let (first, last) = (low.log10().floor(), high.log10().ceil());
    let mut steps = Vec::new();
    let mut power = first;
    while power <= last {
        steps.extend(between.iter().map(|factor| (*factor, power, factor * 10_f64.powf(power))));
        power += 1.0;
    }
    // The axis ends at steps: at the last one not above, and the first one not below.
    let start = steps.iter().rposition(|step| step.2 <= low * 1.000_001).unwrap_or(0);
    let end = steps.iter().position(|step| step.2 >= high * 0.999_999).unwrap_or(steps.len() - 1);
    let end = end.max(start + 1).min(steps.len() - 1);
    let start = start.min(end - 1);
    let shown = &steps[start..=end];
    let decades = shown.iter().filter(|step| step.0 == 1.0).count();
    let every = decades.div_ceil(count.max(2)).max(1);
    let few = shown.len() <= count + 2;
    let mut ticks = Vec::new();
    let mut decade = 0;
    for (factor, _, value) in shown {
        let mut labelled = few;
        if *factor == 1.0 {
            labelled = decade % every == 0;
            decade += 1;
        } else if !few {
            continue;
        }
        ticks.push((*value, if labelled { number::plain(*value) } else { String::new() }));
    }
    (shown[0].2, shown[shown.len() - 1].2, ticks)
}

/// Divides an axis of percentiles, from all values to one in `high`.
fn percentiles(high: f64) -> (f64, f64, Vec<(f64, String)>) {
    let high = high.clamp(10.0, 1e9);
    let mut ticks = vec![(1.0, "0 %".to_owned()), (2.0, "50 %".to_owned())];
    let mut at = 10.0;
    let mut digits = 0;
    while at <= high * 1.000_001 {
        ticks.push((at, format!("{:.*} %", digits, 100.0 - 100.0 / at)));
        digits = if at < 50.0 { 0 } else { digits + 1 };
        at *= 10.0;
    }
    (1.0, high, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(scale: Scale, values: &[f64], count: usize) -> Placed {
        let axis =
            Axis { title: String::new(), scale, range: None, from_zero: false, exact: false };
        axis.place(values.iter().copied(), (0.0, 100.0), count)
    }

    fn labels(placed: &Placed) -> Vec<&str> {
        placed.ticks.iter().map(|(_, label)| label.as_str()).filter(|l| !l.is_empty()).collect()
    }

    #[test]
    fn ticks_are_round() {
        let axis = placed(Scale::Linear, &[100.0, 2000.0], 5);
        assert_eq!(labels(&axis), ["0", "500", "1,000", "1,500", "2,000"]);
        assert_eq!((axis.at(0.0), axis.at(1000.0), axis.at(9e9)), (0.0, 50.0, 100.0));
        assert_eq!(labels(&placed(Scale::Linear, &[7.0], 4)), ["0", "2", "4", "6", "8"]);
        assert_eq!(labels(&placed(Scale::Linear, &[0.0], 2)), ["0", "0.5", "1"]);
        assert_eq!(labels(&placed(Scale::Linear, &[], 2)), ["0", "5", "10"]);
    }

    #[test]
    fn exact_axes_end_with_what_is_drawn() {
        let axis = Axis {
            title: String::new(),
            scale: Scale::Linear,
            range: None,
            from_zero: true,
            exact: true,
        };
        let axis = axis.place([1.0, 612.0].into_iter(), (0.0, 612.0), 4);
        assert_eq!(labels(&axis), ["0", "200", "400", "600"]);
        assert_eq!(axis.at(600.0), 600.0);
    }

    #[test]
    fn logarithms() {
        let axis = placed(Scale::Log, &[0.3, 800.0], 5);
        assert_eq!(labels(&axis), ["1", "10", "100", "1,000"].map(|l| l)[..4].to_vec());
        assert_eq!(
            labels(&placed(Scale::Log, &[100.0, 1000.0], 5)),
            ["100", "200", "500", "1,000"]
        );
        let one = placed(Scale::Log, &[5.0], 5);
        assert!(one.at(5.0).is_finite() && labels(&one).len() >= 2);
    }

    #[test]
    fn percentiles_by_what_is_left() {
        let axis = placed(Scale::Percentile, &[20_000.0], 5);
        assert_eq!(labels(&axis), ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }

    #[test]
    fn whatever_is_shown_has_a_place() {
        let extreme = [f64::MAX, -1e300, 0.0, 1e-300, 1e15, -1e15, f64::NAN, 1e-7, 3.0];
        for scale in [Scale::Linear, Scale::Log, Scale::Percentile] {
            for value in extreme {
                let axis = placed(scale, &[value, 3.0], 5);
                for at in extreme {
                    let place = axis.at(at);
                    assert!((0.0..=100.0).contains(&place), "{scale:?} {value} {at} {place}");
                }
                assert!(axis.ticks.len() <= 60, "{scale:?} {value}");
                assert!(axis.ticks.iter().all(|(value, _)| value.is_finite()));
            }
        }
    }
}
