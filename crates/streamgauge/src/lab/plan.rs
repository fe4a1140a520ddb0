//! The trials of a scenario and their order: cases × peers × repetitions, scaled. This module
//! starts, reads and writes nothing.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use super::arguments::fill;
use super::record::{Parameters, Value};
use super::scenario::{Load, Scale, Scenario, Until};

/// Smaller scales also leave out values of sweeps, and profiles.
pub const SMALL: f64 = 0.1;
/// Folder and number of the repetition with a profiler.
pub const PROFILE: (&str, u32) = ("profile", 0);

/// How to run a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Factor on times, and below 0.1 on numbers, compared with the study.
    pub scale: f64,
    /// Repetitions of every case; `None` for those of the load.
    pub repeat: Option<u32>,
    /// Names of the loads to run; empty for all.
    pub loads: Vec<String>,
    /// Peers to test; `None` for those of each load.
    pub peers: Option<Vec<String>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { scale: 1.0, repeat: None, loads: Vec::new(), peers: None }
    }
}

/// One combination of a load's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Index in the order of the scenario, from 0.
    pub index: usize,
    /// Index among all cases of the study, including those that the scale leaves out.
    pub number: usize,
    /// The parameters that distinguish this case from others of the load, as in the scenario.
    pub parameters: Parameters,
    /// The values that the scale has made smaller, including constants.
    pub scaled: Parameters,
    /// All parameters as they are used.
    pub values: Parameters,
    /// All swept parameters but the last. They identify a sweep.
    sweep: String,
}

/// One repetition of one peer in one case of a load.
#[derive(Debug, Clone)]
pub struct Trial<'a> {
    /// The load.
    pub load: &'a Load,
    /// The case.
    pub case: Case,
    /// The peer, by name.
    pub peer: String,
    /// Number of the repetition from 1; 0 is the one with a profiler.
    pub repetition: u32,
    /// Its folder below the run's folder.
    pub folder: PathBuf,
}

impl Trial<'_> {
    /// Whether this is the repetition with a profiler.
    pub fn is_profile(&self) -> bool {
        self.repetition == PROFILE.1
    }
}

/// The trials of a scenario, in order.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The trials.
    pub trials: Vec<Trial<'a>>,
    /// Which peers were left out, and why.
    pub notes: Vec<String>,
}

impl<'a> Plan<'a> {
    /// Plans a scenario. `serves` tells whether a peer, by name, can do a job; `None` if there is
    /// no such peer.
    ///
    /// # Errors
    /// The settings or a load are unusable.
    pub fn new(
        scenario: &'a Scenario,
        settings: &Settings,
        serves: &dyn Fn(&str, &str) -> Option<bool>,
    ) -> anyhow::Result<Self> {
        let Settings { scale, loads, .. } = settings;
        ensure!(scale.is_finite() && *scale > 0.0, "a scale is more than 0");
        for name in loads {
            ensure!(scenario.load(name).is_some(), "there is no load {name:?}");
        }
        let mut plan = Self { trials: Vec::new(), notes: Vec::new() };
        for load in &scenario.loads {
            if loads.is_empty() || loads.contains(&load.name) {
                plan.add(load, settings, serves)
                    .with_context(|| format!("load {:?}", load.name))?;
            }
        }
        Ok(plan)
    }

