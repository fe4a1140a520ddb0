//! A metric for each peer, in groups by a parameter.

use super::super::axis::{Axis, Scale};
use super::super::plot::{Bar, Bars, Plot};
use super::super::table;
use super::against::of_study;
use super::{Drawn, Source, metric_title};
use crate::lab::record::Value;
use crate::number;
use crate::runs::Kept;
use crate::runs::dimension;
use crate::runs::marks::Doubt;
use crate::runs::statistics::Summary;

/// The most bars: nobody reads more.
const MOST: usize = 200;

pub(super) fn draw(source: &Source<'_>) -> Vec<Drawn> {
    let given: Vec<&str> = source.figure.group.as_deref().into_iter().collect();
    let by = dimension::telling(source.load, &source.trials, &given);
    let mut panels = dimension::grouped(source.load, &source.trials, &by);
    if panels.is_empty() && source.figure.published.is_some() {
        panels.push((String::new(), vec![]));
    }
    panels.into_iter().filter_map(|(title, trials)| plot(source, title, &trials)).collect()
}

fn plot(source: &Source<'_>, title: String, trials: &[&Kept]) -> Option<Drawn> {
    let metric = source.figure.y.as_deref().unwrap_or_default();
    let group: Vec<String> = source.figure.group.iter().cloned().collect();
    let mut groups = dimension::grouped(source.load, trials, &group);
    if groups.is_empty() {
        groups.push((String::new(), vec![]));
    }
    let mut left = MOST;
    let mut bars = Vec::new();
    for (name, trials) in groups {
        let mut own: Vec<Bar> = Vec::new();
        for (peer, trials) in source.by_peer(&trials) {
            own.extend(bar(source, peer, &trials, metric));
        }
        let value = trials.first().zip(group.first());
        let value = value.and_then(|(kept, name)| kept.trial.parameters.get(name));
        own.extend(published(source, metric, value));
        own.truncate(left);
        left -= own.len();
        if !own.is_empty() {
            bars.push((name, own));
        }
    }
    if bars.is_empty() {
        return None;
    }
    let mut notes = Vec::new();
    let all = || bars.iter().flat_map(|(_, bars)| bars);
    notes.extend(Doubt::notes(all().filter_map(|bar| bar.doubt)));
    if all().any(|bar| bar.low < bar.high) {
        notes.push("Bars are medians; whiskers reach from the least to the most.".to_owned());
    }
    let say = |(name, bars): &(String, Vec<Bar>)| {
        let bars: Vec<String> =
            bars.iter().map(|bar| format!("{} {}", bar.label, bar.text)).collect();
        if name.is_empty() { bars.join(", ") } else { format!("{name}: {}", bars.join(", ")) }
    };
    let description = bars.iter().map(say).collect::<Vec<_>>().join(". ") + ".";
    let title_of_axis = source.y_title(&metric_title(metric));
    let axis = Axis {
        title: title_of_axis,
        scale: Scale::Linear,
        range: None,
        from_zero: true,
        exact: true,
    };
    Some(Drawn { title, description, plot: Plot::Bars(Bars { axis, groups: bars }), notes })
}

fn bar(source: &Source<'_>, peer: usize, trials: &[&Kept], metric: &str) -> Option<Bar> {
    let summary = Summary::of(trials.iter().filter_map(|kept| kept.metric(metric)))?;
    let doubt = Doubt::of(trials, metric);
    let mark = doubt.map(|doubt| format!(" {}", doubt.mark())).unwrap_or_default();
    Some(Bar {
        label: source.peer_title(peer).to_owned(),
        style: source.style(peer),
        value: summary.median,
        low: summary.min,
        high: summary.max,
        doubt,
        text: number::sensible(summary.median) + &mark,
    })
}

/// The bars of the study for this group.
fn published(source: &Source<'_>, metric: &str, value: Option<&Value>) -> Vec<Bar> {
    let Some(published) = &source.figure.published else { return vec![] };
    let column = |name: &str| published.columns.iter().position(|column| column == name);
    let Some(at) = column(metric) else { return vec![] };
    let group = source.figure.group.as_deref().and_then(column);
    let mut bars = Vec::new();
    for row in &published.rows {
        let here = group
            .is_none_or(|group| value.is_none_or(|value| *value == table::parameter(&row[group])));
        let Some(number) = row[at].parse::<f64>().ok().filter(|number| here && number.is_finite())
        else {
            continue;
        };
        let name = column("peer").map_or("", |peer| row[peer].as_str());
        bars.push(Bar {
            label: of_study(name),
            style: source.style_of_study(name, bars.len()),
            value: number,
            low: number,
            high: number,
            doubt: None,
            text: number::sensible(number),
        });
    }
    bars
}
