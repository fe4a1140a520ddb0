//! The result of a comparison.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::NOTHING};
use schemars::JsonSchema;
use serde::Serialize;

use crate::lab::scenario::Better;
use crate::runs::marks::MARKS;
use crate::{Exit, number};

/// The share of repetitions without figures, which is compared as a metric is.
pub(super) const FAILED: &str = "failed";

/// What `compare` prints with `--json`. Changes are shares of the value before: 0.1 is a tenth more.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// `compare`.
    pub verb: String,
    /// The scenario's name.
    pub scenario: String,
    /// The earlier run.
    pub before: Side,
    /// The later run.
    pub after: Side,
    /// Changes up to this share are none.
    pub threshold: f64,
    /// The share of the changes of drawn repetitions that an interval holds.
    pub confidence: f64,
    /// How many times repetitions were drawn anew for each interval.
    pub resamples: u32,
    /// What else differs between the runs, and what could not be compared.
    pub warnings: Vec<String>,
    /// Cases that only the earlier run has: load, parameters and server.
    pub only_before: Vec<String>,
    /// Cases that only the later run has.
    pub only_after: Vec<String>,
    /// How many figures were compared, by verdict.
    pub counts: Counts,
    /// Every figure that was compared.
    pub changes: Vec<Change>,
}

/// A run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Side {
    /// Its folder.
    pub folder: String,
    /// When it began, RFC 3339 in UTC.
    pub began: String,
    /// The servers' versions, by name.
    pub versions: Vec<(String, String)>,
}

/// How many figures were compared, by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// They got worse. The exit status is 1 if there are any.
    pub worse: usize,
    /// They got better.
    pub better: usize,
    /// They changed by no more than the threshold.
    pub same: usize,
    /// Their repetitions differ too much to tell.
    pub unclear: usize,
    /// One of the runs has one repetition of them, so that nothing tells how much they vary.
    pub single: usize,
    /// They are marked as saturated, noisy or with errors, and in none of the other counts.
    pub doubtful: usize,
}

/// A figure of both runs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// The load's name in the scenario.
    pub load: String,
    /// The parameters in words.
    pub case: String,
    /// The server's name.
    pub peer: String,
    /// The metric's name, or `failed`: the share of repetitions without figures.
    pub metric: String,
    /// Which values are better.
    pub better: Better,
    /// The repetitions of the earlier run.
    pub before: Sample,
    /// The repetitions of the later run.
    pub after: Sample,
    /// Relative change from the one to the other; null from 0 to another value.
    pub change: Option<f64>,
    /// Lower and upper end of the change's interval. An end is null if it is a change from 0. Null
    /// if one of the runs has a single repetition.
    pub interval: Option<(Option<f64>, Option<f64>)>,
    /// What the interval says.
    pub verdict: Verdict,
    /// † saturated, ‡ noisy, § some trials failed, ¶ some requests or viewers failed; in any of both
    /// runs.
    pub marks: String,
    /// Whether † ‡ or ¶ is among the marks. Such a figure does not count, whatever its verdict.
    pub doubtful: bool,
}

/// The repetitions of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Sample {
    /// Their median; of `failed`, the mean, which is the share.
    pub median: f64,
    /// All of them.
    pub values: Vec<f64>,
}

/// What an interval says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Worse by more than the threshold, all of the interval.
    Worse,
    /// Better by more than the threshold, all of the interval.
    Better,
    /// All of the interval is within the threshold.
    Same,
    /// The interval reaches across the threshold.
    Unclear,
    /// There is no interval.
    Single,
}

impl Counts {
    /// Counts the changes by their verdicts.
    pub(super) fn of(changes: &[Change]) -> Self {
        let mut counts = Self::default();
        for change in changes {
            let count = match change.verdict {
                _ if change.doubtful => &mut counts.doubtful,
                Verdict::Worse => &mut counts.worse,
                Verdict::Better => &mut counts.better,
                Verdict::Same => &mut counts.same,
                Verdict::Unclear => &mut counts.unclear,
                Verdict::Single => &mut counts.single,
            };
            *count += 1;
        }
        counts
    }
}

