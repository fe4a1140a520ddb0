//! A scenario: a study written down, so that it can be repeated (docs/scenarios.md).
//!
//! Only the file is read here. What its trials are is decided in `plan`, what its
//! tables and figures look like in `report`.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use indexmap::IndexMap;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::record::{Parameters, Value};
use super::source;
use crate::units;

/// A scenario's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// The file.
    #[serde(skip)]
    pub path: PathBuf,
    /// Its text, as it was read.
    #[serde(skip)]
    pub text: String,
    /// As headings have it.
    pub title: String,
    /// Where the study was published.
    #[serde(default)]
    pub source: String,
    /// What it asks, what is repeated exactly, and what differs here.
    #[serde(default)]
    pub about: String,
    /// Files that servers have or publishers send, by name.
    #[serde(default)]
    pub media: BTreeMap<String, Media>,
    /// What is done to servers.
    #[serde(rename = "load")]
    pub loads: Vec<Load>,
    /// What is reported in tables.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
    /// What is reported in figures.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A file made once, `[media.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// Program and arguments that write it to `{out}`.
    pub make: Vec<String>,
    /// Where it is below a server's `{root}`; one that ends in a slash is a folder.
    pub path: String,
}

/// A load and its cases, `[[load]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Its name, and that of its folder.
    pub name: String,
    /// As headings have it.
    #[serde(default)]
    pub title: String,
    /// Peers that it is for, by name, unless others are asked for.
    pub peers: Vec<String>,
    /// What is asked of them: a key of their `[serves]`. A template.
    pub job: String,
    /// The file, or the files, that are asked for, below `{root}`. Templates.
    #[serde(default, deserialize_with = "one_or_more")]
    pub path: Vec<String>,
    /// The live stream that is asked for. A template.
    pub stream: Option<String>,
    /// What makes the load.
    pub with: Tool,
    /// Its arguments; templates.
    pub arguments: Vec<String>,
    /// Repetitions of each case.
    #[serde(default = "once")]
    pub repeat: u32,
    /// From the server's start to the load.
    #[serde(default, deserialize_with = "time")]
    pub settle: Duration,
    /// From the load's end to the meter's stop.
    #[serde(default, deserialize_with = "time")]
    pub rest: Duration,
    /// How fast a link between server and load is, as tc has it (`700mbit`); none: loopback.
    pub link: Option<String>,
    /// How long the load may take; a template of a time. If not given, 30 s longer than its
    /// arguments say.
    pub timeout: Option<String>,
    /// What is published before the load begins.
    pub publish: Option<Publish>,
    /// Another load beside it, whose figures do not count.
    pub background: Option<Background>,
    /// Parameters, each with its values; every combination is a case.
    #[serde(default)]
    pub cases: IndexMap<String, Vec<Value>>,
    /// Parameters that all cases have alike.
    #[serde(default)]
    pub constants: IndexMap<String, Value>,
    /// Further parameters: products of numbers and parameters, `batches * 50`.
    #[serde(default)]
    pub derive: IndexMap<String, String>,
    /// Parameters that `--scale` makes smaller.
    #[serde(default)]
    pub scale: BTreeMap<String, Scale>,
    /// Where a sweep over the last of the parameters ends for a peer before its last value.
    pub until: Option<Until>,
    /// Whether the server is profiled in a repetition more.
    #[serde(default)]
    pub profile: bool,
    /// Whether the files of study B are kept: `run000_100_rtmp_60.csv`, `.times`, and the one whose
    /// name ends in the number of clients that were served.
    #[serde(default)]
    pub study_b_files: bool,
}

fn once() -> u32 {
    1
}

fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Texts;
    impl<'de> Visitor<'de> for Texts {
        type Value = Vec<String>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a text, or several")
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, texts: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(texts))
        }
    }
    from.deserialize_any(Texts)
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    units::time(&text).map_err(serde::de::Error::custom)
}

/// A program that makes loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tool {
    /// `streamgauge viewers`.
    Viewers,
    /// `streamgauge http`.
    Http,
    /// `streamgauge capacity`.
    Capacity,
    /// Apache's ab(1).
    Ab,
    /// httperf(1).
    Httperf,
    /// wrk(1).
    Wrk,
    /// `vegeta attack`.
    Vegeta,
}

