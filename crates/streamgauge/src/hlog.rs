//! The format in which histograms are kept: HDR interval logs of one interval, which HdrHistogram's
//! tools read. A comment in the head gives the unit of the values, `#[Unit: us]`. The unit is not
//! in a tag, because tools show a tagged interval only if they are asked for its tag.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

/// What the values of a histogram count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Bits per second.
    BitsPerSecond,
}

const UNITS: [(&str, Unit); 3] =
    [("ns", Unit::Nanoseconds), ("us", Unit::Microseconds), ("bit/s", Unit::BitsPerSecond)];

impl Unit {
    /// Name of the unit in logs.
    pub fn name(self) -> &'static str {
        UNITS.iter().find(|(_, unit)| *unit == self).map_or("", |(name, _)| name)
    }

    /// How many of the unit are a millisecond; `None` if it is not a unit of time.
    pub fn per_millisecond(self) -> Option<f64> {
        match self {
            Self::Nanoseconds => Some(1e6),
            Self::Microseconds => Some(1e3),
            Self::BitsPerSecond => None,
        }
    }

    /// Reads the unit from the head of a log; `None` if the log gives none.
    ///
    /// # Errors
    /// The unit is unknown.
    pub fn of(log: &[u8]) -> anyhow::Result<Option<Self>> {
        let head = log.split(|byte| *byte == b'\n').take_while(|line| line.starts_with(b"#"));
        let said = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let name = line.trim_end().strip_prefix("#[Unit: ")?.strip_suffix(']')?;
            Some(name.to_owned())
        };
        let Some(said) = head.into_iter().find_map(said) else { return Ok(None) };
        let known = UNITS.iter().find(|(name, _)| *name == said);
        let (_, unit) = known.with_context(|| format!("a unit that is not known: {said:?}"))?;
        Ok(Some(*unit))
    }
}

/// Writes `NAME.hlog`. The largest value stands beside the histogram in the form that tools show: a
/// time is in milliseconds.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(
    folder: &Path,
    name: &str,
    histogram: &Histogram<u64>,
    unit: Unit,
    length: Duration,
) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.hlog"));
    let shown = || path.display().to_string();
    let mut file = BufWriter::new(File::create(&path).with_context(shown)?);
    let mut serializer = V2Serializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("[Unit: {}]", unit.name()))
        .with_max_value_divisor(unit.per_millisecond().unwrap_or(1.0))
        .begin_log_with(&mut file, &mut serializer)
        .with_context(shown)?;
    log.write_histogram(histogram, Duration::ZERO, length, None)
        .map_err(|error| anyhow!("{}: {error:?}", shown()))?;
    file.flush().with_context(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_say_what_they_count() {
        let folder = tempfile::tempdir().unwrap();
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        histogram.record(7_000_000).unwrap();
        for (_, unit) in UNITS {
            write(folder.path(), "x", &histogram, unit, Duration::from_secs(1)).unwrap();
            let log = std::fs::read(folder.path().join("x.hlog")).unwrap();
            assert_eq!(Unit::of(&log).unwrap(), Some(unit));
        }
        assert_eq!(Unit::of(b"#[MaxValueDivisor: 3]\n#x\n0.0,1.0,7,x\n").unwrap(), None);
        // Only the head counts.
        assert_eq!(Unit::of(b"0.0,1.0,7,x\n#[Unit: ns]\n").unwrap(), None);
        let error = Unit::of(b"#x\n#[Unit: years]\r\n").unwrap_err().to_string();
        assert!(error.contains("\"years\""), "{error}");
    }
}
