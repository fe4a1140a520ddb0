//! Reads the recordings of a trial: the meter's samples, and histograms.

use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde::Deserialize;

use crate::files::bytes;
use crate::hlog::Unit;

const MIB: u64 = 1 << 20;

/// The fields of a line of meter.jsonl that are read.
#[derive(Debug, Deserialize)]
pub(super) struct Sample {
    at: f64,
    interval: f64,
    system: System,
    #[serde(default)]
    processes: Vec<Process>,
}

#[derive(Debug, Deserialize)]
struct System {
    memory: f64,
    cpu: f64,
    up: f64,
    down: f64,
}

#[derive(Debug, Deserialize)]
struct Process {
    pid: i32,
    cpu_user: f64,
    cpu_system: f64,
    resident: f64,
    proportional: Option<f64>,
}

/// Reads the samples of a trial; `None` if the meter did not run.
pub(super) fn samples(folder: &Path) -> anyhow::Result<Option<Vec<Sample>>> {
    let path = folder.join("meter.jsonl");
    if !path.exists() {
        return Ok(None);
    }
    let text = bytes(&path, 256 * MIB)?;
    let mut samples = Vec::new();
    let mut lines = text.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        match serde_json::from_slice(line) {
            Ok(sample) => samples.push(sample),
            // Nothing follows the end of the last line. A meter that was killed leaves half a line.
            Err(_) if lines.peek().is_none() => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("{}, line {}", path.display(), number + 1));
            }
        }
    }
    Ok(Some(samples))
}

/// Whether this is the name of a column.
pub(super) fn is_column(name: &str) -> bool {
    COLUMNS.iter().any(|(column, _)| *column == name)
}

/// The columns that can be drawn over time, with their titles.
const COLUMNS: [(&str, &str); 7] = [
    ("cpu_percent", "CPU of the system, %"),
    ("memory_mib", "memory of the system, MiB"),
    ("up_mbit", "sent, Mbit/s"),
    ("down_mbit", "received, Mbit/s"),
    ("up_total_gib", "sent in all, GiB"),
    ("server_cpu_percent", "CPU of the server, % of a processor"),
    ("server_memory_mib", "memory of the server, MiB"),
];

/// Title of an axis for a column.
pub(super) fn column_title(name: &str) -> &str {
    COLUMNS.iter().find(|(column, _)| *column == name).map_or(name, |(_, title)| title)
}

/// Values of a column, each with its time in seconds.
pub(super) fn column(samples: &[Sample], name: &str) -> Vec<(f64, f64)> {
    let mut values = Vec::with_capacity(samples.len());
    let mut before: Option<&Sample> = None;
    for sample in samples {
        let system = &sample.system;
        let rate =
            |now: f64, then: Option<f64>| (now - then.unwrap_or(0.0)) / sample.interval.max(1e-3);
        let value = match name {
            "cpu_percent" => Some(system.cpu),
            "memory_mib" => Some(system.memory / MIB as f64),
            "up_mbit" => Some(rate(system.up, before.map(|before| before.system.up)) * 8e-6),
            "down_mbit" => Some(rate(system.down, before.map(|before| before.system.down)) * 8e-6),
            "up_total_gib" => Some(system.up / (1024 * MIB) as f64),
            "server_cpu_percent" => {
                before.map(|before| rate(sample.processor_time_since(before), None) * 100.0)
            }
            "server_memory_mib" => Some(sample.memory() / MIB as f64),
            _ => None,
        };
        values.extend(value.filter(|value| value.is_finite()).map(|value| (sample.at, value)));
        before = Some(sample);
    }
    values
}

impl Sample {
    /// Processor time of the processes since `before`, in seconds. A new process counts from its
    /// start.
    fn processor_time_since(&self, before: &Self) -> f64 {
        let used = |process: &Process| process.cpu_user + process.cpu_system;
        let then =
            |pid| before.processes.iter().find(|process| process.pid == pid).map_or(0.0, used);
        self.processes.iter().map(|process| (used(process) - then(process.pid)).max(0.0)).sum()
    }

    fn memory(&self) -> f64 {
        let of = |process: &Process| process.proportional.unwrap_or(process.resident);
        self.processes.iter().map(of).sum()
    }
}

/// A distribution of times.
#[derive(Debug)]
pub(super) struct Distribution {
    histogram: Histogram<u64>,
    per_millisecond: f64,
}

impl Distribution {
    /// Adds another distribution.
    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        // Zeros are zero in any unit. A log of zeros without a unit does not tell its unit.
        if self.histogram.max() == 0 {
            self.per_millisecond = other.per_millisecond;
        }
        let alike = self.per_millisecond == other.per_millisecond || other.histogram.max() == 0;
        ensure!(alike, "histograms of different units");
        Ok(self.histogram.add(&other.histogram)?)
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Milliseconds that this share of the values does not exceed.
    pub(super) fn at(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / self.per_millisecond
    }
}

