//! Reads run folders, and combines runs of the same scenario. `report` and `compare` use it.
//!
//! A folder may come from anywhere. Every file is read up to a limit, and an error names the file.
//!
//! [`statistics`] summarises repetitions, [`bootstrap`] tells how sure a change is, [`marks`] tells which figures are doubtful, [`metric`]
//! tells which metrics say how good a server is, [`limit`] tells what limited it, and [`dimension`] writes parameters.

pub(crate) mod bootstrap;
pub(crate) mod dimension;
pub(crate) mod limit;
pub(crate) mod marks;
pub(crate) mod metric;
pub(crate) mod statistics;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use indexmap::{IndexMap, IndexSet};
use serde::de::DeserializeOwned;

use crate::files::bytes;
use crate::lab::record::{FORM, INTERRUPTED, Parameters, PeerVersion, Run, Trial, Value};
use crate::lab::scenario::{Load, Scenario};
use crate::percentile;
use crate::progress::Steps;

const MIB: u64 = 1 << 20;
/// The most trials in all runs of a report.
const MOST_TRIALS: usize = 100_000;

/// Runs of one scenario that count as one: with the same text and scale, on similar machines.
#[derive(Debug)]
pub(crate) struct Study {
    pub(crate) scenario: Scenario,
    pub(crate) runs: Vec<Run>,
    /// In the order of the scenario.
    pub(crate) trials: Vec<Kept>,
    /// All peers, in the order of display.
    pub(crate) peers: Vec<Peer>,
    /// How many peers all studies have together: no peer's look is as large.
    pub(crate) looks: usize,
}

/// A trial and its folder.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) folder: PathBuf,
    pub(crate) trial: Trial,
}

/// A peer that was measured, or should have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) title: String,
    /// The versions that its program printed in the runs, with their builds, without repetitions.
    pub(crate) versions: Vec<String>,
    /// Its number among the peers of all studies. It decides how the peer is drawn, so that a peer
    /// looks the same in all figures of a report.
    pub(crate) look: usize,
}

/// Reads run folders.
///
/// # Errors
/// A file is missing, damaged, too large or of another form. The error names it.
pub(crate) fn read(folders: &[PathBuf], progress: &Steps) -> anyhow::Result<Vec<Study>> {
    let mut studies: Vec<Study> = Vec::new();
    let mut room = MOST_TRIALS;
    for (number, folder) in folders.iter().enumerate() {
        progress.show(number as u64, &format!("reading {}", folder.display()));
        let (run, scenario, trials) = read_run(folder, &mut room)?;
        let same = |study: &&mut Study| {
            study.scenario.text == scenario.text
                && study.scenario.name == scenario.name
                && study
                    .runs
                    .iter()
                    .all(|other| other.scale == run.scale && other.machine.is_like(&run.machine))
        };
        if let Some(study) = studies.iter_mut().find(same) {
            study.runs.push(run);
            study.trials.extend(trials);
        } else {
            studies.push(Study { scenario, runs: vec![run], trials, peers: vec![], looks: 0 });
        }
    }
    for study in &mut studies {
        study.put_in_order();
    }
    give_looks(&mut studies);
    Ok(studies)
}

/// Numbers the peers of all studies. Peers that more studies have come first: there are fewer
/// colours than peers may be.
fn give_looks(studies: &mut [Study]) {
    let mut all: IndexMap<String, usize> = IndexMap::new();
    for peer in studies.iter().flat_map(|study| &study.peers) {
        *all.entry(peer.name.clone()).or_default() += 1;
    }
    all.sort_by(|_, a, _, b| b.cmp(a));
    for study in studies {
        study.looks = all.len();
        for peer in &mut study.peers {
            peer.look = all.get_index_of(&peer.name).unwrap_or_default();
        }
    }
}

