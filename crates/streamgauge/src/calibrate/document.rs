//! The result of a calibration.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use schemars::JsonSchema;
use serde::Serialize;

use super::check::{Check, Unit};
use crate::Exit;

/// What `calibrate` prints with `--json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Document {
    /// `calibrate`.
    pub verb: String,
    /// How long it took, in seconds.
    pub elapsed: f64,
    /// Whether it was interrupted. Checks are then missing.
    pub interrupted: bool,
    /// Whether all errors were within their bounds.
    pub passed: bool,
    /// How many errors were not within their bounds.
    pub failed: usize,
    /// The figures, compared.
    pub checks: Vec<Check>,
    /// Reasons not to trust the figures: the machine was too busy.
    pub reasons: Vec<String>,
}

impl Document {
    /// Returns how the program ends.
    pub fn exit(&self) -> Exit {
        if self.passed { Exit::Success } else { Exit::Failed }
    }
}

/// Writes a document as a table for people.
///
/// # Errors
/// The table cannot be written.
pub(super) fn write(document: &Document, to: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "player",
        "done to it",
        "figure",
        "injected",
        "reported",
        "error",
        "bound",
        "viewer's lag",
        "server's lag",
        "",
    ]);
    for check in &document.checks {
        table.add_row(row(check));
    }
    for column in table.column_iter_mut().skip(3).take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(to, "{table}")?;
    let checks = document.checks.len();
    let within = checks - document.failed;
    writeln!(to, "{within} of {checks} errors are within their bounds, {:.1} s", document.elapsed)?;
    for reason in &document.reasons {
        writeln!(to, "the machine was too busy: {reason}")?;
    }
    if document.interrupted {
        writeln!(to, "interrupted: not everything was checked")?;
    }
    writeln!(to, "{}", if document.passed { "calibrated" } else { "FAILED" })
}

fn row(check: &Check) -> Vec<String> {
    let value = |value: f64| match check.unit {
        Unit::Seconds => format!("{value:.3} s"),
        Unit::MegabitsPerSecond => format!("{value:.4} Mbit/s"),
        Unit::Count => format!("{value:.0}"),
    };
    let or_nothing = |known: Option<f64>| known.map_or_else(|| "nothing".to_owned(), value);
    vec![
        check.player.name().to_owned(),
        check.injection.name().to_owned(),
        check.figure.clone(),
        value(check.injected),
        or_nothing(check.reported),
        or_nothing(check.error),
        format!("± {}", value(check.bound)),
        format!("{:.1} ms", check.lags.viewer * 1e3),
        format!("{:.1} ms", check.lags.server * 1e3),
        if check.passed { "" } else { "FAILED" }.to_owned(),
    ]
}
