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
    (
        "¶",
        "Requests or viewers failed, were answered with an error, or fewer than 90 % of the viewers were served; or only some repetitions have the figure: never the best.",
    ),
];

/// Where fewer viewers than this were served, in per cent, what a server costs and how prompt it is
/// tells only of those that were.
const SERVED: f64 = 90.0;

/// Metrics that themselves tell how many were served, or how well.
const OUTCOMES: [&str; 11] = [
    "errors",
    "received_mean_s",
    "bit_rate_kbit",
    "unfinished",
    "satisfied",
    "satisfied_percent",
    "served",
    "served_percent",
    "played",
    "capacity",
    "inflexion",
];

/// Whether some requests or viewers were refused, or too few viewers were served, or some repetitions could not tell the
/// figure. Good figures of the others say little then.
pub(crate) fn neglects(trials: &[&Kept], metric: &str) -> bool {
    let refuses = |kept: &Kept| kept.metric("errors").is_some_and(|errors| errors > 0.0);
    !OUTCOMES.contains(&metric)
        && (trials.iter().any(|kept| refuses(kept) || !serves(kept)) || lacks(trials, metric))
}

/// Whether a server served most viewers, if it had any.
fn serves(kept: &Kept) -> bool {
    let served = ["served_percent", "satisfied_percent"].iter().find_map(|name| kept.metric(name));
    served.is_none_or(|served| served >= SERVED)
}

/// Whether some repetitions of a case have a figure, and others do not, though they did not fail.
fn lacks(trials: &[&Kept], metric: &str) -> bool {
    cases(trials).into_iter().any(|case| {
        let measured = case.iter().filter(|kept| kept.trial.failed.is_none());
        let has: Vec<bool> = measured.map(|kept| kept.metric(metric).is_some()).collect();
        has.contains(&true) && has.contains(&false)
    })
}

/// The marks of a measured figure.
pub(crate) fn marks(trials: &[&Kept], metric: &str) -> String {
    let doubts = [Doubt::Saturated, Doubt::Noisy].into_iter();
    let mut marks: String =
        doubts.filter(|doubt| doubt.applies(trials, metric)).map(Doubt::mark).collect();
    if trials.iter().any(|kept| kept.trial.failed.is_some()) {
        marks.push('§');
    }
    if neglects(trials, metric) {
        marks.push('¶');
    }
    marks
}

/// Why a figure is drawn hollow and is never the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The generator was the limit.
    Saturated,
    /// Repetitions differ much, or other processes used much of the processors.
    Noisy,
}

impl Doubt {
    /// Whether and why a figure is doubtful.
    pub(crate) fn of(trials: &[&Kept], metric: &str) -> Option<Self> {
        [Self::Saturated, Self::Noisy].into_iter().find(|doubt| doubt.applies(trials, metric))
    }

    fn applies(self, trials: &[&Kept], metric: &str) -> bool {
        let others =
            |kept: &&Kept| kept.metric("other_cpu_percent").is_some_and(|used| used > OTHERS);
        match self {
            Self::Saturated => trials.iter().any(|kept| kept.trial.saturated),
            // Numbers of those who were refused may differ much: any of them tells something.
            Self::Noisy => {
                metric != "errors" && (trials.iter().any(others) || differs(trials, metric))
            }
        }
    }

    /// Its mark in tables and figures.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Saturated => "†",
            Self::Noisy => "‡",
        }
    }

    /// Its name in two words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Saturated => "generator saturated",
            Self::Noisy => "noisy figure",
        }
    }

    /// What notes below a figure say of these doubts, each once.
    pub(crate) fn notes(doubts: impl Iterator<Item = Self>) -> Vec<String> {
        let doubts: Vec<Self> = doubts.collect();
        let there = |doubt: &Self| doubts.contains(doubt);
        let said = |doubt: Self| MARKS.iter().find(|(mark, _)| *mark == doubt.mark());
        let notes = [Self::Saturated, Self::Noisy].into_iter().filter(there).filter_map(said);
        notes.map(|(mark, meaning)| format!("{mark} {meaning}")).collect()
    }
}

/// Whether the repetitions of a case differ much.
fn differs(trials: &[&Kept], metric: &str) -> bool {
    cases(trials).into_iter().any(|case| {
        let values = case.iter().filter_map(|kept| kept.metric(metric));
        Summary::of(values).is_some_and(|summary| summary.spreads_beyond(NOISE))
    })
}

/// The repetitions of each case: trials with the same parameters.
fn cases<'a>(trials: &[&'a Kept]) -> Vec<Vec<&'a Kept>> {
    let mut cases: Vec<Vec<&Kept>> = Vec::new();
    for &kept in trials {
        let same = |case: &&mut Vec<&Kept>| case[0].trial.parameters == kept.trial.parameters;
        match cases.iter_mut().find(same) {
            Some(case) => case.push(kept),
            None => cases.push(vec![kept]),
        }
    }
    cases
}