fn read_run(folder: &Path, room: &mut usize) -> anyhow::Result<(Run, Scenario, Vec<Kept>)> {
    let path = folder.join("run.json");
    let run: Run = json(&path, MIB)?;
    ensure!(run.form == FORM, "{}: form {}, not {FORM}", path.display(), run.form);
    ensure!(run.scale > 0.0, "{}: a scale of {}", path.display(), run.scale);
    let mut scenario = Scenario::read(&folder.join("scenario.toml"))?;
    scenario.name.clone_from(&run.scenario);
    let mut trials = Vec::new();
    find(&folder.join("trials"), 4, &mut |path| {
        ensure!(*room > 0, "{}: more than {MOST_TRIALS} trials", folder.display());
        *room -= 1;
        let trial: Trial = json(path, 4 * MIB)?;
        ensure!(trial.form == FORM, "{}: form {}, not {FORM}", path.display(), trial.form);
        if scenario.load(&trial.load).is_none() {
            bail!("{}: the scenario has no load {:?}", path.display(), trial.load);
        }
        trials.push(Kept { folder: path.parent().unwrap_or(path).to_owned(), trial });
        Ok(())
    })?;
    Ok((run, scenario, trials))
}

/// Calls `found` for each `trial.json` that lies `depth` folders below, in the order of names. A
/// trial that is still running has none yet.
fn find(
    folder: &Path,
    depth: u32,
    found: &mut impl FnMut(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if depth == 0 {
        let path = folder.join("trial.json");
        return if path.exists() { found(&path) } else { Ok(()) };
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| folder.display().to_string()),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| folder.display().to_string())?;
        ensure!(names.len() < MOST_TRIALS, "{}: too many entries", folder.display());
        if entry.path().is_dir() {
            names.push(entry.path());
        }
    }
    names.sort();
    names.iter().try_for_each(|name| find(name, depth - 1, found))
}

fn json<T: DeserializeOwned>(path: &Path, limit: u64) -> anyhow::Result<T> {
    serde_json::from_slice(&bytes(path, limit)?).with_context(|| path.display().to_string())
}

/// The note where values are left out because of the scale.
pub(crate) const NOT_WHOLE: &str =
    "Left out where the run was scaled: a shorter or smaller load would measure something else.";

/// The quantile of a metric that is a percentile over the requests of a load, not over viewers.
pub(crate) fn percentile_of_requests(metric: &str) -> Option<f64> {
    let name = metric.strip_suffix("_ms")?;
    let of_requests = ["latency_", "first_byte_"].iter().any(|kind| name.starts_with(kind));
    percentile::stated(name).filter(|_| of_requests)
}

impl Kept {
    /// A metric of a trial that did not fail. Runs made before streamgauge left them out may have
    /// percentiles for which there were too few requests. They are left out here.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let too_few = percentile_of_requests(name)
            .zip(self.requests())
            .is_some_and(|(quantile, count)| !percentile::has(count as u64, quantile));
        if self.trial.failed.is_some() || too_few {
            return None;
        }
        self.trial.metrics.get(name).copied().filter(|value| value.is_finite())
    }

    /// Whether its load had the study's length and size.
    pub(crate) fn is_whole(&self) -> bool {
        self.trial.scaled.is_empty()
    }

    /// How many answers the percentiles of requests are of.
    pub(crate) fn requests(&self) -> Option<f64> {
        self.trial.metrics.get("responses").copied().filter(|count| count.is_finite())
    }

    /// Whether its metrics count. Repetition 0 only has a profile, and an interruption tells nothing of the server.
    pub(crate) fn counts(&self) -> bool {
        self.trial.repetition > 0 && self.trial.failed.as_deref() != Some(INTERRUPTED)
    }

    /// The profile of the server, if there is one.
    pub(crate) fn profile(&self) -> Option<String> {
        const LINES: usize = 40;
        let profile = bytes(&self.folder.join("profile.txt"), 4 * MIB).ok()?;
        let profile = String::from_utf8_lossy(&profile);
        let kept: Vec<&str> = profile
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
            .take(LINES)
            .collect();
        (!kept.is_empty()).then(|| kept.join("\n"))
    }
}

