//! Keeps the results of a run, so that any table can be made from them later: a folder of JSON
//! lines and HDR histograms.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::report::Document;
use super::{Outcome, Tick};
use crate::hlog::{self, Unit};
use crate::record;

/// A folder with `ticks.jsonl` (the cumulative counters of each second), `NAME.hlog` (histograms of
/// nanoseconds, V2 in base64, in logs of one interval) and `summary.json` (the document).
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    ticks: BufWriter<File>,
}

impl Folder {
    /// Makes the folder with an empty `ticks.jsonl`.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        let ticks = path.join("ticks.jsonl");
        let file = File::create(&ticks).with_context(|| ticks.display().to_string())?;
        Ok(Self { path: path.to_owned(), ticks: BufWriter::new(file) })
    }

    /// Writes the counters of a second. A run that is killed keeps what was written.
    pub(super) fn tick(&mut self, tick: &Tick) -> anyhow::Result<()> {
        record::line(&mut self.ticks, tick)?;
        Ok(self.ticks.flush()?)
    }

    /// Writes the results at the end.
    pub(super) fn finish(mut self, outcome: &Outcome, document: &Document) -> anyhow::Result<()> {
        if let Some(last) = outcome.ticks.last() {
            self.tick(last)?;
        }
        let total = &outcome.total;
        let length = Duration::try_from_secs_f64(outcome.elapsed).unwrap_or_default();
        for (name, histogram) in [
            ("first_byte", &total.first_byte),
            ("last_byte", &total.last_byte),
            ("prompt", &total.prompt),
            ("connect", &total.connect),
            ("lag", &total.lag),
        ] {
            hlog::write(&self.path, name, histogram, Unit::Nanoseconds, length)?;
        }
        record::summary(&self.path, document)
    }
}
