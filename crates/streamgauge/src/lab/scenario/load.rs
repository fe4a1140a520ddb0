//! `[[load]]`: a load on servers, and its cases.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use anyhow::{bail, ensure};
use indexmap::IndexMap;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::lab::link::mbit;
use crate::lab::peer::Ingest;
use crate::lab::record::Value;
use crate::lab::template::is_name;
use crate::units;

/// A load and its cases, `[[load]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Name of the load and of its folder.
    pub name: String,
    /// Title in headings.
    #[serde(default)]
    pub title: String,
    /// Names of the peers, unless others are asked for.
    pub peers: Vec<String>,
    /// The job that peers do: a key of their `[serves]`. A template.
    pub job: String,
    /// The file or files to ask for, below `{root}`. Templates.
    #[serde(default, deserialize_with = "one_or_more")]
    pub path: Vec<String>,
    /// The live stream to ask for. A template.
    pub stream: Option<String>,
    /// The program that makes the load.
    pub with: Tool,
    /// Its arguments; templates.
    pub arguments: Vec<String>,
    /// How often each case is repeated.
    #[serde(default = "once")]
    pub repeat: u32,
    /// Time from the start of the server to the load.
    #[serde(default, deserialize_with = "time")]
    pub settle: Duration,
    /// Time from the end of the load to the end of metering.
    #[serde(default, deserialize_with = "time")]
    pub rest: Duration,
    /// Rate of the link between server and load, written as for tc (`700mbit`); `None` for
    /// loopback.
    pub link: Option<String>,
    /// Other rates that the link has later on.
    #[serde(default)]
    pub link_changes: Vec<LinkChange>,
    /// What is published before the load starts.
    pub publish: Option<Publish>,
    /// Another load beside it, without figures.
    pub background: Option<Background>,
    /// Parameters with their values. Every combination is a case.
    #[serde(default)]
    pub cases: IndexMap<String, Vec<Value>>,
    /// Parameters that are the same in all cases.
    #[serde(default)]
    pub constants: IndexMap<String, Value>,
    /// Computed parameters: products of numbers and parameters, `batches * 50`.
    #[serde(default)]
    pub derive: IndexMap<String, String>,
    /// Parameters that `--scale` makes smaller.
    #[serde(default)]
    pub scale: BTreeMap<String, Scale>,
    /// When a sweep over the last parameter ends for a peer before its last value.
    pub until: Option<Until>,
    /// Whether an extra repetition profiles the server.
    #[serde(default)]
    pub profile: bool,
    /// Whether files in the form of study B are kept: `run000_100_rtmp_60.csv`, `.times`, and the
    /// one whose name ends in the number of clients served.
    #[serde(default)]
    pub study_b_files: bool,
}

impl Load {
    /// Checks the rules that types do not express.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let named = !self.name.is_empty() && !self.name.starts_with('.');
        ensure!(named && self.name.chars().all(plain), "its name is not fit for a folder");
        ensure!(self.repeat > 0, "repeat is 0");
        ensure!(
            self.path.is_empty() == self.stream.is_some(),
            "one of path (a file) and stream (a live one) is needed"
        );
        let in_background = self.background.iter().any(|background| !background.path.is_empty());
        ensure!(
            self.stream.is_none() || !in_background,
            "background: a load on a stream has no path"
        );
        ensure!(
            self.link_changes.is_empty() || self.link.is_some(),
            "link_changes: there is no link"
        );
        let times: Vec<f64> = self.link_changes.iter().map(|change| change.at).collect();
        ensure!(
            times.iter().all(|at| (0.0..1.0).contains(at)) && times.is_sorted(),
            "link_changes: at is a share of the load's time, from 0 to 1, and rises"
        );
        for LinkChange { rate, .. } in &self.link_changes {
            ensure!(mbit(rate).is_some(), "link_changes: {rate:?} is no rate such as 700mbit");
        }
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
            ensure!(is_name(name), "no template can ask for a parameter {name:?}");
        }
        if self.until.is_some() && self.cases.is_empty() {
            bail!("until needs cases to sweep over");
        }
        Ok(())
    }
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

/// A change of a link's rate while the load runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// When, as a share of the time that the load takes.
    pub at: f64,
    /// The rate from then on, written as for tc.
    pub rate: String,
}

/// A program that makes a load.
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
    /// Its name in scenarios. Of other programs it is the name of the program.
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

/// A live stream, `[load.publish]`: the load's `stream`, published by RTMP again and again.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// Name of a file of the scenario's media. A template.
    pub file: String,
    /// The program that publishes.
    #[serde(default)]
    pub with: Publisher,
    /// Whether each frame carries the time of sending, so that viewers can tell how late it is.
    #[serde(default)]
    pub stamp: bool,
}

/// A program that publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Publisher {
    /// `headwater publish`, over RTMP.
    #[default]
    Headwater,
    /// `headwater publish`, by WHIP.
    Whip,
    /// ffmpeg(1), over RTMP.
    Ffmpeg,
}

impl Publisher {
    /// How it publishes.
    pub fn ingest(self) -> Ingest {
        if self == Self::Whip { Ingest::Whip } else { Ingest::Rtmp }
    }
}

/// A load without figures, `[load.background]`. It lasts as long as the main load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// The program that makes the load.
    pub with: Tool,
    /// Its arguments; templates.
    pub arguments: Vec<String>,
    /// The file or files that it asks for, if not those of the load. Templates.
    #[serde(default, deserialize_with = "one_or_more")]
    pub path: Vec<String>,
}

/// How the scale changes a parameter.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The smallest value.
    pub least: f64,
    /// Only scales below this one change the parameter, in proportion: with 0.1, the value stays
    /// whole at scale 0.1 and is a tenth at scale 0.01. Without it every scale below 1 changes the
    /// parameter, as for times.
    pub below: Option<f64>,
}

/// When a sweep ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// When the generator was the limit, or there were no figures.
    Saturated,
}
