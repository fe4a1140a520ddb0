//! `[[load]]`: what is done to servers, in which cases.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use anyhow::{bail, ensure};
use indexmap::IndexMap;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::lab::record::Value;
use crate::lab::template::is_name;
use crate::units;

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

impl Load {
    /// What the types do not say.
    pub(super) fn check(&self) -> anyhow::Result<()> {
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

/// A live stream, `[load.publish]`: the load's `stream`, over and over, by RTMP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// Which of the scenario's media. A template.
    pub file: String,
    /// By which program.
    #[serde(default)]
    pub with: Publisher,
    /// Whether each frame says when it was sent, so that viewers can tell how late it is.
    #[serde(default)]
    pub stamp: bool,
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