impl Tool {
    /// As it is written in scenarios; for programs that are not this one, their name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewers => "viewers",
            Self::Http => "http",
            Self::Capacity => "capacity",
            Self::Ab => "ab",
            Self::Httperf => "httperf",
            Self::Wrk => "wrk",
            Self::Vegeta => "vegeta",
        }
    }

    /// Whether it is a verb of this program.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Viewers | Self::Http | Self::Capacity)
    }
}

/// A live stream, `[load.publish]`: the load's `stream`, over and over.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// Which of the scenario's media. A template.
    pub file: String,
    /// How: a key of the peers' `[publish]`.
    #[serde(default = "rtmp")]
    pub protocol: String,
    /// By which program.
    #[serde(default)]
    pub with: Publisher,
    /// Whether each picture says when it was sent, so that viewers can tell how late it is.
    #[serde(default)]
    pub stamp: bool,
}

fn rtmp() -> String {
    "rtmp".to_owned()
}

/// A program that publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Publisher {
    /// `headwater publish`.
    #[default]
    Headwater,
    /// ffmpeg(1).
    Ffmpeg,
}

/// A load whose figures do not count, `[load.background]`. It goes on for as long as the other.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// What makes it.
    pub with: Tool,
    /// Its arguments; templates.
    pub arguments: Vec<String>,
}

/// How a parameter shrinks.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// What it does not fall below.
    pub least: f64,
    /// Only scales below this one shrink it, in proportion: 0.1 leaves it whole at 0.1, and a tenth
    /// of it at 0.01. If not given it shrinks with every scale below 1, as times do.
    pub below: Option<f64>,
}

/// Why a sweep ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// The generator was the limit, or there were no figures.
    Saturated,
}

/// Trials that are meant: those of a load whose parameters have these values.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Only(BTreeMap<String, OneOrMore>);

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(Value),
    More(Vec<Value>),
}

impl Only {
    /// Whether trials with these parameters are meant.
    pub fn admits(&self, parameters: &Parameters) -> bool {
        self.0.iter().all(|(name, wanted)| {
            parameters.get(name).is_some_and(|value| match wanted {
                OneOrMore::One(wanted) => wanted == value,
                OneOrMore::More(wanted) => wanted.contains(value),
            })
        })
    }
}

/// A table of metrics, `[[table]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// As it is headed.
    pub title: String,
    /// Of which load.
    pub load: String,
    /// Of which of its cases.
    #[serde(default, rename = "where")]
    pub only: Only,
    /// What tells rows apart: parameters, `peer`, `value`.
    pub rows: Vec<String>,
    /// What tells columns apart.
    #[serde(default)]
    pub columns: Vec<String>,
    /// What is shown.
    pub values: Vec<Shown>,
    /// What the study found.
    pub published: Option<Published>,
    /// By the study's peers, the peers here that their figures are compared with.
    #[serde(default)]
    pub stand_in: BTreeMap<String, String>,
    /// Whether it belongs into a summary of the scenario.
    #[serde(default)]
    pub headline: bool,
    /// What is written below.
    #[serde(default)]
    pub note: String,
}

/// A metric in a table or on an axis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// Its name in trial.json.
    pub metric: String,
    /// As headings have it.
    #[serde(default)]
    pub title: String,
    /// Its unit, as it is written behind the figure's name.
    #[serde(default)]
    pub unit: String,
    /// Digits behind the point.
    #[serde(default)]
    pub digits: usize,
    /// Which is better.
    pub better: Option<Better>,
}

/// Which of two values is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The greater.
    More,
    /// The smaller.
    Less,
}

/// Figures as they were published: CSV, whose first line names dimensions and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Published {
    /// The names.
    pub columns: Vec<String>,
    /// The lines, each as long as the names.
    pub rows: Vec<Vec<String>>,
}

impl TryFrom<String> for Published {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fields = |line: &str| line.split(',').map(|field| field.trim().to_owned()).collect();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let columns: Vec<String> = lines.next().map(fields).ok_or("no line with names")?;
        let rows: Vec<Vec<String>> = lines.map(fields).collect();
        match rows.iter().find(|row| row.len() != columns.len()) {
            Some(row) => Err(format!("{:?} has not {} fields", row.join(","), columns.len())),
            None => Ok(Self { columns, rows }),
        }
    }
}

