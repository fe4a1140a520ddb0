//! The tables of a scenario: pivots of metrics, with the study's figures beside the measured ones.

mod pivot;

use schemars::JsonSchema;
use serde::Serialize;

use crate::lab::record::Value;
use crate::lab::scenario::{self, Load};

use crate::runs::Study;
use pivot::Pivot;

/// A table of a report.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Table {
    /// Number in the report.
    pub number: usize,
    /// Heading.
    pub title: String,
    /// Name and unit of its figures, if all are the same.
    pub quantity: String,
    /// Whether it belongs to a summary.
    pub headline: bool,
    /// Titles of the row headings.
    pub stub: Vec<String>,
    /// Headings of each column, from top to bottom.
    pub columns: Vec<Vec<String>>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Meanings of marks, and other notes.
    pub notes: Vec<String>,
}

/// A row of a table.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Headings, as many as the stub has.
    pub heads: Vec<String>,
    /// Cells, as many as there are columns; null if nothing is known.
    pub cells: Vec<Option<Cell>>,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Cell {
    /// Kind of figure.
    pub kind: Aspect,
    /// The median of measured values, the published value, or the ratio of both. Null if all trials
    /// failed.
    pub value: Option<f64>,
    /// The smallest and the largest measured value, if they differ.
    pub spread: Option<(f64, f64)>,
    /// The value as text.
    pub text: String,
    /// The spread as text.
    pub spread_text: Option<String>,
    /// What limited the server, if the table says so: `link`, `processors`, `clients`, `nothing`.
    pub limit: Option<String>,
    /// † saturated, ‡ noisy, § some trials failed, ¶ some requests or viewers failed.
    pub marks: String,
    /// Whether it is the best of all peers.
    pub best: bool,
}

/// Kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    /// The median of values measured here.
    Measured,
    /// The figure of the study.
    Published,
    /// The measured figure divided by the published one.
    Ratio,
}

impl Table {
    /// Makes a table of the scenario.
    pub(super) fn make(study: &Study, load: &Load, table: &scenario::Table, number: usize) -> Self {
        let mut pivot = Pivot::new(study, table, load);
        pivot.gather();
        pivot.finish(number)
    }
}

/// Moves the study's own number to the end: `Table 1. Clients` is `Clients (the study's Table 1)`.
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

/// Parses a parameter in CSV.
pub(super) fn parameter(text: &str) -> Value {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Value::Number(number),
        _ => Value::Text(text.to_owned()),
    }
}
