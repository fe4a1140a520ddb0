//! The files that the media server measurement initiative (study B) kept of each run:
//! `run000_100_rtmp_60.csv` has the six metrics, `.times` has how many milliseconds of media each
//! client received. The name of a third file ends in a dash and the number of clients that received
//! media for 90 % of the time; its content is this number, too.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::metrics::Metrics;
use super::plan::Trial;

/// Writes the files into a trial's folder. The number of the run is the number of the case in the
/// study, even if a small scale leaves out other cases.
pub(super) fn keep(trial: &Trial<'_>, folder: &Path, metrics: &Metrics) -> anyhow::Result<()> {
    let document: Value = serde_json::from_slice(&fs::read(folder.join("load.json"))?)?;
    let metric = |name: &str| metrics.get(name).copied().unwrap_or_default();
    let protocol = document["protocol"].as_str().unwrap_or("http");
    let seconds = document["duration"].as_f64().unwrap_or_default();
    let name = format!("run{:03}_{}_{protocol}_{seconds}", trial.case.number, metric("clients"));
    fs::copy(folder.join("meter.csv"), folder.join(format!("{name}.csv")))?;
    times(folder, &folder.join(format!("{name}.times")))?;
    let served = metric("satisfied");
    fs::write(folder.join(format!("{name}-{served}")), format!("{served}\n"))?;
    Ok(())
}

/// Writes the `.times` file. As in the study, a client with an error has no line.
fn times(folder: &Path, to: &Path) -> anyhow::Result<()> {
    let from = folder.join("load/viewers.jsonl");
    let lines = BufReader::new(File::open(&from).with_context(|| from.display().to_string())?);
    let mut viewers = Vec::new();
    for line in lines.lines() {
        let viewer: Value = serde_json::from_str(&line?).context("viewers.jsonl")?;
        if viewer["error"].is_null() {
            let received = viewer["received"].as_f64().unwrap_or_default();
            viewers.push((viewer["id"].as_u64(), (received * 1e3).round()));
        }
    }
    viewers.sort_by_key(|(id, _)| *id);
    let mut to = BufWriter::new(File::create(to)?);
    for (_, milliseconds) in viewers {
        writeln!(to, "{milliseconds}")?;
    }
    Ok(to.flush()?)
}
