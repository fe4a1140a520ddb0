//! What agents and crews tell people while they run.

use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard error.
pub(super) fn log(line: impl Display) {
    // A log that cannot be written is no reason to end.
    let _ = writeln!(std::io::stderr().lock(), "streamgauge: {line}");
}
