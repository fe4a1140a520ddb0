//! Compares one figure of both runs: how much it changed, and whether that is better or worse.

use crate::lab::scenario::Better;
use crate::runs::bootstrap::Statistic;
use crate::runs::marks::marks;
use crate::runs::{Kept, bootstrap, metric};

use super::document::{Change, FAILED, Sample, Verdict};
use super::pairs::Pair;

/// Errors for each hundred requests, or for each hundred viewers where no requests are counted. A server that answers
/// more requests in the same time may fail more of them, and is no worse for that.
const ERRORS: &str = "errors_percent";
/// What a load that finds out how many viewers a server serves is compared by, if it did not end with the same number
/// of viewers everywhere. All other figures are of its last step, which more viewers make harder.
const OF_ANY_SIZE: [&str; 2] = ["capacity", FAILED];

/// The marks of figures that are not to be trusted.
const DOUBTFUL: [char; 3] = ['†', '‡', '¶'];

/// What a change is judged by.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// Changes up to this share are none.
    pub(super) threshold: f64,
    /// Whether figures without an interval are judged, too.
    pub(super) single: bool,
    /// Only these metrics; all if there are none.
    pub(super) metrics: Vec<String>,
}

/// The metrics that can be compared, and which of their values are better.
pub(super) fn metrics() -> impl Iterator<Item = (&'static str, Better)> {
    metric::compared().chain([(ERRORS, Better::Less), (FAILED, Better::Less)])
}

impl Rule {
    /// Compares all figures that both sides of a pair have.
    pub(super) fn judge(&self, pair: &Pair<'_>) -> Vec<Change> {
        let is_wanted =
            |name: &str| self.metrics.is_empty() || self.metrics.iter().any(|m| m == name);
        let sizes = pair.sizes();
        let fits = |name: &str| sizes.is_none() || OF_ANY_SIZE.contains(&name);
        let metrics = metrics().filter(|(name, _)| is_wanted(name) && fits(name));
        metrics.filter_map(|(name, better)| self.change(pair, name, better)).collect()
    }

    fn change(&self, pair: &Pair<'_>, name: &str, better: Better) -> Option<Change> {
        let (before, after) = (values(&pair.before, name), values(&pair.after, name));
        // Of repetitions that failed or did not, the mean is the share.
        let statistic = if name == FAILED { Statistic::Mean } else { Statistic::Median };
        let (earlier, later) = (statistic.of(&before)?, statistic.of(&after)?);
        if name == FAILED && earlier == 0.0 && later == 0.0 {
            return None;
        }
        let change = bootstrap::change(earlier, later);
        let interval = bootstrap::interval(&before, &after, statistic);
        let judged = interval.or(self.single.then_some((change, change)));
        let verdict = judged.map_or(Verdict::Single, |ends| self.verdict(ends, better));
        let marks = match name {
            FAILED => String::new(),
            ERRORS => both_marks(pair, "errors"),
            _ => both_marks(pair, name),
        };
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        Some(Change {
            load: pair.load.to_owned(),
            case: pair.case(),
            peer: pair.peer.to_owned(),
            metric: name.to_owned(),
            better,
            before: Sample { median: earlier, values: before },
            after: Sample { median: later, values: after },
            change: finite(change),
            interval: interval.map(|(low, high)| (finite(low), finite(high))),
            verdict,
            doubtful: marks.contains(DOUBTFUL),
            marks,
        })
    }

    /// Judges an interval of relative changes by where it lies: beyond the threshold on one side,
    /// within it on both sides, or across it.
    fn verdict(&self, (low, high): (f64, f64), better: Better) -> Verdict {
        let (least_harm, most_harm) = match better {
            Better::Less => (low, high),
            Better::More => (-high, -low),
        };
        if least_harm > self.threshold {
            Verdict::Worse
        } else if most_harm < -self.threshold {
            Verdict::Better
        } else if least_harm >= -self.threshold && most_harm <= self.threshold {
            Verdict::Same
        } else {
            Verdict::Unclear
        }
    }
}

/// The values of a metric in the repetitions that have it.
fn values(trials: &[&Kept], name: &str) -> Vec<f64> {
    let value = |kept: &&Kept| match name {
        FAILED => Some(f64::from(u8::from(kept.trial.failed.is_some()))),
        ERRORS => {
            let positive = |name| kept.metric(name).filter(|count| *count > 0.0);
            let of = positive("requests").or_else(|| positive("clients"))?;
            Some(kept.metric("errors")? / of * 100.0)
        }
        name => kept.metric(name),
    };
    trials.iter().filter_map(value).collect()
}

/// The marks of both sides. Each side is marked alone: that both differ is no noise.
fn both_marks(pair: &Pair<'_>, name: &str) -> String {
    let mut all = marks(&pair.before, name);
    let new: Vec<char> = marks(&pair.after, name).chars().filter(|m| !all.contains(*m)).collect();
    all.extend(new);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_judged_by_where_it_lies() {
        let rule = Rule { threshold: 0.05, single: false, metrics: vec![] };
        let endless = f64::INFINITY;
        for (low, high, of_less, of_more) in [
            (0.06, 0.09, Verdict::Worse, Verdict::Better),
            (-0.09, -0.06, Verdict::Better, Verdict::Worse),
            (-0.04, 0.05, Verdict::Same, Verdict::Same),
            (0.04, 0.09, Verdict::Unclear, Verdict::Unclear),
            (-0.09, 0.09, Verdict::Unclear, Verdict::Unclear),
            (endless, endless, Verdict::Worse, Verdict::Better),
            (0.0, endless, Verdict::Unclear, Verdict::Unclear),
        ] {
            assert_eq!(rule.verdict((low, high), Better::Less), of_less, "{low} to {high}");
            assert_eq!(rule.verdict((low, high), Better::More), of_more, "{low} to {high}");
        }
    }
}