    fn add(
        &mut self,
        load: &'a Load,
        settings: &Settings,
        serves: &dyn Fn(&str, &str) -> Option<bool>,
    ) -> anyhow::Result<()> {
        let cases = cases(load, settings.scale)?;
        let peers = settings.peers.as_ref().unwrap_or(&load.peers);
        let repetitions =
            settings.repeat.unwrap_or_else(|| repetitions(load.repeat, settings.scale));
        let mut left_out = HashSet::new();
        let profiled = (load.profile && settings.scale >= SMALL).then_some(PROFILE.1);
        for repetition in (1..=repetitions).chain(profiled) {
            for case in &cases {
                let job = fill(&load.job, &case.values)?;
                for peer in order(peers, case.index, repetition) {
                    match serves(peer, &job) {
                        Some(true) => self.trials.push(trial(load, case, peer, repetition)),
                        Some(false) if left_out.insert((peer.clone(), job.clone())) => {
                            self.notes.push(format!("{}: {peer} does not serve {job}", load.name));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

fn trial<'a>(load: &'a Load, case: &Case, peer: &str, repetition: u32) -> Trial<'a> {
    let last = if repetition == PROFILE.1 { PROFILE.0.to_owned() } else { repetition.to_string() };
    let folder = ["trials", &load.name, &folder_name(load, case), peer, &last].iter().collect();
    Trial { load, case: case.clone(), peer: peer.to_owned(), repetition, folder }
}

/// Name of a case's folder: `batches=2,duration=60`.
fn folder_name(load: &Load, case: &Case) -> String {
    if load.cases.is_empty() {
        return "case".to_owned();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let part = |name: &String| {
        let value: String = case.parameters[name].to_string().chars().map(plain).collect();
        format!("{name}={value}")
    };
    load.cases.keys().map(part).collect::<Vec<_>>().join(",")
}

/// The order in which a case visits the peers. Each case begins with another peer, and every second
/// repetition goes backwards. So no peer always comes first or after the same peer.
fn order(peers: &[String], case: usize, repetition: u32) -> Vec<&String> {
    let mut order: Vec<_> = peers.iter().collect();
    if !order.is_empty() {
        order.rotate_left(case % peers.len());
    }
    if repetition.is_multiple_of(2) {
        order.reverse();
    }
    order
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn repetitions(wanted: u32, scale: f64) -> u32 {
    (f64::from(wanted) * scale).round().clamp(1.0, 10_000.0) as u32
}

/// Lists the cases of a load, in order. The last parameter changes fastest.
///
/// # Errors
/// A derived parameter cannot be computed, or two cases have the same folder.
pub fn cases(load: &Load, scale: f64) -> anyhow::Result<Vec<Case>> {
    let mut combinations: Vec<(usize, Parameters)> = vec![(0, Parameters::new())];
    for (name, values) in &load.cases {
        let kept = thinned(values, scale);
        combinations = combinations
            .iter()
            .flat_map(|(number, before)| {
                kept.iter().map(|(place, value)| {
                    let mut combination = before.clone();
                    combination.insert(name.clone(), (*value).clone());
                    (number.saturating_mul(values.len()).saturating_add(*place), combination)
                })
            })
            .collect();
        ensure!(combinations.len() <= 100_000, "more than 100,000 cases");
    }
    let mut folders = HashSet::new();
    let mut cases = Vec::with_capacity(combinations.len());
    for (index, (number, combination)) in combinations.into_iter().enumerate() {
        let case = Case { index, number, ..case(load, &combination, scale)? };
        let folder = folder_name(load, &case);
        ensure!(folders.insert(folder.clone()), "there are two cases {folder}");
        cases.push(case);
    }
    Ok(cases)
}

/// Makes the case of one combination of swept values, with index 0.
fn case(load: &Load, swept: &Parameters, scale: f64) -> anyhow::Result<Case> {
    let constants = || load.constants.iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut nominal = swept.clone();
    nominal.extend(constants());
    let mut values: Parameters = nominal
        .iter()
        .map(|(name, value)| (name.clone(), shrunk(value, load.scale.get(name), scale)))
        .collect();
    derive(load, &mut nominal)?;
    derive(load, &mut values)?;
    let scaled = values
        .iter()
        .filter(|(name, value)| nominal.get(*name) != Some(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let others = load.cases.keys().rev().skip(1);
    let sweep = others.map(|name| format!("{name}={}", swept[name])).collect::<Vec<_>>().join(",");
    let parameters =
        nominal.into_iter().filter(|(name, _)| !load.constants.contains_key(name)).collect();
    Ok(Case { index: 0, number: 0, parameters, scaled, values, sweep })
}

/// The values of a sweep that a small scale keeps, each with its index among all values. At least
/// one stays; they are evenly spread and include both ends.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to a length")]
fn thinned(values: &[Value], scale: f64) -> Vec<(usize, &Value)> {
    let at = |place: usize| Some((place, values.get(place)?));
    if scale >= SMALL {
        return (0..values.len()).filter_map(at).collect();
    }
    let kept = (values.len() as f64 * scale / SMALL).ceil().max(1.0) as usize;
    let last = values.len().saturating_sub(1);
    (0..kept).filter_map(|place| at(place * last / (kept - 1).max(1))).collect()
}

/// Scales a parameter. A whole number stays whole, unless it is a time.
fn shrunk(value: &Value, rule: Option<&Scale>, scale: f64) -> Value {
    let (Value::Number(number), Some(rule)) = (value, rule) else { return value.clone() };
    let factor = rule.below.map_or(scale, |below| (scale / below).min(1.0));
    let whole = rule.below.is_some() && number.fract() == 0.0;
    let shrunk = number * factor;
    let rounded = if whole { shrunk.round() } else { (shrunk * 1e3).round() / 1e3 };
    // A value that was below the minimum already stays.
    Value::Number(rounded.max(rule.least.min(*number)))
}

fn derive(load: &Load, parameters: &mut Parameters) -> anyhow::Result<()> {
    for (name, product) in &load.derive {
        let mut result = 1.0;
        for factor in product.split('*').map(str::trim) {
            result *= match (factor.parse::<f64>(), parameters.get(factor)) {
                (Ok(number), _) | (_, Some(&Value::Number(number))) => number,
                (_, Some(Value::Text(_))) => bail!("derive: {name}: {factor} is not a number"),
                (_, None) => bail!("derive: {name}: there is no parameter {factor:?}"),
            };
        }
        ensure!(result.is_finite(), "derive: {name}: {product} is too large");
        parameters.insert(name.clone(), Value::Number(result));
    }
    Ok(())
}

/// The sweeps that have ended before their last value.
#[derive(Debug, Default)]
pub struct Sweeps(BTreeMap<(String, String, u32, String), usize>);

impl Sweeps {
    /// Whether a trial lies beyond the end of its sweep.
    pub fn is_over(&self, trial: &Trial<'_>) -> bool {
        let end = self.0.get(&Self::key(trial));
        end.is_some_and(|&index| trial.case.index > index)
    }

    /// Ends the sweep of a trial that gave no good figures.
    pub fn end(&mut self, trial: &Trial<'_>) {
        if trial.load.until == Some(Until::Saturated) {
            self.0.entry(Self::key(trial)).or_insert(trial.case.index);
        }
    }

    fn key(trial: &Trial<'_>) -> (String, String, u32, String) {
        let Trial { load, case, peer, repetition, .. } = trial;
        (load.name.clone(), peer.clone(), *repetition, case.sweep.clone())
    }
}
