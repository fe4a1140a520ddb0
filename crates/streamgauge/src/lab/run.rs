//! The verb `run`: a scenario's trials, one after the other.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::folders::Folders;
use super::link::Link;
use super::machine::cpus;
use super::media::Made;
use super::peer::Peer;
use super::plan::{Plan, Settings, Sweeps, Trial};
use super::record::{FORM, Machine, PeerVersion, Run};
use super::scenario::{Scenario, Until};
use super::signals::{INTERRUPTED, Interrupted, Stop};
use super::trial::{Bench, expected, now, write_json};
use super::{install, profile, record};
use crate::Exit;

/// What starting and stopping a server adds to a trial, about.
const AROUND: Duration = Duration::from_secs(1);

/// Repeats a study: every peer of a scenario under every load, one after the other
/// (docs/scenarios.md)
#[derive(Debug, Args)]
pub struct Arguments {
    /// A scenario's file, or the name of one in lab/scenarios
    scenario: String,
    /// Only these peers: names of those in lab/peers, or files; may be repeated
    #[arg(long = "peer", value_name = "NAME|FILE.toml")]
    peers: Vec<String>,
    /// Only these loads; may be repeated
    #[arg(long = "load", value_name = "NAME")]
    loads: Vec<String>,
    /// Times and repetitions are so much smaller; below 0.1 loads as well
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Repetitions of every case, instead of what the scenario says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: Option<u32>,
    /// Processors that servers run on, as taskset has them: 0, 0-3, 0,2
    #[arg(long, value_name = "LIST")]
    server_cpus: Option<String>,
    /// Processors that loads run on
    #[arg(long, value_name = "LIST")]
    load_cpus: Option<String>,
    /// Where all of it is kept; one that has a part of the same run already is gone on with
    /// (lab/runs/DATE-SCENARIO)
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// List the trials, and how long they take, without running them
    #[arg(long)]
    list: bool,
    /// One document on standard output, docs/schema/run.schema.json
    #[arg(long)]
    json: bool,
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
            let usable = list.as_deref().is_none_or(|list| cpus(list).is_some());
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

/// A run that is prepared.
struct Runner<'a> {
    arguments: &'a Arguments,
    folders: &'a Folders,
    scenario: &'a Scenario,
    settings: Settings,
    peers: BTreeMap<String, Peer>,
    absent: BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl<'a> Runner<'a> {
    fn new(
        arguments: &'a Arguments,
        folders: &'a Folders,
        scenario: &'a Scenario,
    ) -> anyhow::Result<Self> {
        let mut peers = BTreeMap::new();
        let mut names = Vec::new();
        for given in &arguments.peers {
            let peer = install::find(given, folders)?;
            names.push(peer.name.clone());
            peers.insert(peer.name.clone(), peer);
        }
        let mut absent = BTreeMap::new();
        if names.is_empty() {
            for name in scenario.loads.iter().flat_map(|load| &load.peers) {
                let path = file_of(folders, name);
                if path.is_file() {
                    peers.insert(name.clone(), Peer::read(&path)?);
                } else {
                    absent.insert(name.clone(), "there is no such file in lab/peers".to_owned());
                }
            }
        }
        let settings = Settings {
            scale: arguments.scale,
            repeat: arguments.repeat,
            loads: arguments.loads.clone(),
            peers: (!names.is_empty()).then_some(names),
        };
        let warnings = Vec::new();
        Ok(Self { arguments, folders, scenario, settings, peers, absent, warnings })
    }

    fn plan(&mut self) -> anyhow::Result<Plan<'a>> {
        let shown = || self.scenario.path.display().to_string();
        let serves = |peer: &str, job: &str| -> Option<bool> {
            Some(self.peers.get(peer)?.serves(job.parse().ok()?).is_some())
        };
        let plan = Plan::new(self.scenario, &self.settings, &serves).with_context(shown)?;
        for trial in &plan.trials {
            expected(trial, self.scenario, self.settings.scale)
                .with_context(|| format!("load {:?}", trial.load.name))
                .with_context(shown)?;
        }
        self.warnings.extend(plan.notes.iter().cloned());
        Ok(plan)
    }

    fn folder(&self) -> PathBuf {
        self.arguments.output.clone().unwrap_or_else(|| {
            let today = now();
            let today = today.split('T').next().unwrap_or_default();
            self.folders.repository.join(format!("lab/runs/{today}-{}", self.scenario.name))
        })
    }

