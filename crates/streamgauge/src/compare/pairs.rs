//! Which trials of two runs may be compared: those of one load, with the same parameters, of one
//! server.

use std::collections::BTreeMap;

use anyhow::ensure;
use indexmap::IndexMap;

use crate::lab::scenario::Scenario;
use crate::runs::{Kept, Study, dimension};

/// The most repetitions of a case. Each is drawn many times.
const MOST_REPETITIONS: usize = 1000;

/// The repetitions of a server in one case of a load, in both runs. One of the runs may have none.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    pub(super) load: &'a str,
    pub(super) peer: &'a str,
    pub(super) before: Vec<&'a Kept>,
    pub(super) after: Vec<&'a Kept>,
}

/// The trials of two runs, side by side.
#[derive(Debug)]
pub(super) struct Pairs<'a> {
    /// In the order of the scenario.
    pub(super) pairs: Vec<Pair<'a>>,
    /// Loads that are not the same in both scenarios, by name. Their trials are in no pair.
    pub(super) other_loads: Vec<&'a str>,
}

impl<'a> Pairs<'a> {
    /// Puts the trials of two runs side by side. With `peers`, only those of these servers.
    ///
    /// # Errors
    /// The runs are of different scenarios, or a case has more than 1,000 repetitions.
    pub(super) fn of(
        before: &'a Study,
        after: &'a Study,
        peers: &[String],
    ) -> anyhow::Result<Self> {
        let (earlier, later) = (&before.scenario, &after.scenario);
        ensure!(
            earlier.name == later.name,
            "{} and {} are different scenarios",
            earlier.name,
            later.name
        );
        let other_loads = other_loads(earlier, later);
        let mut pairs: IndexMap<String, Pair<'a>> = IndexMap::new();
        for (study, is_after) in [(before, false), (after, true)] {
            for kept in study.trials.iter().filter(|kept| kept.counts()) {
                let trial = &kept.trial;
                let is_wanted = peers.is_empty() || peers.contains(&trial.peer);
                if !is_wanted || other_loads.contains(&trial.load.as_str()) {
                    continue;
                }
                let place = (&trial.load, &trial.parameters, &trial.scaled, &trial.peer);
                let pair = pairs.entry(serde_json::to_string(&place)?).or_insert_with(|| Pair {
                    load: &trial.load,
                    peer: &trial.peer,
                    before: Vec::new(),
                    after: Vec::new(),
                });
                let side = if is_after { &mut pair.after } else { &mut pair.before };
                ensure!(
                    side.len() < MOST_REPETITIONS,
                    "{}: more than {MOST_REPETITIONS} repetitions of one case",
                    kept.folder.display()
                );
                side.push(kept);
            }
        }
        Ok(Self { pairs: pairs.into_values().collect(), other_loads })
    }
}

/// The loads of the same name that differ in what they do.
fn other_loads<'a>(earlier: &'a Scenario, later: &Scenario) -> Vec<&'a str> {
    let (earlier_loads, later_loads) = (loads(&earlier.text), loads(&later.text));
    let differs = |name: &&str| {
        let (then, now) = (earlier_loads.get(*name), later_loads.get(*name));
        now.is_some() && then != now
    };
    earlier.loads.iter().map(|load| load.name.as_str()).filter(differs).collect()
}

/// Keys of a load that change no trial.
const BESIDE: [&str; 3] = ["peers", "repeat", "title"];

/// The loads by name, as the scenario's file has them, without what changes no trial.
fn loads(scenario: &str) -> BTreeMap<String, toml::Value> {
    // A scenario was read from this text, so it can be parsed.
    let scenario: toml::Table = toml::from_str(scenario).unwrap_or_default();
    let loads = scenario.get("load").and_then(toml::Value::as_array);
    let named = |load: &toml::Value| {
        let name = load.get("name")?.as_str()?.to_owned();
        let mut load = load.as_table()?.clone();
        load.retain(|key, _| !BESIDE.contains(&key));
        Some((name, load.into()))
    };
    loads.into_iter().flatten().filter_map(named).collect()
}

impl Pair<'_> {
    /// Whether both runs have it.
    pub(super) fn is_whole(&self) -> bool {
        !self.before.is_empty() && !self.after.is_empty()
    }

    /// How many viewers the loads had, from the fewest to the most, if they were not the same everywhere: the last steps
    /// of `capacity` differ.
    pub(super) fn sizes(&self) -> Option<(f64, f64)> {
        let trials = self.before.iter().chain(&self.after);
        let clients = trials.filter_map(|kept| kept.metric("clients"));
        let range = clients.fold(None, |range: Option<(f64, f64)>, clients| {
            let (least, most) = range.unwrap_or((clients, clients));
            Some((least.min(clients), most.max(clients)))
        });
        range.filter(|(least, most)| least != most)
    }

    /// The case in words: `400 clients, 60 s`. Empty if the load has one case only.
    pub(super) fn case(&self) -> String {
        let Some(kept) = self.before.first().or(self.after.first()) else { return String::new() };
        let words = kept.trial.parameters.iter().map(|(name, value)| dimension::full(name, value));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Load, case and server in words.
    pub(super) fn name(&self) -> String {
        let case = self.case();
        let words = [self.load, &case, self.peer];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
    }
}
