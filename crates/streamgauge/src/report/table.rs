//! A scenario's tables: pivots of metrics, with what a study published beside what was measured.

mod pivot;

use schemars::JsonSchema;
use serde::Serialize;

use crate::lab::record::Value;
use crate::lab::scenario::{self, Load};

use super::data::{Kept, Study};
use super::statistics::Summary;
use pivot::Pivot;

/// Repetitions that differ by a larger share of their median are called noisy.
const NOISE: f64 = 0.15;
/// So are those beside which other processes used more of the processors, in per cent.
const OTHERS: f64 = 5.0;

/// A table of a report.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Table {
    /// Its number in the report.
    pub number: usize,
    /// As it is headed.
    pub title: String,
    /// What its figures are, with the unit, where all are the same.
    pub quantity: String,
    /// Whether it belongs into a summary.
    pub headline: bool,
    /// What the heads of rows are.
    pub stub: Vec<String>,
    /// The heads of each column, from the top down.
    pub columns: Vec<Vec<String>>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// What marks stand for, and what else is to be known.
    pub notes: Vec<String>,
}

/// A row of a table.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Its heads, as many as the stub has.
    pub heads: Vec<String>,
    /// Its cells, as many as there are columns; null where nothing is known.
    pub cells: Vec<Option<Cell>>,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Cell {
    /// What it holds.
    pub kind: Aspect,
    /// The median of what was measured, what was published, or the one over the other. Null where
    /// all trials failed.
    pub value: Option<f64>,
    /// The least and the most that was measured, where that differs.
    pub spread: Option<(f64, f64)>,
    /// As they are printed.
    pub text: String,
    /// Likewise.
    pub spread_text: Option<String>,
    /// † saturated, ‡ noisy, § some trials failed, ¶ some requests or viewers failed.
    pub marks: String,
    /// Whether it is the best of the peers'.
    pub best: bool,
}

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    /// The median of what was measured here.
    Measured,
    /// What the study printed.
    Published,
    /// Measured over published.
    Ratio,
}

impl Table {
    /// Makes one of a scenario's tables.
    pub(super) fn make(study: &Study, load: &Load, table: &scenario::Table, number: usize) -> Self {
        let mut pivot = Pivot::new(study, table, load);
        pivot.gather();
        pivot.finish(number)
    }
}

/// The study's own number goes behind: `Table 1. Clients` is `Clients (the study's Table 1)`.
pub(super) fn headed(title: &str) -> String {
    for kind in ["Table ", "Figure "] {
        let Some(rest) = title.strip_prefix(kind) else { continue };
        if let Some((number, name)) = rest.split_once(". ")
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            return format!("{name} (the study’s {kind}{number})");
        }
    }
    title.to_owned()
}

/// What marks mean.
pub(super) const MARKS: [(&str, &str); 4] = [
    ("†", "The generator was saturated: not to be trusted."),
    (
        "‡",
        "Noisy: repetitions are more than 15 % of their median apart, or other processes used more than 5 % of the processors.",
    ),
    ("§", "Some repetitions failed, and are left out."),
    ("¶", "Requests or viewers failed, or were answered with an error: never the best."),
];

/// Metrics that say themselves how many were served, or were not.
const OUTCOMES: [&str; 7] =
    ["errors", "unfinished", "satisfied", "satisfied_percent", "played", "capacity", "inflexion"];

/// Whether a metric is of a service that was refused to some: a good figure says little then.
pub(super) fn has_errors(trials: &[&Kept], metric: &str) -> bool {
    let some = |kept: &&Kept| kept.metric("errors").is_some_and(|errors| errors > 0.0);
    !OUTCOMES.contains(&metric) && trials.iter().any(some)
}

/// The marks of what was measured.
pub(super) fn marks(trials: &[&Kept], metric: &str) -> String {
    let others = |kept: &&Kept| kept.metric("other_cpu_percent").is_some_and(|used| used > OTHERS);
    let mut marks = String::new();
    if trials.iter().any(|kept| kept.trial.saturated) {
        marks.push('†');
    }
    if trials.iter().any(others) || is_noisy(trials, metric) {
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

/// Whether repetitions of a case differ much.
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

/// A parameter as CSV has it.
pub(super) fn parameter(text: &str) -> Value {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Value::Number(number),
        _ => Value::Text(text.to_owned()),
    }
}