/// Reads a histogram of a trial, `NAME.hlog`; `None` if it was not recorded.
///
/// # Errors
/// The file is damaged.
pub(super) fn histogram(folder: &Path, name: &str) -> anyhow::Result<Option<Distribution>> {
    ensure!(is_name(name), "{name:?} is not a histogram's name");
    let file = format!("{name}.hlog");
    let places = [folder.join(&file), folder.join("load").join(&file)];
    let Some(path) = places.iter().find(|path| path.exists()) else { return Ok(None) };
    decode(&bytes(path, 64 * MIB)?).with_context(|| path.display().to_string())
}

/// Checks a name from a scenario, which may come from others: the path must stay in the folder.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Combines all intervals of a log.
fn decode(log: &[u8]) -> anyhow::Result<Option<Distribution>> {
    let unit = Unit::of(log)?;
    let told = |unit: Unit| {
        let why = || format!("it counts {}, and a distribution is one of times", unit.name());
        unit.per_millisecond().with_context(why)
    };
    let told = unit.map(told).transpose()?;
    let mut all: Option<Distribution> = None;
    for entry in IntervalLogIterator::new(log) {
        let entry = entry.map_err(|error| anyhow!("not an HDR interval log: {error:?}"))?;
        let LogEntry::Interval(interval) = entry else { continue };
        let encoded = base64::engine::general_purpose::STANDARD
            .decode(interval.encoded_histogram())
            .context("not base64")?;
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut encoded.as_slice())
            .map_err(|error| anyhow!("not an HDR histogram: {error:?}"))?;
        let per_millisecond = told.unwrap_or_else(|| guessed(&histogram, interval.max()));
        let mut one = Distribution { histogram, per_millisecond };
        match &mut all {
            Some(all) if !one.histogram.is_empty() => all.add(&one)?,
            Some(_) => {}
            None => {
                one.histogram.auto(true);
                all = Some(one);
            }
        }
    }
    Ok(all.filter(|all| all.count() > 0))
}

/// Guesses how many of a log's units are a millisecond, for old logs without a unit in their head.
/// `viewers` counted microseconds and wrote the largest value as it is. `http` counted nanoseconds
/// and wrote it in milliseconds. Such a log has the largest value in both ways, so the two tell the
/// unit, unless the value is 0.
fn guessed(histogram: &Histogram<u64>, written: f64) -> f64 {
    let counted = histogram.max() as f64;
    if counted > 100.0 * written { 1e6 } else { 1e3 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::serialization::V2Serializer;
    use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

    use super::*;
    use crate::hlog;

    fn of(value: u64, per_millisecond: f64) -> Distribution {
        let mut histogram = Histogram::new(3).unwrap();
        histogram.auto(true);
        histogram.record(value).unwrap();
        Distribution { histogram, per_millisecond }
    }

    #[test]
    fn zeros_go_with_any_unit_and_others_only_with_their_own() {
        for (mut first, second) in
            [(of(0, 1e3), of(5_000_000, 1e6)), (of(5_000_000, 1e6), of(0, 1e3))]
        {
            first.add(&second).unwrap();
            assert_eq!((first.count(), first.at(1.0).round()), (2, 5.0));
        }
        assert!(of(7, 1e3).add(&of(7, 1e6)).is_err());
    }

    /// A millisecond, in the form that `viewers` or `http` wrote before logs had a unit.
    fn without_unit(counted: u64, divisor: f64) -> Vec<u8> {
        let mut log = Vec::new();
        let mut serializer = V2Serializer::new();
        IntervalLogWriterBuilder::new()
            .with_max_value_divisor(divisor)
            .begin_log_with(&mut log, &mut serializer)
            .unwrap()
            .write_histogram(&of(counted, 0.0).histogram, Duration::ZERO, Duration::ZERO, None)
            .unwrap();
        log
    }

    #[test]
    fn a_logs_unit_is_what_it_says_and_what_old_ones_tell() {
        for (counted, divisor) in [(1000, 1.0), (1_000_000, 1e6)] {
            let old = decode(&without_unit(counted, divisor)).unwrap().unwrap();
            assert_eq!(old.per_millisecond, counted as f64);
        }
        let folder = tempfile::tempdir().unwrap();
        let write = |unit| {
            let values = of(1_000_000, 0.0).histogram;
            hlog::write(folder.path(), "x", &values, unit, Duration::ZERO).unwrap();
            histogram(folder.path(), "x")
        };
        for (unit, milliseconds) in [(Unit::Nanoseconds, 1.0), (Unit::Microseconds, 1000.0)] {
            assert_eq!(write(unit).unwrap().unwrap().at(1.0).round(), milliseconds);
        }
        let error = format!("{:#}", write(Unit::BitsPerSecond).unwrap_err());
        assert!(error.contains("x.hlog") && error.contains("bit/s"), "{error}");
    }
}