/// A figure, `[[figure]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// As it is headed.
    pub title: String,
    /// What it is.
    pub kind: Kind,
    /// Of which load.
    pub load: String,
    /// Of which of its cases.
    #[serde(default, rename = "where")]
    pub only: Only,
    /// `against`: the parameter along the axis.
    pub x: Option<String>,
    /// A column of the meter's (`time`), a metric (`against`, `bars`).
    pub y: Option<String>,
    /// What the axes are called.
    #[serde(default)]
    pub x_title: String,
    /// Likewise, with the unit.
    #[serde(default)]
    pub y_title: String,
    /// Whether the axis of y is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// `percentiles`: which histogram, without `.hlog`.
    pub histogram: Option<String>,
    /// `bars`: the parameter that groups them.
    pub group: Option<String>,
    /// `against`: where a line falls below this value or metric, its inflexion point is marked.
    pub threshold: Option<Value>,
    /// What the study found.
    pub published: Option<Published>,
    /// What is written below.
    #[serde(default)]
    pub note: String,
}

/// Kinds of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A column of the meter's over time, a line for each peer; a figure for each case.
    Time,
    /// A distribution by 1/(1-q), a line for each peer; a figure for each case.
    Percentiles,
    /// A metric against a parameter, a line for each peer.
    Against,
    /// A metric by peer.
    Bars,
}

impl Scenario {
    /// Reads a scenario's file.
    ///
    /// # Errors
    /// It cannot be read or understood; the message names file, line and key.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = source::text(path)?;
        let mut scenario: Self = source::parse(&text, path)?;
        scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scenario.path = path.to_owned();
        scenario.text = text;
        scenario.check().with_context(|| path.display().to_string())?;
        Ok(scenario)
    }

    /// One of its loads.
    pub fn load(&self, name: &str) -> Option<&Load> {
        self.loads.iter().find(|load| load.name == name)
    }

    /// What the types do not say.
    fn check(&self) -> anyhow::Result<()> {
        for (name, media) in &self.media {
            ensure!(!media.make.is_empty(), "media {name:?}: make is empty");
            ensure!(is_below(&media.path), "media {name:?}: path is not one below a root");
            let writes = media.make.iter().any(|argument| argument.contains("{out}"));
            ensure!(writes, "media {name:?}: make does not write {{out}}");
        }
        for (index, load) in self.loads.iter().enumerate() {
            load.check().with_context(|| format!("load {:?}", load.name))?;
            let twice = self.loads[..index].iter().any(|before| before.name == load.name);
            ensure!(!twice, "load {:?}: there are two of that name", load.name);
        }
        let tables = self.tables.iter().map(|table| ("table", &table.title, &table.load));
        let figures = self.figures.iter().map(|figure| ("figure", &figure.title, &figure.load));
        for (what, title, load) in tables.chain(figures) {
            ensure!(self.load(load).is_some(), "{what} {title:?}: there is no load {load:?}");
        }
        for figure in &self.figures {
            figure.check().with_context(|| format!("figure {:?}", figure.title))?;
        }
        Ok(())
    }
}

impl Load {
    fn check(&self) -> anyhow::Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let named = !self.name.is_empty() && !self.name.starts_with('.');
        ensure!(named && self.name.chars().all(plain), "its name is not fit for a folder");
        ensure!(self.repeat > 0, "repeat is 0");
        ensure!(
            self.path.is_empty() == self.stream.is_some(),
            "one of path (a file) and stream (a live one) is needed"
        );
        if self.publish.is_some() {
            ensure!(self.stream.is_some(), "what is published needs a stream");
        }
        for (name, values) in &self.cases {
            ensure!(!values.is_empty(), "cases: {name} has no values");
        }
        for name in self.scale.keys() {
            let known = self.cases.contains_key(name) || self.constants.contains_key(name);
            ensure!(known, "scale: there is no parameter {name:?}");
        }
        let mut names = HashSet::new();
        for name in self.cases.keys().chain(self.constants.keys()).chain(self.derive.keys()) {
            ensure!(names.insert(name), "there are two parameters {name:?}");
        }
        if self.until.is_some() && self.cases.is_empty() {
            bail!("until needs cases to sweep over");
        }
        Ok(())
    }
}

impl Figure {
    fn check(&self) -> anyhow::Result<()> {
        let needs = |name: &str, there: bool| {
            ensure!(there, "a figure of this kind needs {name}");
            Ok(())
        };
        match self.kind {
            Kind::Time | Kind::Bars => needs("y", self.y.is_some()),
            Kind::Percentiles => needs("histogram", self.histogram.is_some()),
            Kind::Against => {
                needs("x", self.x.is_some())?;
                needs("y", self.y.is_some())
            }
        }
    }
}

/// Whether a path stays below the folder that it is joined to.
fn is_below(path: &str) -> bool {
    let path = PathBuf::from(path);
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
}
