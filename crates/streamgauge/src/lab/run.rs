//! The verb `run`: a scenario's trials, one after the other.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::folders::Folders;
use super::known::expected;
use super::machine::{ANY, cpus};
use super::plan::Plan;
use super::record::Run;
use super::runner::{AROUND, Runner, minutes};
use super::scenario::Scenario;
use super::signals::Interrupted;
use crate::Exit;
use crate::signals::INTERRUPTED;

/// Repeats a study: every peer of a scenario under every load, one after the other
/// (docs/scenarios.md)
#[derive(Debug, Args)]
pub struct Arguments {
    /// A scenario's file, or the name of one in lab/scenarios
    pub(super) scenario: String,
    /// Only these peers: names of those in lab/peers, or files; may be repeated
    #[arg(long = "peer", value_name = "NAME|FILE.toml")]
    pub(super) peers: Vec<String>,
    /// Only these loads; may be repeated
    #[arg(long = "load", value_name = "NAME")]
    pub(super) loads: Vec<String>,
    /// Times and repetitions are so much smaller; below 0.1 loads as well
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub(super) scale: f64,
    /// Repetitions of every case, instead of what the scenario says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) repeat: Option<u32>,
    /// Processors that servers run on, as taskset has them: 0, 0-3, 0,2; any (the lower half)
    #[arg(long, value_name = "LIST")]
    pub(super) server_cpus: Option<String>,
    /// Processors that loads run on; any (the upper half)
    #[arg(long, value_name = "LIST")]
    pub(super) load_cpus: Option<String>,
    /// Where all of it is kept; one that has a part of the same run already is gone on with
    /// (lab/runs/DATE-SCENARIO)
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// List the trials, and how long they take, without running them
    #[arg(long)]
    pub(super) list: bool,
    /// One document on standard output, docs/schema/run.schema.json
    #[arg(long)]
    pub(super) json: bool,
}

/// What `run` prints with `--json`. The trials themselves are in the folder.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// Where it is kept.
    pub folder: String,
    /// What run.json says.
    pub run: Run,
    /// Trials of the scenario that were to be run.
    pub trials: u64,
    /// Those that were there from before.
    pub kept: u64,
    /// Those that were left out, since their sweep had come to its end.
    pub left_out: u64,
    /// Those without figures, by folder, and why.
    pub failed: BTreeMap<String, String>,
    /// Those whose figures are not to be trusted, by folder, since the generator was the limit.
    pub saturated: Vec<String>,
    /// Whether it was interrupted; the same command goes on with it.
    pub interrupted: bool,
}

impl Document {
    fn exit(&self) -> Exit {
        if !self.failed.is_empty() {
            Exit::Failed
        } else if self.saturated.is_empty() {
            Exit::Success
        } else {
            Exit::Saturated
        }
    }
}

impl Arguments {
    /// Does what was asked for. The program ends with status 130 where it was interrupted.
    ///
    /// # Errors
    /// A scenario or peer that cannot be used, or folders that cannot be written to.
    pub fn run(&self) -> anyhow::Result<Exit> {
        let folders = Folders::find()?;
        let scenario = Scenario::read(&self.find(&folders)?)?;
        for (name, list) in [("server", &self.server_cpus), ("load", &self.load_cpus)] {
            let usable = list.as_deref().is_none_or(|list| list == ANY || cpus(list).is_some());
            ensure!(usable, "--{name}-cpus is not a list of processors");
        }
        let mut runner = Runner::new(self, &folders, &scenario)?;
        let plan = runner.plan()?;
        if self.list {
            return list(&plan, &scenario, self.scale);
        }
        let document = match runner.run(&plan) {
            // Before the first trial.
            Err(error) if error.is::<Interrupted>() => std::process::exit(INTERRUPTED),
            result => result?,
        };
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &document)?;
            out.write_all(b"\n")?;
        } else {
            show(&document, &mut out)?;
        }
        if document.interrupted {
            out.flush()?;
            std::process::exit(INTERRUPTED);
        }
        Ok(document.exit())
    }

    fn find(&self, folders: &Folders) -> anyhow::Result<PathBuf> {
        let given = PathBuf::from(&self.scenario);
        if given.is_file() || self.scenario.contains('/') || self.scenario.ends_with(".toml") {
            return Ok(given);
        }
        let name = format!("lab/scenarios/{}.toml", self.scenario);
        let places = [PathBuf::from(&name), folders.repository.join(&name)];
        let found = places.into_iter().find(|path| path.is_file());
        found.with_context(|| format!("there is no scenario {:?} in lab/scenarios", self.scenario))
    }
}

fn list(plan: &Plan<'_>, scenario: &Scenario, scale: f64) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    let mut all = Duration::ZERO;
    for trial in &plan.trials {
        let time = AROUND + expected(trial, scenario, scale)?;
        all += time;
        let name = trial.folder.strip_prefix("trials").unwrap_or(&trial.folder).display();
        writeln!(out, "{:>6}  {name}", format!("{:.0} s", time.as_secs_f64()))?;
    }
    for note in &plan.notes {
        writeln!(out, "{note}")?;
    }
    writeln!(out, "{} trials, about {}", plan.trials.len(), minutes(all))?;
    Ok(Exit::Success)
}

fn show(document: &Document, out: &mut dyn Write) -> std::io::Result<()> {
    let Document { folder, trials, kept, left_out, failed, saturated, .. } = document;
    writeln!(
        out,
        "{folder}: {trials} trials ({kept} from before, {left_out} beyond the end of their sweep), \
         {} failed, {} saturated",
        failed.len(),
        saturated.len()
    )?;
    for (trial, why) in failed {
        writeln!(out, "{trial}: {why}")?;
    }
    if document.interrupted {
        writeln!(out, "interrupted: the same command goes on with it")?;
    }
    Ok(())
}
