//! The run of a scenario: prepares what it needs, runs its trials, and keeps trials from before.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::bench::Bench;
use super::binaries::Binaries;
use super::course::Course;
use super::folders::{Folders, Names};
use super::known::expected;
use super::link::Link;
use super::machine::Shares;
use super::media::Made;
use super::peer::Peer;
use super::plan::{Plan, Settings, Sweeps, Trial};
use super::record::{FORM, Machine, PeerVersion, Run};
use super::request::{Arguments, Document};
use super::scenario::{Scenario, Until};
use super::signals::Stop;
use super::trial::now;
use super::version::{self, version};
use super::{install, profile, record};
use crate::files::replace_json;
use crate::progress::Steps;

/// About how much starting and stopping a server adds to a trial.
pub(super) const AROUND: Duration = Duration::from_secs(1);

/// The work of a run in the units of its progress.
const ALL: u64 = 1000;

/// A prepared run.
pub(super) struct Runner<'a> {
    arguments: &'a Arguments,
    folders: Folders,
    scenario: &'a Scenario,
    settings: Settings,
    peers: BTreeMap<String, Peer>,
    absent: BTreeMap<String, String>,
    warnings: Vec<String>,
    shares: Shares,
}

impl<'a> Runner<'a> {
    /// Reads the peers.
    ///
    /// # Errors
    /// A peer or a program that was asked for does not exist, or the file of a peer is refused.
    pub(super) fn new(
        arguments: &'a Arguments,
        mut folders: Folders,
        scenario: &'a Scenario,
    ) -> anyhow::Result<Self> {
        let mut peers = BTreeMap::new();
        let mut names = Vec::new();
        for given in &arguments.peers {
            let peer = install::find(given, &folders)?;
            names.push(peer.name.clone());
            peers.insert(peer.name.clone(), peer);
        }
        let mut absent = BTreeMap::new();
        if names.is_empty() {
            for name in scenario.loads.iter().flat_map(|load| &load.peers) {
                let path = folders.peer(name);
                if path.is_file() {
                    peers.insert(name.clone(), Peer::read(&path)?);
                } else {
                    absent.insert(name.clone(), "there is no such file in lab/peers".to_owned());
                }
            }
        }
        folders.binaries = Binaries::new(&arguments.peer_bins, peers.values())?;
        let settings = Settings {
            scale: arguments.scale,
            repeat: arguments.repeat,
            loads: arguments.loads.clone(),
            peers: (!names.is_empty()).then_some(names),
        };
        let shares = Shares::new(arguments.server_cpus.as_deref(), arguments.load_cpus.as_deref());
        let mut warnings = Vec::new();
        if shares.server.is_none() || shares.load.is_none() {
            warnings.push("servers and loads shared processors".to_owned());
        }
        Ok(Self { arguments, folders, scenario, settings, peers, absent, warnings, shares })
    }

    /// Plans the trials, and checks that their templates can be filled in.
    ///
    /// # Errors
    /// They cannot. The error names file and load.
    pub(super) fn plan(&mut self) -> anyhow::Result<Plan<'a>> {
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

    /// Runs the trials.
    ///
    /// # Errors
    /// The folder has another run or cannot be written to, or media cannot be made.
    pub(super) fn run(mut self, plan: &Plan<'a>) -> anyhow::Result<Document> {
        let stop = Stop::on_signals()?;
        let progress = Steps::new(1);
        let out = self.folder();
        let before = self.resumed(&out)?;
        fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        let out = fs::canonicalize(&out)?;
        // Cargo's target folder, where peers are installed, too.
        let lab = self.folders.peers.with_file_name("lab");
        let (work, media) = (lab.join("work"), lab.join("media"));
        let made = Made::all(self.scenario, &media, &stop, &|what| progress.next(0, what))?;
        let wanted: HashSet<&str> = plan.trials.iter().map(|trial| &*trial.peer).collect();
        let mut versions = BTreeMap::new();
        for (name, peer) in self.peers.iter().filter(|(name, _)| wanted.contains(&***name)) {
            match version(peer, &self.folders) {
                Ok(version) => {
                    versions.insert(name.clone(), version);
                }
                Err(error) => {
                    progress.tell(&format!("without {name}: {error:#}"));
                    self.absent.insert(name.clone(), format!("{error:#}"));
                }
            }
        }
        let unusable = self.unusable(plan, &out, &stop);
        for warning in &self.warnings {
            progress.tell(warning);
        }
        let present: HashSet<String> = versions.keys().cloned().collect();
        let mut run = self.record(before, version::own()?, versions, &made);
        fs::write(out.join("scenario.toml"), &self.scenario.text)?;
        let mut folders = vec![
            (&*out, ""),
            (&self.folders.programs, ""),
            (&self.folders.repository, ""),
            (&self.folders.peers, "target/peers/"),
            (&work, "work/"),
            (&media, "media/"),
        ];
        self.folders.binaries.add_to(&mut folders);
        let names = Names::new(&folders);
        let texts = run.command.iter_mut().chain(&mut run.warnings).chain(run.absent.values_mut());
        for text in texts {
            *text = names.shorten(text);
        }
        replace_json(&out.join("run.json"), &run)?;
        let bench = Bench {
            names: &names,
            scenario: self.scenario,
            folders: &self.folders,
            peers: &self.peers,
            made: &made,
            out: &out,
            scratch: &work,
            server_cpus: self.shares.server.as_deref(),
            load_cpus: self.shares.load.as_deref(),
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
        ensure!(!trials.is_empty(), "there is nothing to run: no load is left, or no peer for it");
        self.shares.take_seat()?;
        let mut document = carry_out(&bench, &trials, &progress)?;
        run.ended = (!document.interrupted).then(now);
        replace_json(&out.join("run.json"), &run)?;
        document.run = run;
        Ok(document)
    }

    /// Reads the record of the same run, if there is one.
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
        let machine = Machine::read(&self.shares);
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

    /// Makes the run.json for the beginning of the first trial.
    fn record(
        &mut self,
        before: Option<Run>,
        instrument: PeerVersion,
        peers: BTreeMap<String, PeerVersion>,
        made: &Made,
    ) -> Run {
        let machine = Machine::read(&self.shares);
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
            instrument,
            peers,
            media: made.sums.clone(),
            absent: std::mem::take(&mut self.absent),
            warnings: std::mem::take(&mut self.warnings),
        };
        let Some(before) = before else { return run };
        let mut compare = |name: &str, now: &PeerVersion, before: &PeerVersion| {
            if !now.may_be(before) {
                let before = before.named();
                run.warnings.push(format!("{name} was another when the run began: {before}"));
            }
        };
        // Older records do not name it.
        if !before.instrument.title.is_empty() {
            compare(&before.instrument.title, &run.instrument, &before.instrument);
        }
        for (name, version) in before.peers {
            compare(
                &name,
                run.peers.entry(name.clone()).or_insert_with(|| version.clone()),
                &version,
            );
        }
        for warning in before.warnings {
            if !run.warnings.contains(&warning) {
                run.warnings.push(warning);
            }
        }
        run
    }

