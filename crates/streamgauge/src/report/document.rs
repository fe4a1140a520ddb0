//! The content of a report, independent of its format.

use schemars::JsonSchema;
use serde::Serialize;

use crate::lab::record::Run;
use crate::progress::Steps;

use super::figure::Figure;
use super::table::Table;
use super::verdict::{self, Verdict};
use super::warnings::{self, Warnings};
use crate::runs::dimension;
use crate::runs::{Kept, Study};

/// The result of `report`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// The folder that it was written to.
    pub folder: String,
    /// Who wins where, if servers can be compared.
    pub verdict: Option<Verdict>,
    /// The scenarios with their runs.
    pub studies: Vec<Part>,
}

/// The part of a report for one scenario.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Part {
    /// Name of the scenario.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Where the study was published.
    pub source: String,
    /// The question of the study, what is repeated, and what differs; paragraphs.
    pub about: Vec<String>,
    /// Factor on times; 1 is the time of the study.
    pub scale: f64,
    /// How this scale has changed parameters, in words.
    pub scaled: Vec<String>,
    /// When, where and by which commands it was measured.
    pub runs: Vec<Occasion>,
    /// How many trials were measured.
    pub trials: usize,
    /// The peers that were measured.
    pub peers: Vec<Measured>,
    /// The peers that were not measured, and why.
    pub absent: Vec<(String, String)>,
    /// Warnings for readers of the figures, by reason.
    pub warnings: Vec<Warnings>,
    /// The tables of the study.
    pub tables: Vec<Table>,
    /// The figures of the study.
    pub figures: Vec<Figure>,
    /// Commands of one trial of each load and peer.
    pub commands: Vec<Listing>,
    /// Profiles of servers, if there are any.
    pub profiles: Vec<Listing>,
}

/// A run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Occasion {
    /// When it began, RFC 3339 in UTC.
    pub began: String,
    /// When it ended, if it has.
    pub ended: Option<String>,
    /// The machine, described in words.
    pub machine: Vec<(String, String)>,
    /// The command that repeats the run.
    pub command: String,
}

/// A peer that was measured.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// The peer's name.
    pub name: String,
    /// Name in headings.
    pub title: String,
    /// The versions that its program printed.
    pub versions: Vec<String>,
}

/// Text lines for one load and peer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Listing {
    /// Heading, with load and peer.
    pub title: String,
    /// The lines.
    pub lines: Vec<String>,
}

impl Document {
    /// Makes a report of studies.
    ///
    /// # Errors
    /// A file of a trial is damaged.
    pub(super) fn make(
        studies: &[Study],
        folder: String,
        progress: &Steps,
    ) -> anyhow::Result<Self> {
        let verdict = verdict::make(studies);
        let first = usize::from(verdict.is_some());
        let (mut tables, mut figures) = (first, first);
        let mut begun = 0;
        let mut next = |figure: &str| {
            progress.show(begun, figure);
            begun += 1;
        };
        let part = |study| part(study, &mut tables, &mut figures, &mut next);
        Ok(Self {
            folder,
            verdict,
            studies: studies.iter().map(part).collect::<anyhow::Result<_>>()?,
        })
    }
}

fn part(
    study: &Study,
    tables: &mut usize,
    figures: &mut usize,
    next: &mut dyn FnMut(&str),
) -> anyhow::Result<Part> {
    let scenario = &study.scenario;
    let mut part = Part {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        about: paragraphs(&scenario.about),
        scale: study.scale(),
        scaled: scaled(study),
        runs: study.runs.iter().map(occasion).collect(),
        trials: study.trials.iter().filter(|kept| kept.counts()).count(),
        peers: peers(study),
        absent: absent(study),
        warnings: warnings::collect(study),
        tables: vec![],
        figures: vec![],
        commands: listings(study, |kept| if kept.counts() { commands(kept) } else { vec![] }),
        profiles: listings(study, |kept| {
            let profile = kept.profile().unwrap_or_default();
            profile.lines().map(ToOwned::to_owned).collect()
        }),
    };
    let mut in_order: Vec<_> = scenario.tables.iter().collect();
    in_order.sort_by_key(|table| !table.headline);
    for table in in_order {
        let Some(load) = scenario.load(&table.load) else { continue };
        let made = Table::make(study, load, table, *tables + 1);
        if !made.rows.is_empty() {
            *tables += 1;
            part.tables.push(made);
        }
    }
    for figure in &scenario.figures {
        next(&figure.title);
        let Some(load) = scenario.load(&figure.load) else { continue };
        if let Some(made) = Figure::make(study, load, figure, *figures + 1)? {
            *figures += 1;
            part.figures.push(made);
        }
    }
    Ok(part)
}

fn paragraphs(text: &str) -> Vec<String> {
    let paragraph = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(paragraph).filter(|part| !part.is_empty()).collect()
}

