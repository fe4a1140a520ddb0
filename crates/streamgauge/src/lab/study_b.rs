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

/// Kinds of errors after which a client of the study logged nothing: what came to it was corrupt.
const CORRUPT: [&str; 2] = ["corrupt", "garbage"];

/// Writes the files into a trial's folder. The number of the run is the number of the case in the
/// study, even if a small scale leaves out other cases.
pub(super) fn keep(trial: &Trial<'_>, folder: &Path, metrics: &Metrics) -> anyhow::Result<()> {
    let document: Value = serde_json::from_slice(&fs::read(folder.join("load.json"))?)?;
    let clients = metrics.get("clients").copied().unwrap_or_default();
    let protocol = document["protocol"].as_str().unwrap_or("http");
    let seconds = document["duration"].as_f64().unwrap_or_default();
    let name = format!("run{:03}_{clients}_{protocol}_{seconds}", trial.case.number);
    fs::copy(folder.join("meter.csv"), folder.join(format!("{name}.csv")))?;
    let times = times(&folder.join("load/viewers.jsonl"))?;
    write(&times, &folder.join(format!("{name}.times")))?;
    let wanted = document["wanted"].as_f64().context("load.json: there is no `wanted`")?;
    let served = times.iter().filter(|time| **time >= wanted * 1e3).count();
    fs::write(folder.join(format!("{name}-{served}")), format!("{served}\n"))?;
    Ok(())
}

/// Reads how many milliseconds of media each client received, in the order of their numbers. As in
/// the study, a client has a time however little came to it, unless that was corrupt.
fn times(from: &Path) -> anyhow::Result<Vec<f64>> {
    let lines = BufReader::new(File::open(from).with_context(|| from.display().to_string())?);
    let mut viewers = Vec::new();
    for line in lines.lines() {
        let viewer: Value = serde_json::from_str(&line?).context("viewers.jsonl")?;
        let kind = viewer.pointer("/error/kind").and_then(Value::as_str);
        if kind.is_none_or(|kind| !CORRUPT.contains(&kind)) {
            let received = viewer["received"].as_f64().unwrap_or_default();
            viewers.push((viewer["id"].as_u64(), (received * 1e3).round()));
        }
    }
    viewers.sort_by_key(|(id, _)| *id);
    Ok(viewers.into_iter().map(|(_, milliseconds)| milliseconds).collect())
}

/// Writes the `.times` file.
fn write(times: &[f64], to: &Path) -> anyhow::Result<()> {
    let mut to = BufWriter::new(File::create(to)?);
    for milliseconds in times {
        writeln!(to, "{milliseconds}")?;
    }
    Ok(to.flush()?)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use viewer::{Clock, Error, Kind, Lane, Options, Totals, Viewer};

    use super::*;

    /// The record of a viewer that received some seconds of media.
    fn record(lane: &Rc<Lane>, id: u32, received: f64, kind: Option<Kind>) -> String {
        let outcome = kind.map(|kind| Err(Error::new(kind, "so it ended")));
        let mut report = Viewer::join(lane, (id, 0), true, None).leave(outcome).report();
        report.received = received;
        serde_json::to_string(&report).unwrap()
    }

    #[test]
    fn starved_clients_have_a_time_and_those_with_corrupt_media_have_none() {
        let lane = Lane::new(Clock::start(), Options::default(), Totals::default().into());
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("viewers.jsonl");
        // Viewers are recorded when they leave, in any order.
        let records = [
            record(&lane, 4, 54.0, None),
            record(&lane, 0, 60.0, None),
            record(&lane, 1, 12.5, Some(Kind::Timeout)),
            record(&lane, 2, 60.0, Some(Kind::Corrupt)),
            record(&lane, 5, 60.0, Some(Kind::Garbage)),
            record(&lane, 3, 0.0, Some(Kind::Refused)),
        ];
        fs::write(&from, records.join("\n") + "\n").unwrap();
        let times = times(&from).unwrap();
        assert_eq!(times, [60_000.0, 12_500.0, 0.0, 54_000.0]);
        let to = folder.path().join("x.times");
        write(&times, &to).unwrap();
        assert_eq!(fs::read_to_string(to).unwrap(), "60000\n12500\n0\n54000\n");
    }
}
