//! `streamgauge compare`: what changed between two runs of a scenario, and how sure that is.
//!
//! ```text
//!  runs: two folders ─▶ pairs: the same load, case and server ─▶ judge ─▶ document
//!                                           bootstrap: intervals ─┘
//! ```
//!
//! Only figures that tell how good a server is are compared (`runs::metric`). The repetitions of a
//! case are the sample.

pub mod document;
mod judge;
mod pairs;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::progress::Steps;
use crate::runs::{Study, bootstrap};
use crate::{Exit, runs, text, units};
use document::{Counts, Document, Side};
use judge::Rule;
use pairs::{Pair, Pairs};

/// What changed between two runs of a scenario, with confidence intervals; exit status 1 if something
/// got worse
#[derive(Debug, Args)]
pub struct Arguments {
    /// The folder of the earlier run, which `run` wrote
    before: PathBuf,
    /// The folder of the later run
    after: PathBuf,
    /// Changes up to this share of the value before are none
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = units::share)]
    threshold: f64,
    /// Only this server; may be repeated
    #[arg(long = "peer", value_name = "NAME")]
    peers: Vec<String>,
    /// Only this metric, `errors_percent`, or `failed`, the share of repetitions without figures; may be repeated
    #[arg(long = "metric", value_name = "NAME")]
    metrics: Vec<String>,
    /// Judge figures with a single repetition, too, although nothing tells how much they vary
    #[arg(long)]
    single: bool,
    /// Also list the figures that did not change
    #[arg(long)]
    all: bool,
    /// One document on standard output, docs/schema/compare.schema.json
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Does what the arguments ask for. Prints the document, or a text for people, to standard
    /// output.
    ///
    /// # Errors
    /// A folder is damaged, or the runs have nothing that can be compared.
    pub fn run(self) -> anyhow::Result<Exit> {
        for name in &self.metrics {
            let is_known = judge::metrics().any(|(known, _)| known == name);
            ensure!(is_known, "--metric {name}: this metric does not tell how good a server is");
        }
        let (before, after) = (read(&self.before)?, read(&self.after)?);
        let pairs = Pairs::of(&before, &after, &self.peers)?;
        let rule = Rule { threshold: self.threshold, single: self.single, metrics: self.metrics };
        let whole = pairs.pairs.iter().filter(|pair| pair.is_whole());
        let changes: Vec<_> = whole.flat_map(|pair| rule.judge(pair)).collect();
        let warnings = warnings(&before, &after, &pairs);
        if changes.is_empty() {
            let mut why =
                vec!["the runs have no figure of the same load, case and server".to_owned()];
            why.extend(warnings);
            bail!("{}", why.join("; "));
        }
        let only = |is_there: fn(&Pair<'_>) -> bool| {
            let alone = pairs.pairs.iter().filter(|pair| !pair.is_whole() && is_there(pair));
            alone.map(Pair::name).collect()
        };
        let document = Document {
            verb: "compare".to_owned(),
            scenario: before.scenario.name.clone(),
            before: side(&self.before, &before),
            after: side(&self.after, &after),
            threshold: rule.threshold,
            confidence: bootstrap::CONFIDENCE,
            resamples: bootstrap::RESAMPLES,
            warnings,
            only_before: only(|pair| !pair.before.is_empty()),
            only_after: only(|pair| !pair.after.is_empty()),
            counts: Counts::of(&changes),
            changes,
        };
        if self.json {
            text::json(&document)?;
        } else {
            document::write(&document, self.all, &mut std::io::stdout().lock())?;
        }
        Ok(document.exit())
    }
}

fn read(folder: &Path) -> anyhow::Result<Study> {
    let studies = runs::read(&[folder.to_owned()], &Steps::new(1))?;
    studies.into_iter().next().with_context(|| folder.display().to_string())
}

fn side(folder: &Path, study: &Study) -> Side {
    let version = |peer: &runs::Peer| (peer.name.clone(), peer.versions.join("; "));
    Side {
        folder: folder.display().to_string(),
        began: study.runs.first().map(|run| run.began.clone()).unwrap_or_default(),
        versions: study.peers.iter().map(version).collect(),
    }
}

/// What differs between the runs besides their figures.
fn warnings(before: &Study, after: &Study, pairs: &Pairs<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let (Some(earlier), Some(later)) = (before.runs.first(), after.runs.first()) else {
        return warnings;
    };
    if !earlier.machine.is_like(&later.machine) {
        let (then, now) = (&earlier.machine, &later.machine);
        let differences = then.differences(now).into_iter();
        let told =
            differences.map(|(what, then, now)| format!("{what} {then} before, {now} after"));
        let told = told.collect::<Vec<_>>().join("; ");
        warnings.push(format!("the machines differ, so changes may be theirs: {told}"));
    }
    if earlier.scale != later.scale {
        warnings.push(format!(
            "the scale is {} before and {} after: loads that it changed are not compared",
            earlier.scale, later.scale
        ));
    }
    let (then, now) = (&earlier.instrument, &later.instrument);
    let is_told = [then, now].iter().all(|instrument| !instrument.title.is_empty());
    if is_told && !then.may_be(now) {
        let (then, now) = (then.named(), now.named());
        warnings.push(format!("streamgauge was {then} before and {now} after"));
    }
    for pair in pairs.pairs.iter().filter(|pair| pair.is_whole()) {
        if let Some((least, most)) = pair.sizes() {
            let name = pair.name();
            warnings.push(format!(
                "{name}: the last steps had {least} to {most} viewers, so only `capacity` and `failed` are compared"
            ));
        }
    }
    for load in &pairs.other_loads {
        warnings.push(format!("load {load} is another one in the later scenario: not compared"));
    }
    for (name, hash) in &earlier.media {
        if later.media.get(name).is_some_and(|other| other != hash) {
            warnings.push(format!("the media {name} are other bytes in the later run"));
        }
    }
    warnings
}