/// Describes the scaled parameters of each load: `duration: 6 s instead of 60 s`.
fn scaled(study: &Study) -> Vec<String> {
    let mut said = Vec::new();
    for load in &study.scenario.loads {
        let mut changes: Vec<(String, Vec<String>)> = Vec::new();
        for kept in study.trials_of(&load.name) {
            for (name, now) in &kept.trial.scaled {
                let study_has =
                    kept.trial.parameters.get(name).or_else(|| load.constants.get(name));
                let Some(then) = study_has.filter(|then| *then != now) else { continue };
                let change = format!("{} for {}", dimension::bare(now), dimension::bare(then));
                match changes.iter_mut().find(|(other, _)| other == name) {
                    Some((_, all)) if all.contains(&change) => {}
                    Some((_, all)) => all.push(change),
                    None => changes.push((name.clone(), vec![change])),
                }
            }
        }
        let name = if load.title.is_empty() { &load.name } else { &load.title };
        let words: Vec<String> = changes
            .into_iter()
            .map(|(what, all)| format!("{} {}", dimension::title(&what), all.join(", ")))
            .collect();
        if !words.is_empty() {
            said.push(format!("{name}: {}.", words.join("; ")));
        }
    }
    said
}

fn occasion(run: &Run) -> Occasion {
    let machine = &run.machine;
    let gib = machine.memory as f64 / f64::from(1 << 30);
    let cpus = |cpus: &str| if cpus.is_empty() { "any".to_owned() } else { cpus.to_owned() };
    let known = [
        ("processor", format!("{}, {} logical", machine.processor, machine.processors)),
        ("memory", format!("{gib:.1} GiB")),
        ("kernel", machine.kernel.clone()),
        ("system", machine.system.clone()),
        ("TCP", machine.tcp.clone()),
        ("processors of servers", cpus(&machine.server_cpus)),
        ("processors of loads", cpus(&machine.load_cpus)),
    ];
    let known = known.into_iter().filter(|(_, value)| !value.is_empty());
    Occasion {
        began: run.began.clone(),
        ended: run.ended.clone(),
        machine: known.map(|(name, value)| (name.to_owned(), value)).collect(),
        command: quoted(&run.command),
    }
}

fn peers(study: &Study) -> Vec<Measured> {
    let peer = |peer: &crate::runs::Peer| Measured {
        name: peer.name.clone(),
        title: peer.title.clone(),
        versions: peer.versions.clone(),
    };
    study.peers.iter().map(peer).collect()
}

fn absent(study: &Study) -> Vec<(String, String)> {
    let mut absent: Vec<(String, String)> = Vec::new();
    for (name, why) in study.runs.iter().flat_map(|run| &run.absent) {
        let one = (study.title(name), why.clone());
        if !absent.contains(&one) {
            absent.push(one);
        }
    }
    absent
}

/// For each load and peer, the lines of the first trial that has any.
fn listings(study: &Study, lines: impl Fn(&Kept) -> Vec<String>) -> Vec<Listing> {
    let mut shown: Vec<(&str, &str)> = Vec::new();
    let mut all = Vec::new();
    for kept in &study.trials {
        let of = (kept.trial.load.as_str(), kept.trial.peer.as_str());
        if shown.contains(&of) {
            continue;
        }
        let lines = lines(kept);
        if !lines.is_empty() {
            shown.push(of);
            all.push(Listing { title: study.called(kept), lines });
        }
    }
    all
}

fn commands(kept: &Kept) -> Vec<String> {
    let line = |command: &crate::lab::record::Command| {
        format!("{}: {}", command.role, quoted(&command.arguments))
    };
    kept.trial.commands.iter().map(line).collect()
}

/// Writes arguments for a shell.
fn quoted(arguments: &[String]) -> String {
    let plain = |argument: &String| {
        let safe = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
        if !argument.is_empty() && argument.chars().all(safe) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', "'\\''"))
        }
    };
    arguments.iter().map(plain).collect::<Vec<_>>().join(" ")
}

impl Document {
    /// All figures, in the order of their numbers.
    pub(super) fn figures(&self) -> impl Iterator<Item = &Figure> {
        let first = self.verdict.iter().map(|verdict| &verdict.figure);
        first.chain(self.studies.iter().flat_map(|part| &part.figures))
    }
}

impl Occasion {
    /// The date, `2026-11-22` of `2026-11-22T01:02:03Z`.
    pub(super) fn date(&self) -> &str {
        self.began.split('T').next().unwrap_or_default()
    }
}

impl Part {
    /// A sentence on the scale; `None` for the scale of the study.
    pub(super) fn scale_in_words(&self) -> Option<String> {
        let scale = self.scale;
        (scale != 1.0).then(|| {
            format!("Scale {scale}: a shortened run. Times are {scale} of what the study has; its published figures are of the whole.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted() {
        let arguments = ["a", "--b=1", "", "it's", "$x y"].map(ToOwned::to_owned);
        assert_eq!(quoted(&arguments), r"a --b=1 '' 'it'\''s' '$x y'");
    }
}