impl Study {
    /// Factor on times, compared with the study.
    pub(crate) fn scale(&self) -> f64 {
        self.runs.first().map_or(1.0, |run| run.scale)
    }

    /// Number of a peer in the order of display.
    pub(crate) fn peer(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|peer| peer.name == name)
    }

    pub(crate) fn title(&self, name: &str) -> String {
        self.peer(name).map_or(name.to_owned(), |at| self.peers[at].title.clone())
    }

    /// Describes a trial: `Runs 000–014, 400 clients, nginx, repetition 2`.
    pub(crate) fn called(&self, kept: &Kept) -> String {
        let trial = &kept.trial;
        let load = self.scenario.load(&trial.load).map(|load| load.title.clone());
        let mut words = vec![load.filter(|title| !title.is_empty()).unwrap_or(trial.load.clone())];
        words.extend(trial.parameters.iter().map(|(name, value)| dimension::full(name, value)));
        words.push(self.title(&trial.peer));
        words.push(format!("repetition {}", trial.repetition));
        words.join(", ")
    }

    /// The trials of a load whose metrics count.
    pub(crate) fn trials_of<'a>(&'a self, load: &'a str) -> impl Iterator<Item = &'a Kept> {
        self.trials.iter().filter(move |kept| kept.counts() && kept.trial.load == load)
    }

    /// Sorts peers in the order of the loads, and others after them by name. Sorts trials by load,
    /// case and peer.
    fn put_in_order(&mut self) {
        let mut names: Vec<String> = Vec::new();
        let named = self.scenario.loads.iter().flat_map(|load| load.peers.iter().cloned());
        let ran = self.runs.iter().flat_map(|run| run.peers.keys().cloned());
        let tried = self.trials.iter().map(|kept| kept.trial.peer.clone());
        let there: BTreeMap<String, ()> = ran.chain(tried).map(|name| (name, ())).collect();
        for name in named.filter(|name| there.contains_key(name)).chain(there.keys().cloned()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        self.peers = names.into_iter().map(|name| self.describe(name)).collect();
        let order = |kept: &Kept| {
            let trial = &kept.trial;
            let load = self.scenario.loads.iter().position(|load| load.name == trial.load);
            let case = load.map(|at| case_order(&self.scenario.loads[at], &trial.parameters));
            let peer = self.peers.iter().position(|peer| peer.name == trial.peer);
            (load, case, peer, trial.repetition)
        };
        let mut trials = std::mem::take(&mut self.trials);
        trials.sort_by_cached_key(order);
        self.trials = trials;
    }

    fn describe(&self, name: String) -> Peer {
        let mut peer = Peer { title: name.clone(), name, versions: vec![], look: 0 };
        let mut found: Vec<&PeerVersion> = vec![];
        for version in self.runs.iter().filter_map(|run| run.peers.get(&peer.name)) {
            if !version.title.trim().is_empty() {
                version.title.trim().clone_into(&mut peer.title);
            }
            found.push(version);
        }
        // An older run, which names no build, may be of a build that another run names.
        let is_named = |version: &PeerVersion| {
            let may_be = |other: &&PeerVersion| !other.build.is_empty() && other.may_be(version);
            !version.build.is_empty() || !found.iter().any(may_be)
        };
        let named = found.iter().filter(|version| is_named(version)).map(|it| it.named());
        peer.versions = named.collect::<IndexSet<_>>().into_iter().collect();
        peer
    }
}

/// Place of a case among the cases of its load: the index of each parameter's value.
pub(crate) fn case_order(load: &Load, parameters: &Parameters) -> Vec<usize> {
    let place = |(name, values): (&String, &Vec<Value>)| {
        let value = parameters.get(name);
        values.iter().position(|other| Some(other) == value).unwrap_or(usize::MAX)
    };
    load.cases.iter().map(place).collect()
}
