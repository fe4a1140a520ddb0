//! A pivot: metrics of trials by row and column, with published figures in their cells.

use std::collections::{BTreeMap, BTreeSet};

use crate::lab::record::Value;
use crate::lab::scenario::{self, Better, Load};
use crate::percentile;

use super::{Aspect, Cell, Row, Table, headed, parameter};
use crate::number;
use crate::runs::dimension;
use crate::runs::limit::{LIMITS, limit};
use crate::runs::marks::{Doubt, MARKS, marks, neglects};
use crate::runs::statistics::Summary;
use crate::runs::{Kept, NOT_WHOLE, Study, percentile_of_requests};

/// With more columns, published figures stand below the measured ones, not beside them.
const MOST_BESIDE: usize = 4;
/// A place along a dimension.
#[derive(Debug, Clone, PartialEq)]
enum Member {
    /// A measured peer, by number.
    Peer(usize),
    /// A peer that is only in the study.
    Theirs(String),
    Parameter(Value),
    /// A metric, by number.
    Metric(usize),
}

/// The contents of a cell.
#[derive(Debug, Default)]
struct Gathered<'a> {
    trials: Vec<&'a Kept>,
    published: Vec<f64>,
    metric: usize,
}

impl Gathered<'_> {
    /// Whether the trials had smaller parameters than the study, so that published figures do not
    /// compare.
    fn is_scaled(&self) -> bool {
        self.trials.iter().any(|kept| !kept.is_whole())
    }
}

/// The place of averages along a dimension.
fn average() -> Member {
    Member::Parameter(Value::Text("Average".to_owned()))
}

type Key = Vec<usize>;
/// A row and a column.
type RowColumn = (Key, Key);

pub(super) struct Pivot<'a> {
    study: &'a Study,
    table: &'a scenario::Table,
    load: &'a Load,
    rows: Vec<String>,
    columns: Vec<String>,
    members: Vec<Vec<Member>>,
    cells: BTreeMap<RowColumn, Gathered<'a>>,
    /// Peers that stand in for a peer of the study, by number, with that peer's name.
    stands_for: BTreeMap<usize, String>,
}

impl<'a> Pivot<'a> {
    pub(super) fn new(study: &'a Study, table: &'a scenario::Table, load: &'a Load) -> Self {
        let (mut rows, mut columns) = (table.rows.clone(), table.columns.clone());
        let has = |name: &str, dimensions: [&Vec<String>; 2]| {
            dimensions.iter().any(|dimensions| dimensions.iter().any(|other| other == name))
        };
        // Peers and metrics are never mixed in one cell.
        if !has("peer", [&rows, &columns]) {
            rows.insert(0, "peer".to_owned());
        }
        if table.values.len() > 1 && !has("value", [&rows, &columns]) {
            columns.push("value".to_owned());
        }
        let members = vec![vec![]; rows.len() + columns.len()];
        let (cells, stands_for) = (BTreeMap::new(), BTreeMap::new());
        Self { study, table, load, rows, columns, members, cells, stands_for }
    }

    fn dimensions(&self) -> impl Iterator<Item = &String> {
        self.rows.iter().chain(&self.columns)
    }