    fn run(mut self, plan: &Plan<'a>) -> anyhow::Result<Document> {
        let stop = Stop::on_signals()?;
        let out = self.folder();
        let before = self.resumed(&out)?;
        fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        let out = fs::canonicalize(&out)?;
        // Beside what is installed for peers: Cargo's target folder.
        let lab = self.folders.peers.with_file_name("lab");
        let made = Made::all(self.scenario, &lab.join("media"), &|| stop.is_asked(), &tell);
        let made =
            made.map_err(|error| if stop.is_asked() { Interrupted.into() } else { error })?;
        let wanted: HashSet<&str> = plan.trials.iter().map(|trial| &*trial.peer).collect();
        let mut versions = BTreeMap::new();
        for (name, peer) in self.peers.iter().filter(|(name, _)| wanted.contains(&***name)) {
            match install::version(peer, self.folders) {
                Ok(version) => {
                    let title = peer.title.clone();
                    versions.insert(name.clone(), PeerVersion { title, version });
                }
                Err(error) => {
                    tell(&format!("without {name}: {error:#}"));
                    self.absent.insert(name.clone(), format!("{error:#}"));
                }
            }
        }
        let unusable = self.unusable(plan, &out);
        let present: HashSet<String> = versions.keys().cloned().collect();
        let mut run = self.record(before, versions, &made);
        write_json(&out.join("run.json"), &run)?;
        fs::write(out.join("scenario.toml"), &self.scenario.text)?;
        let bench = Bench {
            scenario: self.scenario,
            folders: self.folders,
            peers: &self.peers,
            made: &made,
            out: &out,
            scratch: &lab.join("work"),
            server_cpus: self.arguments.server_cpus.as_deref(),
            load_cpus: self.arguments.load_cpus.as_deref(),
            stop: &stop,
            scale: self.settings.scale,
        };
        let takes_part = |trial: &&Trial<'_>| {
            let kind = if trial.is_profile() { Unusable::Profile } else { Unusable::Load };
            present.contains(&trial.peer)
                && !unusable.contains(&(Unusable::Load, trial.load.name.clone()))
                && !unusable.contains(&(kind, trial.load.name.clone()))
        };
        let trials: Vec<_> = plan.trials.iter().filter(takes_part).collect();
        ensure!(!trials.is_empty(), "there is nothing to run: no peer can take part");
        let mut document = carry_out(&bench, &trials)?;
        run.ended = Some(now());
        write_json(&out.join("run.json"), &run)?;
        document.run = run;
        Ok(document)
    }

    /// What there is of the same run already.
    fn resumed(&self, out: &Path) -> anyhow::Result<Option<Run>> {
        let path = out.join("run.json");
        let shown = || path.display().to_string();
        if !path.exists() {
            return Ok(None);
        }
        let run: Run =
            serde_json::from_slice(&fs::read(&path).with_context(shown)?).with_context(shown)?;
        ensure!(run.form == FORM, "{}: of another version of this program", shown());
        let text = fs::read_to_string(out.join("scenario.toml")).with_context(shown)?;
        let machine = Machine::read(
            self.arguments.server_cpus.as_deref().unwrap_or_default(),
            self.arguments.load_cpus.as_deref().unwrap_or_default(),
        );
        let same_cpus = (&run.machine.server_cpus, &run.machine.load_cpus)
            == (&machine.server_cpus, &machine.load_cpus);
        for (same, what) in [
            (run.scenario == self.scenario.name && text == self.scenario.text, "scenario"),
            ((run.scale - self.settings.scale).abs() < 1e-9, "scale"),
            (same_cpus, "choice of processors"),
        ] {
            ensure!(same, "{} has a run of another {what}: give another -o", out.display());
        }
        Ok(Some(run))
    }

    /// run.json, as it is when the first trial begins.
    fn record(
        &mut self,
        before: Option<Run>,
        peers: BTreeMap<String, PeerVersion>,
        made: &Made,
    ) -> Run {
        let Arguments { server_cpus, load_cpus, .. } = self.arguments;
        let machine = Machine::read(
            server_cpus.as_deref().unwrap_or_default(),
            load_cpus.as_deref().unwrap_or_default(),
        );
        let began = before.as_ref().map_or_else(now, |run| run.began.clone());
        let mut run = Run {
            form: FORM,
            scenario: self.scenario.name.clone(),
            title: self.scenario.title.clone(),
            scale: self.settings.scale,
            began,
            ended: None,
            command: std::env::args().collect(),
            machine,
            peers,
            media: made.sums.clone(),
            absent: std::mem::take(&mut self.absent),
            warnings: std::mem::take(&mut self.warnings),
        };
        let Some(before) = before else { return run };
        for (name, version) in before.peers {
            let now = run.peers.entry(name.clone()).or_insert_with(|| version.clone());
            if now.version != version.version {
                run.warnings
                    .push(format!("{name} was another when the run began: {}", version.version));
            }
        }
        for warning in before.warnings {
            if !run.warnings.contains(&warning) {
                run.warnings.push(warning);
            }
        }
        run
    }

    /// Loads that this machine cannot do, and those whose servers it cannot profile.
    fn unusable(&mut self, plan: &Plan<'_>, out: &Path) -> HashSet<(Unusable, String)> {
        let mut unusable = HashSet::new();
        let mut checked = HashSet::new();
        let mut perf = None;
        for load in plan.trials.iter().map(|trial| trial.load) {
            if !checked.insert(&load.name) {
                continue;
            }
            if let Some(Err(error)) = load.link.as_deref().map(Link::new) {
                self.warnings.push(format!("{}: left out: no link: {error:#}", load.name));
                unusable.insert((Unusable::Load, load.name.clone()));
            }
            if load.profile
                && let Err(error) = perf.get_or_insert_with(|| profile::check(out))
            {
                let warning = format!("servers are not profiled: {error:#}");
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
                unusable.insert((Unusable::Profile, load.name.clone()));
            }
        }
        for warning in &self.warnings {
            tell(warning);
        }
        unusable
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Unusable {
    Load,
    Profile,
}

/// Runs those trials that are not there yet.
fn carry_out(bench: &Bench<'_>, trials: &[&Trial<'_>]) -> anyhow::Result<Document> {
    let mut document = Document {
        folder: bench.out.display().to_string(),
        run: Run::default(),
        trials: trials.len() as u64,
        kept: 0,
        left_out: 0,
        failed: BTreeMap::new(),
        saturated: Vec::new(),
        interrupted: false,
    };
    let mut sweeps = Sweeps::default();
    let mut left: Duration = trials.iter().map(|trial| takes(trial, bench)).sum();
    for (number, trial) in trials.iter().enumerate() {
        let expected = takes(trial, bench);
        left = left.saturating_sub(expected);
        if sweeps.is_over(trial) {
            document.left_out += 1;
            continue;
        }
        let name = trial.folder.strip_prefix("trials").unwrap_or(&trial.folder).display();
        let there = record::Trial::read(&bench.out.join(&trial.folder))?;
        let kept = match there.filter(|kept| kept.failed.is_none()) {
            Some(kept) => {
                document.kept += 1;
                kept
            }
            None => {
                let (at, of) = (number + 1, trials.len());
                tell(&format!("[{at}/{of}, {} to go] {name}", minutes(left + expected)));
                bench.run(trial)?
            }
        };
        if bench.stop.is_asked() {
            document.interrupted = true;
            break;
        }
        let refused = kept.commands.iter().any(|c| c.role == "load" && c.status == Some(1));
        if let Some(why) = &kept.failed {
            tell(&format!("  failed: {why}"));
            document.failed.insert(trial.folder.display().to_string(), why.clone());
        } else if kept.saturated && trial.load.until != Some(Until::Saturated) {
            tell("  the generator was the limit: not to be trusted");
            document.saturated.push(trial.folder.display().to_string());
        }
        if kept.failed.is_some() || kept.saturated || refused {
            sweeps.end(trial);
        }
    }
    Ok(document)
}

fn takes(trial: &Trial<'_>, bench: &Bench<'_>) -> Duration {
    // Its templates have been filled in before.
    AROUND + expected(trial, bench.scenario, bench.scale).unwrap_or_default()
}

fn file_of(folders: &Folders, name: &str) -> PathBuf {
    folders.repository.join("lab/peers").join(format!("{name}.toml"))
}

fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[expect(clippy::print_stderr, reason = "the program's own progress")]
fn tell(text: &str) {
    eprintln!("{text}");
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
