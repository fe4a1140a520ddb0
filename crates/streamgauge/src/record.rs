//! Keeps the results of a run, so that any table can be made from them later: a folder of JSON
//! lines and HDR histograms.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use viewer::{Micros, Report, Totals, seconds};

use crate::hlog::{self, Unit};

/// Counters of all viewers since the start of the run.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct Tick {
    /// Seconds since the start of the run.
    pub at: f64,
    /// Viewers that have joined.
    pub joined: u64,
    /// Viewers that have left.
    pub left: u64,
    /// Viewers that have started to play.
    pub playing: u64,
    /// Viewers that left with an error.
    pub failed: u64,
    /// Media bytes received.
    pub media_bytes: u64,
    /// Other bytes received.
    pub overhead_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Media received by all viewers together, in seconds.
    pub received: f64,
    /// Stalls.
    pub stalls: u64,
    /// Requests sent.
    pub requests: u64,
    /// Troubles of any kind, including those that viewers got over.
    pub troubles: u64,
    /// Time from capture to arrival of the newest media, in seconds; 0 if unknown or below 0.
    pub delivery: f64,
}

impl Tick {
    /// Adds up the counters of all event loops.
    pub fn read(now: Micros, totals: &[Arc<Totals>]) -> Self {
        let sum = |of: fn(&Totals) -> &AtomicU64| -> u64 {
            totals.iter().map(|totals| of(totals).load(Relaxed)).sum()
        };
        let micros = |value: u64| seconds(Micros::try_from(value).unwrap_or(Micros::MAX));
        let newest = totals.iter().map(|totals| totals.delivery.load(Relaxed)).max();
        Self {
            at: seconds(now),
            joined: sum(|totals| &totals.joined),
            left: sum(|totals| &totals.left),
            playing: sum(|totals| &totals.playing),
            failed: sum(|totals| &totals.failed),
            media_bytes: sum(|totals| &totals.media_bytes),
            overhead_bytes: sum(|totals| &totals.overhead_bytes),
            sent_bytes: sum(|totals| &totals.sent_bytes),
            received: micros(sum(|totals| &totals.received)),
            stalls: sum(|totals| &totals.stalls),
            requests: sum(|totals| &totals.requests),
            troubles: sum(|totals| &totals.troubles),
            delivery: micros(newest.unwrap_or_default()),
        }
    }

    /// Adds up the counters of all processes, at one time.
    pub fn sum<'a>(at: f64, ticks: impl Iterator<Item = &'a Self>) -> Self {
        ticks.fold(Self { at, ..Self::default() }, |sum, tick| Self {
            at,
            joined: sum.joined + tick.joined,
            left: sum.left + tick.left,
            playing: sum.playing + tick.playing,
            failed: sum.failed + tick.failed,
            media_bytes: sum.media_bytes + tick.media_bytes,
            overhead_bytes: sum.overhead_bytes + tick.overhead_bytes,
            sent_bytes: sum.sent_bytes + tick.sent_bytes,
            received: sum.received + tick.received,
            stalls: sum.stalls + tick.stalls,
            requests: sum.requests + tick.requests,
            troubles: sum.troubles + tick.troubles,
            delivery: sum.delivery.max(tick.delivery),
        })
    }
}

/// The folder of a run's records: `viewers.jsonl`, `ticks.jsonl`, `NAME.hlog` and `summary.json`.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    viewers: BufWriter<File>,
    ticks: BufWriter<File>,
}

impl Folder {
    /// Makes the folder with empty `viewers.jsonl` and `ticks.jsonl`.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        let file = |name: &str| -> anyhow::Result<_> {
            let path = path.join(name);
            let file = File::create(&path).with_context(|| path.display().to_string())?;
            Ok(BufWriter::new(file))
        };
        Ok(Self {
            path: path.to_owned(),
            viewers: file("viewers.jsonl")?,
            ticks: file("ticks.jsonl")?,
        })
    }

    /// Writes the result of a viewer.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn viewer(&mut self, report: &Report) -> anyhow::Result<()> {
        line(&mut self.viewers, report)
    }

    /// Writes the counters at one time.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn tick(&mut self, tick: &Tick) -> anyhow::Result<()> {
        line(&mut self.ticks, tick)?;
        // A run that is killed keeps what was flushed.
        self.ticks.flush()?;
        Ok(self.viewers.flush()?)
    }

    /// Writes a histogram.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn histogram(
        &self,
        name: &str,
        histogram: &Histogram<u64>,
        unit: Unit,
    ) -> anyhow::Result<()> {
        hlog::write(&self.path, name, histogram, unit, Duration::ZERO)
    }

    /// Writes the summary and ends the record.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn summary(mut self, summary: &impl Serialize) -> anyhow::Result<()> {
        self.viewers.flush()?;
        self.ticks.flush()?;
        self::summary(&self.path, summary)
    }
}

/// Adds a record to a file of JSON lines.
pub(crate) fn line(file: &mut BufWriter<File>, record: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *file, record)?;
    Ok(file.write_all(b"\n")?)
}

/// Writes `summary.json`.
pub(crate) fn summary(folder: &Path, summary: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(summary)?;
    Ok(fs::write(folder.join("summary.json"), text + "\n")?)
}
