//! Marks of figures that are doubtful, and why.

use super::Kept;
use super::statistics::Summary;

/// Repetitions are noisy if they differ by a larger share of their median.
const NOISE: f64 = 0.15;
/// They are also noisy if other processes used more of the processors, in per cent.
const OTHERS: f64 = 5.0;

/// The marks and their meanings.
pub(crate) const MARKS: [(&str, &str); 4] = [
    ("†", "The generator was saturated: not to be trusted."),
    (
        "‡",
        "Noisy: repetitions are more than 15 % of their median apart, or other processes used more than 5 % of the processors.",
    ),
    ("§", "Some repetitions failed, and are left out."),
    ("¶", "Requests or viewers failed, or were answered with an error: never the best."),
];

/// Metrics that themselves tell how many were served, or not served.
const OUTCOMES: [&str; 9] = [
    "errors",
    "unfinished",
    "satisfied",
    "satisfied_percent",
    "served",
    "served_percent",
    "played",
    "capacity",
    "inflexion",
];

/// Whether some requests or viewers were refused. Good figures of the others say little then.
pub(crate) fn has_errors(trials: &[&Kept], metric: &str) -> bool {
    let some = |kept: &&Kept| kept.metric("errors").is_some_and(|errors| errors > 0.0);
    !OUTCOMES.contains(&metric) && trials.iter().any(some)
}

/// The marks of a measured figure.
pub(crate) fn marks(trials: &[&Kept], metric: &str) -> String {
    let others = |kept: &&Kept| kept.metric("other_cpu_percent").is_some_and(|used| used > OTHERS);
    let mut marks = String::new();
    if trials.iter().any(|kept| kept.trial.saturated) {
        marks.push('†');
    }
    // Numbers of those who were refused may differ much: any of them tells something.
    if trials.iter().any(others) || (metric != "errors" && is_noisy(trials, metric)) {
        marks.push('‡');
    }
    if trials.iter().any(|kept| kept.trial.failed.is_some()) {
        marks.push('§');
    }
    if has_errors(trials, metric) {
        marks.push('¶');
    }
    marks
}

/// Whether the repetitions of a case differ much.
fn is_noisy(trials: &[&Kept], metric: &str) -> bool {
    let mut cases: Vec<(&_, Vec<f64>)> = Vec::new();
    for kept in trials {
        let Some(value) = kept.metric(metric) else { continue };
        let parameters = &kept.trial.parameters;
        match cases.iter_mut().find(|(other, _)| *other == parameters) {
            Some((_, values)) => values.push(value),
            None => cases.push((parameters, vec![value])),
        }
    }
    let noisy =
        |values: Vec<f64>| Summary::of(values).is_some_and(|summary| summary.spreads_beyond(NOISE));
    cases.into_iter().any(|(_, values)| noisy(values))
}