    pub(super) fn gather(&mut self) {
        let mut facts: Vec<(Vec<Member>, Option<&'a Kept>, f64, usize)> = Vec::new();
        for kept in self.study.trials_of(&self.table.load) {
            if !self.table.only.admits(&kept.trial.parameters, &kept.trial.peer) {
                continue;
            }
            for metric in 0..self.table.values.len() {
                if let Some(place) = self.place(kept, metric) {
                    facts.extend(
                        self.averaged(&place).map(|place| (place, Some(kept), 0.0, metric)),
                    );
                    facts.push((place, Some(kept), 0.0, metric));
                }
            }
        }
        for (place, _, _, _) in &facts {
            self.learn(place);
        }
        for (place, value, metric) in self.published() {
            self.learn(&place);
            facts.push((place, None, value, metric));
        }
        self.sort_members();
        for (place, kept, value, metric) in facts {
            let key: Key = place
                .iter()
                .zip(&self.members)
                .filter_map(|(member, members)| members.iter().position(|other| other == member))
                .collect();
            let (row, column) = key.split_at(self.rows.len());
            let cell = self.cells.entry((row.to_vec(), column.to_vec())).or_default();
            cell.metric = metric;
            match kept {
                Some(kept) => cell.trials.push(kept),
                None => cell.published.push(value),
            }
        }
    }

    /// The place of a trial's metric; `None` if the trial lacks a parameter.
    fn place(&self, kept: &Kept, metric: usize) -> Option<Vec<Member>> {
        let member = |name: &String| match name.as_str() {
            "peer" => self.study.peer(&kept.trial.peer).map(Member::Peer),
            "value" => Some(Member::Metric(metric)),
            name => kept.trial.parameters.get(name).cloned().map(Member::Parameter),
        };
        self.dimensions().map(member).collect()
    }

    /// The place of the average that a figure at this place belongs to, if the table has averages.
    fn averaged(&self, place: &[Member]) -> Option<Vec<Member>> {
        let mut place = place.to_vec();
        *place.get_mut(self.averages()?)? = average();
        Some(place)
    }

    /// The number of the dimension that has a place for averages.
    fn averages(&self) -> Option<usize> {
        self.dimensions().position(|name| Some(name) == self.table.average.as_ref())
    }

    /// Whether a cell is an average.
    fn is_average(&self, (row, column): &RowColumn) -> bool {
        self.averages().is_some_and(|at| {
            let key = row.iter().chain(column).nth(at);
            key.is_some_and(|key| self.members[at].get(*key) == Some(&average()))
        })
    }

    fn learn(&mut self, place: &[Member]) {
        for (member, members) in place.iter().zip(&mut self.members) {
            if !members.contains(member) {
                members.push(member.clone());
            }
        }
    }

    /// The study's figures and their places. A line without a value for a dimension applies to all
    /// places along it.
    fn published(&mut self) -> Vec<(Vec<Member>, f64, usize)> {
        let Some(published) = &self.table.published else { return vec![] };
        let mut facts = Vec::new();
        for row in &published.rows {
            let field = |name: &str| {
                let at = published.columns.iter().position(|column| column == name)?;
                Some(row[at].as_str()).filter(|field| !field.is_empty())
            };
            for (metric, shown) in self.table.values.iter().enumerate() {
                let Some(value) = field(&shown.metric).and_then(|field| field.parse::<f64>().ok())
                else {
                    continue;
                };
                let mut places: Vec<Vec<Member>> = vec![vec![]];
                for (index, name) in self.rows.iter().chain(&self.columns).enumerate() {
                    let members = match (name.as_str(), field(name)) {
                        ("value", _) => vec![Member::Metric(metric)],
                        ("peer", Some(peer)) => vec![self.theirs(peer)],
                        (_, Some(text)) => vec![Member::Parameter(parameter(text))],
                        ("peer", None) => vec![Member::Theirs("the study".to_owned())],
                        (_, None) => self.members[index].clone(),
                    };
                    places = places
                        .iter()
                        .flat_map(|place| {
                            members
                                .iter()
                                .map(|member| [place, std::slice::from_ref(member)].concat())
                        })
                        .collect();
                }
                facts.extend(places.into_iter().map(|place| (place, value, metric)));
            }
        }
        for (theirs, ours) in &self.table.stand_in {
            if let Some(ours) = self.study.peer(ours) {
                self.stands_for.insert(ours, theirs.clone());
            }
        }
        facts
    }

    /// Member for a peer of the study: its stand-in, if that was measured, or the peer itself.
    fn theirs(&self, name: &str) -> Member {
        let ours = self.table.stand_in.get(name).and_then(|name| self.study.peer(name));
        let was_measured = |ours: &usize| {
            self.members.iter().any(|members| members.contains(&Member::Peer(*ours)))
        };
        match ours.filter(was_measured) {
            Some(ours) => Member::Peer(ours),
            None => Member::Theirs(name.to_owned()),
        }
    }

    /// Sorts peers in the order of display, and parameters in the order of the scenario.
    fn sort_members(&mut self) {
        let names: Vec<String> = self.dimensions().cloned().collect();
        for (name, members) in names.iter().zip(&mut self.members) {
            let values = self.load.cases.get(name);
            let is_averaged = Some(name) == self.table.average.as_ref();
            members.sort_by(|a, b| {
                let order = |member: &Member| match member {
                    Member::Peer(at) | Member::Metric(at) => (0, *at, 0.0),
                    Member::Theirs(_) => (1, 0, 0.0),
                    _ if is_averaged && *member == average() => (2, 0, 0.0),
                    Member::Parameter(value) => {
                        let place =
                            values.and_then(|values| values.iter().position(|v| v == value));
                        let number = if let Value::Number(number) = value { *number } else { 0.0 };
                        (0, place.unwrap_or(usize::MAX), number)
                    }
                };
                let ((a, b, c), (x, y, z)) = (order(a), order(b));
                (a, b).cmp(&(x, y)).then(c.total_cmp(&z))
            });
        }
    }

    pub(super) fn finish(self, number: usize) -> Table {
        let rows: BTreeSet<Key> = self.cells.keys().map(|(row, _)| row.clone()).collect();
        let columns: BTreeSet<Key> = self.cells.keys().map(|(_, column)| column.clone()).collect();
        let published = self.cells.values().any(|cell| !cell.published.is_empty());
        let beside = columns.len() <= MOST_BESIDE;
        let all = |of: &dyn Fn(&RowColumn) -> bool| self.aspects(of);
        let along_rows = expanded(&rows, published && !beside, &|row| all(&|key| key.0 == *row));
        let along_columns =
            expanded(&columns, published && beside, &|column| all(&|key| key.1 == *column));
        let best = self.best();
        let cell = |row: &(Key, Option<Aspect>), column: &(Key, Option<Aspect>)| {
            let key = (row.0.clone(), column.0.clone());
            let gathered = self.cells.get(&key)?;
            let aspect = row.1.or(column.1).unwrap_or(Aspect::Measured);
            self.cell(&key, gathered, aspect, best.contains(&key))
        };
        let mut stub: Vec<String> = self.rows.iter().map(|name| dimension::title(name)).collect();
        stub.extend((published && !beside).then(String::new));
        let mut table = Table {
            number,
            title: headed(&self.table.title),
            quantity: self.quantity(),
            headline: self.table.headline,
            stub,
            columns: along_columns.iter().map(|column| self.column_heads(column)).collect(),
            rows: along_rows
                .iter()
                .map(|row| Row {
                    heads: self.row_heads(row),
                    cells: along_columns.iter().map(|column| cell(row, column)).collect(),
                })
                .collect(),
            notes: vec![],
        };
        table.notes = self.notes(&table, beside);
        table
    }

    /// The aspects that some of the cells have.
    fn aspects(&self, of: &dyn Fn(&RowColumn) -> bool) -> Vec<Aspect> {
        let mut aspects = BTreeSet::new();
        for (_, cell) in self.cells.iter().filter(|(key, _)| of(key)) {
            let (measured, published) = (!cell.trials.is_empty(), !cell.published.is_empty());
            aspects.extend(measured.then_some(Aspect::Measured));
            aspects.extend(published.then_some(Aspect::Published));
            aspects.extend((measured && published && !cell.is_scaled()).then_some(Aspect::Ratio));
        }
        aspects.into_iter().collect()
    }

    fn quantity(&self) -> String {
        match self.table.values.as_slice() {
            [only] if !self.dimensions().any(|name| name == "value") => only.named(),
            _ => String::new(),
        }
    }

    fn row_heads(&self, (key, aspect): &(Key, Option<Aspect>)) -> Vec<String> {
        let heads = key.iter().zip(&self.rows).zip(&self.members);
        let mut heads: Vec<String> =
            heads.map(|((at, name), members)| self.head(name, &members[*at], true)).collect();
        heads.extend(aspect.map(|aspect| self.aspect_head(aspect, key, &self.rows, 0)));
        heads
    }

    fn column_heads(&self, (key, aspect): &(Key, Option<Aspect>)) -> Vec<String> {
        let before = self.rows.len();
        let heads = key.iter().zip(&self.columns).zip(&self.members[before..]);
        let mut heads: Vec<String> =
            heads.map(|((at, name), members)| self.head(name, &members[*at], false)).collect();
        if heads.is_empty() {
            heads.push(self.quantity());
        }
        heads.extend(aspect.map(|aspect| self.aspect_head(aspect, key, &self.columns, before)));
        heads
    }

    fn head(&self, name: &str, member: &Member, bare: bool) -> String {
        match member {
            Member::Peer(at) => self.study.peers[*at].title.clone(),
            Member::Theirs(name) => name.clone(),
            Member::Metric(at) => self.table.values[*at].named(),
            Member::Parameter(value) if bare => dimension::bare(value),
            Member::Parameter(value) => dimension::full(name, value),
        }
    }

    /// Heading of an aspect: `published (nginx)` if the figures are those of another peer.
    fn aspect_head(&self, aspect: Aspect, key: &Key, names: &[String], before: usize) -> String {
        let peer = names.iter().position(|name| name == "peer");
        let peer = peer.map(|at| &self.members[before + at][key[at]]);
        match (aspect, peer) {
            (Aspect::Measured, _) => "measured".to_owned(),
            (Aspect::Ratio, _) => "ratio".to_owned(),
            (Aspect::Published, Some(Member::Peer(at))) => match self.stands_for.get(at) {
                Some(theirs) if !self.is_called(*at, theirs) => format!("published ({theirs})"),
                _ => "published".to_owned(),
            },
            (Aspect::Published, _) => "published".to_owned(),
        }
    }

    fn is_called(&self, peer: usize, name: &str) -> bool {
        self.study.peers[peer].title.eq_ignore_ascii_case(name)
    }

    /// The best peers of each comparison.
    fn best(&self) -> BTreeSet<RowColumn> {
        let names: Vec<&String> = self.dimensions().collect();
        let Some(peer) = names.iter().position(|name| *name == "peer") else {
            return BTreeSet::new();
        };
        let mut fields: BTreeMap<Key, Vec<(f64, &RowColumn)>> = BTreeMap::new();
        for (key, cell) in &self.cells {
            let metric = &self.table.values[cell.metric].metric;
            let doubtful =
                Doubt::of(&cell.trials, metric).is_some() || neglects(&cell.trials, metric);
            let Some(summary) = self.summary(key, cell).filter(|_| !doubtful) else { continue };
            let sign = match self.table.values[cell.metric].better {
                Some(Better::More) => 1.0,
                Some(Better::Less) => -1.0,
                None => continue,
            };
            let mut field: Key = key.0.iter().chain(&key.1).copied().collect();
            field.remove(peer);
            fields.entry(field).or_default().push((summary.median * sign, key));
        }
        let mut best = BTreeSet::new();
        for field in fields.into_values().filter(|field| field.len() > 1) {
            let most = field.iter().map(|(value, _)| *value).fold(f64::NEG_INFINITY, f64::max);
            // If all are equal, none is best.
            if field.iter().any(|(value, _)| *value < most) {
                best.extend(
                    field.iter().filter(|(value, _)| *value == most).map(|(_, k)| (*k).clone()),
                );
            }
        }
        best
    }

    fn summary(&self, key: &RowColumn, cell: &Gathered<'_>) -> Option<Summary> {
        let shown = &self.table.values[cell.metric];
        let figure = |kept: &&&Kept| {
            (!shown.whole || kept.is_whole()).then(|| kept.metric(&shown.metric)).flatten()
        };
        if !self.is_average(key) {
            return Summary::of(cell.trials.iter().filter_map(|kept| figure(&kept)));
        }
        // The mean of the figures that the table shows. Without one of them it would be of others.
        let name = self.table.average.as_ref()?;
        let mut places: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for kept in &cell.trials {
            let place = kept.trial.parameters.get(name)?.to_string();
            places.entry(place).or_default().extend(figure(&kept));
        }
        // One place more is that of the average.
        if places.len() + 1 < self.members[self.averages()?].len() {
            return None;
        }
        let medians: Option<Vec<f64>> =
            places.into_values().map(|all| Some(Summary::of(all)?.median)).collect();
        let medians = medians.filter(|medians| !medians.is_empty())?;
        Summary::of([medians.iter().sum::<f64>() / medians.len() as f64])
    }

    /// What limited the server in the trials of a cell, if the table says so.
    fn limit(&self, cell: &Gathered<'_>) -> Option<String> {
        if !self.table.limits {
            return None;
        }
        let machine = &self.study.runs.first()?.machine;
        let mut all: Vec<String> =
            cell.trials.iter().filter_map(|kept| limit(kept, self.load, machine)).collect();
        all.sort();
        all.dedup();
        (!all.is_empty()).then(|| all.join(" or "))
    }

    fn cell(
        &self,
        key: &RowColumn,
        cell: &Gathered<'_>,
        aspect: Aspect,
        best: bool,
    ) -> Option<Cell> {
        let shown = &self.table.values[cell.metric];
        let print = |value| number::fixed(value, shown.digits.min(9));
        let published = Summary::of(cell.published.iter().copied()).map(|summary| summary.median);
        let plain = |kind, value: f64, text| Cell {
            kind,
            value: Some(value),
            spread: None,
            text,
            spread_text: None,
            limit: None,
            marks: String::new(),
            best: false,
        };
        match aspect {
            Aspect::Published => published.map(|value| {
                // With the decimals that the study printed.
                let digits = number::decimals(value).max(shown.digits.min(9));
                plain(aspect, value, number::fixed(value, digits))
            }),
            Aspect::Ratio if cell.is_scaled() => None,
            Aspect::Ratio => {
                let ratio = self.summary(key, cell)?.median / published?;
                let digits = if ratio.abs() < 10.0 { 2 } else { usize::from(ratio.abs() < 100.0) };
                ratio.is_finite().then(|| plain(aspect, ratio, number::fixed(ratio, digits)))
            }
            Aspect::Measured => {
                let Some(summary) = self.summary(key, cell) else {
                    let failed = cell.trials.iter().any(|kept| kept.trial.failed.is_some());
                    let text = "failed".to_owned();
                    return failed.then(|| Cell { value: None, ..plain(aspect, 0.0, text) });
                };
                let spread = (summary.max > summary.min).then_some((summary.min, summary.max));
                let text = |(low, high)| format!("{}–{}", print(low), print(high));
                Some(Cell {
                    spread,
                    spread_text: spread.map(text),
                    limit: if self.is_average(key) { None } else { self.limit(cell) },
                    marks: marks(&cell.trials, &shown.metric),
                    best,
                    ..plain(aspect, summary.median, print(summary.median))
                })
            }
        }
    }

    fn notes(&self, table: &Table, beside: bool) -> Vec<String> {
        let mut notes = Vec::new();
        let cells = || table.rows.iter().flat_map(|row| row.cells.iter().flatten());
        if !self.table.note.trim().is_empty() {
            notes.push(self.table.note.trim().to_owned());
        }
        if let Some(pooled) = self.pooled() {
            notes.push(pooled);
        }
        notes.extend(self.requests());
        if cells().any(|cell| cell.spread.is_some()) {
            notes.push("Medians; below them the least and the most.".to_owned());
        }
        if cells().any(|cell| cell.kind == Aspect::Ratio) {
            notes.push("Ratio: measured over published.".to_owned());
            if beside && self.rows.iter().any(|name| name == "peer") {
                for (ours, theirs) in &self.stands_for {
                    if !self.is_called(*ours, theirs) {
                        let ours = &self.study.peers[*ours].title;
                        notes.push(format!("Published beside {ours}: {theirs}."));
                    }
                }
            }
        }
        let both = |cell: &Gathered<'_>| !cell.trials.is_empty() && !cell.published.is_empty();
        if self.cells.values().any(|cell| both(cell) && cell.is_scaled()) {
            notes.push(
                "No ratio where the run was scaled: its parameters are smaller than the study’s."
                    .to_owned(),
            );
        }
        if self.cells.values().any(|cell| self.table.values[cell.metric].whole && cell.is_scaled())
        {
            notes.push(NOT_WHOLE.to_owned());
        }
        if cells().any(|cell| cell.limit.is_some()) {
            notes.push(LIMITS.to_owned());
        }
        if cells().any(|cell| cell.best) {
            notes.push("Bold: the best of those measured.".to_owned());
        }
        for (mark, meaning) in MARKS {
            if cells().any(|cell| cell.marks.contains(mark)) {
                notes.push(format!("{mark} {meaning}"));
            }
        }
        notes
    }

    /// Says how many requests the percentiles are of, if there are any, and why some are missing.
    fn requests(&self) -> Option<String> {
        let quantile = |shown: &scenario::Shown| percentile_of_requests(&shown.metric);
        let of_requests =
            |cell: &&Gathered<'_>| quantile(&self.table.values[cell.metric]).is_some();
        let cells = self.cells.values().filter(of_requests);
        let counts = cells.flat_map(|cell| &cell.trials).filter_map(|kept| kept.requests());
        let Summary { min, max, .. } = Summary::of(counts)?;
        let (least, most) = (number::fixed(min, 0), number::fixed(max, 0));
        let count = if least == most { least } else { format!("{least} to {most}") };
        let mut quantiles = self.table.values.iter().filter_map(quantile);
        let some_are_missing = quantiles.any(|quantile| !percentile::has(min as u64, quantile));
        let missing = if some_are_missing {
            " A percentile is not shown if no request lies beyond it."
        } else {
            ""
        };
        Some(format!("Percentiles are of {count} requests in each repetition.{missing}"))
    }

    /// Names the parameters that differ within cells.
    fn pooled(&self) -> Option<String> {
        let mut pooled: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        // Computed parameters follow from others and add nothing.
        let names = self.load.cases.keys();
        for name in names.filter(|name| !self.dimensions().any(|other| other == *name)) {
            // An average says by its name what it is over.
            for (_, cell) in self.cells.iter().filter(|(key, _)| !self.is_average(key)) {
                let values =
                    || cell.trials.iter().filter_map(|kept| kept.trial.parameters.get(name));
                let first = values().next();
                if values().any(|value| Some(value) != first) {
                    let all = pooled.entry(name).or_default();
                    for value in values() {
                        if !all.contains(&value) {
                            all.push(value);
                        }
                    }
                }
            }
        }
        let describe = |(name, values): (&str, Vec<&Value>)| {
            let values: Vec<String> =
                values.into_iter().map(|value| dimension::full(name, value)).collect();
            values.join(", ")
        };
        let pooled: Vec<String> = pooled.into_iter().map(describe).collect();
        (!pooled.is_empty())
            .then(|| format!("Each figure is the median over {}.", pooled.join("; and over ")))
    }
}

/// Lists keys with their aspects, if each aspect has a row or column of its own.
fn expanded(
    keys: &BTreeSet<Key>,
    apart: bool,
    aspects: &dyn Fn(&Key) -> Vec<Aspect>,
) -> Vec<(Key, Option<Aspect>)> {
    let mut all = Vec::new();
    for key in keys {
        if apart {
            all.extend(aspects(key).into_iter().map(|aspect| (key.clone(), Some(aspect))));
        } else {
            all.push((key.clone(), None));
        }
    }
    all
}
