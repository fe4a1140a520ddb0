//! `[[table]]` and `[[figure]]`: what is reported of the loads.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde::Deserialize;

use crate::lab::record::{Parameters, Value};

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
    /// `against`: where a line falls below this value, its inflexion point is marked; one of which
    /// less is better, where it rises over it.
    pub threshold: Option<f64>,
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

impl Figure {
    /// What the types do not say.
    pub(super) fn check(&self) -> anyhow::Result<()> {
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
