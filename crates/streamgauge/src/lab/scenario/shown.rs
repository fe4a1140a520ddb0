//! `[[table]]` and `[[figure]]`: how the results of loads are reported.

use std::collections::BTreeMap;

use anyhow::ensure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lab::record::{Parameters, Value};

/// A table of metrics, `[[table]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Heading.
    pub title: String,
    /// Name of the load.
    pub load: String,
    /// The cases that it shows.
    #[serde(default, rename = "where")]
    pub only: Only,
    /// What distinguishes the rows: parameters, `peer`, `value`.
    pub rows: Vec<String>,
    /// What distinguishes the columns.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The values that it shows.
    pub values: Vec<Shown>,
    /// Results of the study.
    pub published: Option<Published>,
    /// For each peer of the study, the peer here that it is compared with.
    #[serde(default)]
    pub stand_in: BTreeMap<String, String>,
    /// A dimension that also has a place for the average over its other places, as the tables of
    /// study B have.
    pub average: Option<String>,
    /// Whether cells say what limited the server: the link, its processors, or the clients.
    #[serde(default)]
    pub limits: bool,
    /// Whether the table belongs to a summary of the scenario.
    #[serde(default)]
    pub headline: bool,
    /// Text below the table.
    #[serde(default)]
    pub note: String,
}

/// A metric in a table or on an axis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// Name of the metric in trial.json.
    pub metric: String,
    /// Name in headings.
    #[serde(default)]
    pub title: String,
    /// Unit, written after the name.
    #[serde(default)]
    pub unit: String,
    /// Number of decimals.
    #[serde(default)]
    pub digits: usize,
    /// Which values are better.
    pub better: Option<Better>,
    /// Whether a shorter or smaller load would measure something else. Then values of a run whose
    /// scale changed the load are left out.
    #[serde(default)]
    pub whole: bool,
}

impl Shown {
    /// Name with the unit.
    pub(crate) fn named(&self) -> String {
        let title = if self.title.is_empty() { &self.metric } else { &self.title };
        if self.unit.is_empty() { title.clone() } else { format!("{title}, {}", self.unit) }
    }
}

/// Which of two values is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The larger one.
    More,
    /// The smaller one.
    Less,
}

/// Published figures: CSV with the names of dimensions and metrics in the first line.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Published {
    /// The names.
    pub columns: Vec<String>,
    /// The lines, each with as many fields as there are names.
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
    /// Heading.
    pub title: String,
    /// Kind of figure.
    pub kind: Kind,
    /// Name of the load.
    pub load: String,
    /// The cases that it shows.
    #[serde(default, rename = "where")]
    pub only: Only,
    /// For `against`: the parameter along the x axis.
    pub x: Option<String>,
    /// A column of the meter (for `time`), or a metric (for `against`, `bars`).
    pub y: Option<String>,
    /// Title of the x axis.
    #[serde(default)]
    pub x_title: String,
    /// Title of the y axis, with the unit.
    #[serde(default)]
    pub y_title: String,
    /// Whether the y axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// For `percentiles`: name of the histogram, without `.hlog`.
    pub histogram: Option<String>,
    /// For `bars`: the parameter that groups the bars.
    pub group: Option<String>,
    /// For `against`: the inflexion point of a line is marked where the line falls below this
    /// value. If less is better, it is marked where the line rises above it.
    pub threshold: Option<f64>,
    /// Whether a shorter or smaller load would measure something else, as in [`Shown::whole`].
    #[serde(default)]
    pub whole: bool,
    /// For `against`: whether each peer also has the curve that is expected of it, if clients share
    /// what the clients of the first point got together.
    #[serde(default)]
    pub expected: bool,
    /// Results of the study.
    pub published: Option<Published>,
    /// Text below the figure.
    #[serde(default)]
    pub note: String,
}

/// Kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A column of the meter over time, with a line for each peer. One figure for each case.
    Time,
    /// A distribution over 1/(1-q), with a line for each peer. One figure for each case.
    Percentiles,
    /// A metric against a parameter, with a line for each peer.
    Against,
    /// A metric for each peer.
    Bars,
}

impl Table {
    /// Checks the rules that types do not express.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Some(name) = &self.average else { return Ok(()) };
        let is_dimension = self.rows.iter().chain(&self.columns).any(|of| of == name);
        ensure!(
            is_dimension && !["peer", "value"].contains(&name.as_str()),
            "average: {name:?} is no parameter of the rows or columns"
        );
        Ok(())
    }
}

impl Figure {
    /// Checks the rules that types do not express.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let needs = |name: &str, there: bool| {
            ensure!(there, "a figure of this kind needs {name}");
            Ok(())
        };
        ensure!(
            !self.expected || self.kind == Kind::Against,
            "only a figure of the kind against has an expected curve"
        );
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

/// Selects trials: those of a load whose parameters, and whose `peer`, have these values.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Only(BTreeMap<String, OneOrMore>);

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(Value),
    More(Vec<Value>),
}

impl Only {
    /// Whether trials of this peer with these parameters are selected.
    pub fn admits(&self, parameters: &Parameters, peer: &str) -> bool {
        let peer = Value::Text(peer.to_owned());
        self.0.iter().all(|(name, wanted)| {
            let value = if name == "peer" { Some(&peer) } else { parameters.get(name) };
            value.is_some_and(|value| match wanted {
                OneOrMore::One(wanted) => wanted == value,
                OneOrMore::More(wanted) => wanted.contains(value),
            })
        })
    }
}