impl Document {
    /// Returns how the program ends. If the generator was saturated wherever there are figures, it
    /// ends as a saturated run does.
    pub fn exit(&self) -> Exit {
        if self.counts.worse > 0 {
            return Exit::Failed;
        }
        // Whether repetitions failed is told without figures.
        let mut figures = self.changes.iter().filter(|change| change.metric != FAILED).peekable();
        if figures.peek().is_some() && figures.all(|change| change.marks.contains('†')) {
            Exit::Saturated
        } else {
            Exit::Success
        }
    }
}

/// Writes a document as text for people: the changes and, with `all`, also the figures that did not
/// change.
///
/// # Errors
/// The text cannot be written.
pub fn write(document: &Document, all: bool, to: &mut dyn Write) -> io::Result<()> {
    let Document { before, after, counts, changes, .. } = document;
    for (name, side) in [("before", before), ("after", after)] {
        writeln!(to, "{name:<9}{}, {}", side.folder, side.began)?;
    }
    for (name, version) in &after.versions {
        let earlier = before.versions.iter().find(|(other, _)| other == name);
        if let Some((_, earlier)) = earlier.filter(|(_, earlier)| earlier != version) {
            writeln!(to, "{name}: {earlier} before, {version} after")?;
        }
    }
    for warning in &document.warnings {
        writeln!(to, "warning: {warning}")?;
    }
    for (name, cases) in [("before", &document.only_before), ("after", &document.only_after)] {
        if let Some(first) = cases.first() {
            writeln!(to, "only {name}: {} cases, the first: {first}", cases.len())?;
        }
    }
    let threshold = number::plain(document.threshold * 100.0);
    for (heading, verdict) in [
        (format!("Worse by more than {threshold} %"), Verdict::Worse),
        (format!("Better by more than {threshold} %"), Verdict::Better),
        ("Unclear".to_owned(), Verdict::Unclear),
        ("A single repetition".to_owned(), Verdict::Single),
        ("The same".to_owned(), Verdict::Same),
    ] {
        let is_change = matches!(verdict, Verdict::Worse | Verdict::Better);
        let shown: Vec<&Change> = changes.iter().filter(|c| c.verdict == verdict).collect();
        if !shown.is_empty() && (all || is_change) {
            writeln!(to, "\n{heading}\n{}", table(&shown))?;
        }
    }
    for (mark, meaning) in MARKS {
        let is_there = |change: &Change| change.marks.contains(mark);
        if changes.iter().any(is_there) {
            writeln!(to, "{mark} {meaning}")?;
        }
    }
    let Counts { worse, better, same, unclear, single, doubtful } = counts;
    writeln!(
        to,
        "\n{} figures: {worse} worse, {better} better, {same} the same, {unclear} unclear, \
         {single} with a single repetition, {doubtful} doubtful and not counted",
        changes.len()
    )?;
    match document.exit() {
        Exit::Failed => writeln!(to, "WORSE by more than {threshold} %"),
        Exit::Saturated => writeln!(to, "the generator was saturated: nothing can be told"),
        _ if *single > 0 && worse + better + same + unclear == 0 => {
            writeln!(to, "nothing can be told from single repetitions (--single judges them)")
        }
        _ => writeln!(to, "nothing is known to be worse by more than {threshold} %"),
    }
}

fn table(changes: &[&Change]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["load", "server", "metric", "before", "after", "change", "95 % interval"]);
    for change in changes {
        let load = [change.load.as_str(), &change.case].into_iter().filter(|word| !word.is_empty());
        let better = if change.better == Better::More { "↑" } else { "↓" };
        let interval = change.interval.map_or("–".to_owned(), |(low, high)| {
            format!("{} to {}", per_cent(low), per_cent(high))
        });
        table.add_row([
            load.collect::<Vec<_>>().join(", "),
            change.peer.clone(),
            format!("{} {better}", change.metric),
            number::sensible(change.before.median),
            format!("{}{}", number::sensible(change.after.median), change.marks),
            per_cent(change.change),
            interval,
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Writes a relative change.
fn per_cent(change: Option<f64>) -> String {
    let Some(change) = change else { return "from 0".to_owned() };
    let sign = if change > 0.0 { "+" } else { "" };
    format!("{sign}{} %", number::fixed(change * 100.0, 1))
}
