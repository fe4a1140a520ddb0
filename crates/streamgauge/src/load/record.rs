//! What is kept of a run, so that any table can be made of it again: a folder of JSON lines and
//! HDR histograms.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use super::report::Document;
use super::{Outcome, Tick};

/// A folder with `ticks.jsonl` (the counters, cumulative, each second), `NAME.hlog` (histograms
/// of nanoseconds, V2 in base64, in logs of one interval) and `summary.json` (the document).
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    ticks: BufWriter<File>,
}

impl Folder {
    /// Makes the folder, and empties what was recorded there before.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        let ticks = path.join("ticks.jsonl");
        let file = File::create(&ticks).with_context(|| ticks.display().to_string())?;
        Ok(Self { path: path.to_owned(), ticks: BufWriter::new(file) })
    }

    /// Writes the counters of a second, so that a run that is killed leaves what it had.
    pub(super) fn tick(&mut self, tick: &Tick) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.ticks, tick)?;
        self.ticks.write_all(b"\n")?;
        Ok(self.ticks.flush()?)
    }

    /// Writes what is known at the end.
    pub(super) fn finish(mut self, outcome: &Outcome, document: &Document) -> anyhow::Result<()> {
        if let Some(last) = outcome.ticks.last() {
            self.tick(last)?;
        }
        let total = &outcome.total;
        let length = Duration::try_from_secs_f64(outcome.elapsed).unwrap_or_default();
        self.histogram("first_byte", &total.first_byte, length)?;
        self.histogram("last_byte", &total.last_byte, length)?;
        self.histogram("prompt", &total.prompt, length)?;
        self.histogram("connect", &total.connect, length)?;
        self.histogram("lag", &total.lag, length)?;
        let text = serde_json::to_string_pretty(document)?;
        Ok(fs::write(self.path.join("summary.json"), text + "\n")?)
    }

    fn histogram(
        &self,
        name: &str,
        histogram: &Histogram<u64>,
        length: Duration,
    ) -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(self.path.join(format!("{name}.hlog")))?);
        let mut serializer = V2Serializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            // Nanoseconds to milliseconds, which readers of such logs show.
            .with_max_value_divisor(1e6)
            .begin_log_with(&mut file, &mut serializer)
            .context("writing a histogram")?;
        log.write_histogram(histogram, Duration::ZERO, length, None)
            .map_err(|error| anyhow::anyhow!("writing a histogram: {error:?}"))?;
        Ok(file.flush()?)
    }
}
