//! The verb `run`: runs the trials of a scenario one after the other.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::course::minutes;
use super::folders::Folders;
use super::known::expected;
use super::machine::{ANY, cpus};
use super::plan::Plan;
pub use super::request::{Arguments, Document};
use super::runner::{AROUND, Runner};
use super::scenario::Scenario;
use super::signals::Interrupted;
use crate::Exit;
use crate::signals::INTERRUPTED;

impl Arguments {
    /// Does what the arguments ask for. Ends the program with status 130 after an interruption.
    ///
    /// # Errors
    /// A scenario or peer is unusable, or folders cannot be written to.
    pub fn run(&self) -> anyhow::Result<Exit> {
        let folders = Folders::find()?;
        let scenario = Scenario::read(&self.find(&folders)?)?;
        for (name, list) in [("server", &self.server_cpus), ("load", &self.load_cpus)] {
            let usable = list.as_deref().is_none_or(|list| list == ANY || cpus(list).is_some());
            ensure!(usable, "--{name}-cpus is not a list of processors");
        }
        let mut runner = Runner::new(self, folders, &scenario)?;
        let plan = runner.plan()?;
        if self.list {
            return list(&plan, &scenario, self.scale);
        }
        let document = match runner.run(&plan) {
            // Interrupted before the first trial.
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
    for (peer, why) in &document.run.absent {
        writeln!(out, "without {peer}: {why}")?;
    }
    if document.interrupted {
        writeln!(out, "interrupted: the same command goes on with it")?;
    }
    Ok(())
}