    /// Finds the loads that this machine cannot run, and those whose servers it cannot profile.
    fn unusable(
        &mut self,
        plan: &Plan<'_>,
        out: &Path,
        stop: &Stop,
    ) -> HashSet<(Unusable, String)> {
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
            if let Some(missing) = load.missing() {
                self.warnings.push(format!("{}: left out: {missing}", load.name));
                unusable.insert((Unusable::Load, load.name.clone()));
            }
            if load.profile
                && let Err(error) = perf.get_or_insert_with(|| profile::check(out, stop))
            {
                let warning = format!("servers are not profiled: {error:#}");
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
                unusable.insert((Unusable::Profile, load.name.clone()));
            }
        }
        unusable
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Unusable {
    Load,
    Profile,
}

/// Runs the trials that have no record yet.
fn carry_out(
    bench: &Bench<'_>,
    trials: &[&Trial<'_>],
    progress: &Steps,
) -> anyhow::Result<Document> {
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
    let planned = trials.iter().map(|trial| (&*trial.load.name, takes(trial, bench)));
    let mut course = Course::new(bench.scenario, planned);
    let mut before = Vec::with_capacity(trials.len());
    for (number, trial) in trials.iter().enumerate() {
        let there = record::Trial::read(&bench.out.join(&trial.folder))?;
        before.push(there.filter(|kept| kept.failed.is_none()));
        if before[number].is_some() {
            course.skip(number);
        }
    }
    progress.begin(ALL);
    for (number, (trial, before)) in trials.iter().zip(before).enumerate() {
        if sweeps.is_over(trial) {
            document.left_out += 1;
            continue;
        }
        let name = trial.folder.strip_prefix("trials").unwrap_or(&trial.folder).display();
        let kept = match before {
            Some(kept) => {
                document.kept += 1;
                kept
            }
            None => {
                let line = format!("{} {name}", course.before(number));
                progress.next(course.done(ALL), &line);
                let kept = bench.run(trial)?;
                course.ran(number, Duration::try_from_secs_f64(kept.elapsed).unwrap_or_default());
                kept
            }
        };
        course.has(&kept);
        if bench.stop.is_asked() {
            document.interrupted = true;
            break;
        }
        // If the line above does not stay, this line names the trial.
        let about = if progress.is_shown() { format!("{name}: ") } else { "  ".to_owned() };
        let refused = kept.commands.iter().any(|c| c.role == "load" && c.status == Some(1));
        if let Some(why) = &kept.failed {
            progress.tell(&format!("{about}failed: {why}"));
            document.failed.insert(trial.folder.display().to_string(), why.clone());
        } else if kept.saturated && trial.load.until != Some(Until::Saturated) {
            progress.tell(&format!("{about}the generator was the limit: not to be trusted"));
            document.saturated.push(trial.folder.display().to_string());
        }
        if kept.failed.is_some() || kept.saturated || refused {
            sweeps.end(trial);
            let over = |(_, trial): &(usize, &&Trial<'_>)| sweeps.is_over(trial);
            trials.iter().enumerate().filter(over).for_each(|(number, _)| course.skip(number));
        }
    }
    Ok(document)
}

fn takes(trial: &Trial<'_>, bench: &Bench<'_>) -> Duration {
    // Its templates were filled in before.
    AROUND + expected(trial, bench.scenario, bench.scale).unwrap_or_default()
}
