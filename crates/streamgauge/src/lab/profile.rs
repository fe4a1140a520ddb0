//! Profiles a server: perf(1) runs beside the load and reports where the server spends its time.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::log::last_lines;
use super::program::{Program, Seat};
use super::signals::Stop;

/// Samples per second. The number is odd, so that samples do not keep step with the server's
/// timers.
const FREQUENCY: &str = "199";
/// How many lines of the report are kept.
const LINES: usize = 300;
/// How long perf may take for its report.
const LONGEST: Duration = Duration::from_secs(120);

/// Checks that perf can be used here.
///
/// # Errors
/// It cannot; the error says why.
pub(super) fn check(folder: &Path, stop: &Stop) -> anyhow::Result<()> {
    let data = folder.join("perf.check").to_string_lossy().into_owned();
    let words = ["perf", "record", "-g", "-F", FREQUENCY, "-o", &data, "--", "true"];
    let result = run(&words, &folder.join("perf.log"), stop);
    let _ = fs::remove_file(data);
    let _ = fs::remove_file(folder.join("perf.log"));
    result
}

/// The command that records processes until it is interrupted.
pub(super) fn command(pids: &[i32], folder: &Path) -> Vec<String> {
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    let data = folder.join("perf.data").to_string_lossy().into_owned();
    let words = ["perf", "record", "-g", "-F", FREQUENCY, "-o", &data, "-p", &pids.join(",")];
    words.map(str::to_owned).to_vec()
}

/// Writes the first lines of the report to `profile.txt`.
pub(super) fn report(folder: &Path, stop: &Stop) -> anyhow::Result<()> {
    let data = folder.join("perf.data");
    let out = folder.join("profile.txt");
    let path = data.to_string_lossy().into_owned();
    run(&["perf", "report", "--stdio", "--no-children", "-i", &path], &out, stop)?;
    let text = fs::read(&out)?;
    // Without samples the report names the file. Records must not contain folders of this machine.
    let text = String::from_utf8_lossy(&text).replace(&path, "perf.data");
    let head: Vec<_> = text.lines().take(LINES).collect();
    fs::write(&out, head.join("\n") + "\n")?;
    fs::remove_file(data).context("perf.data")
}

fn run(words: &[&str], out: &Path, stop: &Stop) -> anyhow::Result<()> {
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut program = Program::start("profile", &Seat::default(), &words, out, out)?;
    program.wait(LONGEST, stop)?;
    ensure!(program.status() == Some(0), "perf: {}", last_lines(out));
    Ok(())
}
