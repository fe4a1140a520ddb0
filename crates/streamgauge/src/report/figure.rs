//! The figures of a scenario: the content of their plots. `svg` draws them.

mod against;
mod bars;
mod dense;

use anyhow::Context;
use schemars::JsonSchema;
use serde::Serialize;

use crate::lab::scenario::{self, Kind, Load};

use super::axis::{self, Axis};
use super::plot::{Lines, Plot, Style};
use super::table::headed;
use crate::runs::{Kept, NOT_WHOLE, Peer, Study};

/// The note of a figure whose trials measured nothing that it shows. They may have been too short,
/// or the load saturated.
const NOTHING: &str = "No trial measured what this figure shows.";

/// Plots share an axis only if each of them fills this share of it.
const LEAST_FILLED: f64 = 0.5;
/// The note of a figure whose plots do not.
const OWN_AXES: &str = "Each plot has axes of its own, which end with its data.";

/// A figure of a report: one plot or several similar ones.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Figure {
    /// Number in the report.
    pub number: usize,
    /// Heading.
    pub title: String,
    /// Notes for readers.
    pub notes: Vec<String>,
    /// Its plots.
    pub panels: Vec<Panel>,
}

/// A plot of a figure.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Panel {
    /// What distinguishes it from the other plots of the figure; empty if it is the only one.
    pub title: String,
    /// Description for readers who cannot see it.
    pub description: String,
    /// Path of its file, relative to report.md.
    pub file: String,
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) plot: Plot,
}

/// The data for the plots of a figure.
struct Source<'a> {
    study: &'a Study,
    load: &'a Load,
    figure: &'a scenario::Figure,
    trials: Vec<&'a Kept>,
}

/// A plot before it is placed in a figure.
struct Drawn {
    title: String,
    description: String,
    plot: Plot,
    notes: Vec<String>,
}

impl Figure {
    /// Makes a figure of the scenario. `None` if there is no trial to show.
    ///
    /// # Errors
    /// A file of a trial is damaged.
    pub(super) fn make(
        study: &Study,
        load: &Load,
        figure: &scenario::Figure,
        number: usize,
    ) -> anyhow::Result<Option<Self>> {
        let meant = |kept: &&Kept| figure.only.admits(&kept.trial.parameters, &kept.trial.peer);
        let mut trials: Vec<_> = study.trials_of(&figure.load).filter(meant).collect();
        let tried = !trials.is_empty();
        let before = trials.len();
        trials.retain(|kept| !figure.whole || kept.is_whole());
        let left_out = trials.len() < before;
        let source = Source { study, load, figure, trials };
        let drawn = match figure.kind {
            Kind::Time => dense::over_time(&source),
            Kind::Percentiles => dense::percentiles(&source),
            Kind::Against => Ok(against::draw(&source)),
            Kind::Bars => Ok(bars::draw(&source)),
        };
        let mut drawn = drawn.with_context(|| format!("figure {:?}", figure.title))?;
        let mut plots: Vec<&mut Plot> = drawn.iter_mut().map(|drawn| &mut drawn.plot).collect();
        // Cases of different length need no common time.
        let is_timed = figure.kind == Kind::Time;
        let shared = share(&mut plots, |lines| &mut lines.y, |lines| lines.ys().collect())
            && (is_timed || share(&mut plots, |lines| &mut lines.x, |lines| lines.xs().collect()));
        if !shared {
            for plot in &mut plots {
                if let Plot::Lines(lines) = &mut **plot {
                    lines.y.range = None;
                }
            }
        }
        let mut notes: Vec<String> = Vec::new();
        notes.extend((!shared).then(|| OWN_AXES.to_owned()));
        notes.extend(Some(figure.note.trim().to_owned()).filter(|note| !note.is_empty()));
        notes.extend(left_out.then(|| NOT_WHOLE.to_owned()));
        for note in drawn.iter_mut().flat_map(|drawn| std::mem::take(&mut drawn.notes)) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        match (drawn.is_empty(), tried) {
            (true, false) => return Ok(None),
            (true, true) => notes.push(NOTHING.to_owned()),
            (false, _) => {}
        }
        let panels = drawn.into_iter().enumerate().map(|(index, drawn)| Panel {
            title: drawn.title,
            description: drawn.description,
            file: format!("figures/figure-{number}-{}.svg", index + 1),
            plot: drawn.plot,
        });
        let panels = panels.collect();
        Ok(Some(Self { number, title: headed(&figure.title), notes, panels }))
    }

    /// Title of a panel that stands alone.
    pub(super) fn panel_title(&self, panel: &Panel) -> String {
        if panel.title.is_empty() {
            return self.title.clone();
        }
        format!("{}: {}", self.title, panel.title)
    }
}

/// Gives the plots of a figure the same axis, so that they can be compared, if each of them fills
/// enough of it. Otherwise each plot has an axis of its own. Returns whether they share it.
fn share(
    plots: &mut [&mut Plot],
    axis: fn(&mut Lines) -> &mut Axis,
    values: fn(&Lines) -> Vec<f64>,
) -> bool {
    let lines = plots.iter_mut().filter_map(|plot| match &mut **plot {
        Plot::Lines(lines) if !lines.lines.is_empty() => Some(lines),
        _ => None,
    });
    let mut axes: Vec<(&mut Axis, (f64, f64))> = Vec::new();
    for lines in lines {
        let values = values(lines);
        let axis = axis(lines);
        let range = axis::range(values.into_iter(), axis.scale);
        axes.push((axis, range));
    }
    let ranges = axes.iter().map(|(_, range)| *range);
    let all = ranges.reduce(|(low, high), (a, b)| (low.min(a), high.max(b)));
    let Some((first, all)) = axes.first().map(|(axis, _)| axis.scale).zip(all) else { return true };
    let fits = |(axis, range): &(&mut Axis, (f64, f64))| {
        axis.scale == first && axis.length(*range) >= LEAST_FILLED * axis.length(all)
    };
    let shared = axes.iter().all(fits);
    if shared {
        for (axis, _) in axes {
            axis.range = Some(all);
        }
    }
    shared
}

impl<'a> Source<'a> {
    /// The trials of each peer, in the order of display.
    fn by_peer(&self, trials: &[&'a Kept]) -> Vec<(usize, Vec<&'a Kept>)> {
        let of = |peer: usize| {
            let name = &self.study.peers[peer].name;
            let own = trials.iter().filter(|kept| kept.trial.peer == *name);
            (peer, own.copied().collect::<Vec<_>>())
        };
        (0..self.study.peers.len()).map(of).filter(|(_, trials)| !trials.is_empty()).collect()
    }

    /// How a measured peer is drawn.
    fn style(&self, peer: usize) -> Style {
        Style { peer: self.study.peers[peer].look, published: false }
    }

    /// How a peer of the study is drawn, the `number`th of a plot: in the colour of the peer of that
    /// name, if it was measured here too.
    fn style_of_study(&self, name: &str, number: usize) -> Style {
        let is_called = |peer: &&Peer| {
            peer.title.eq_ignore_ascii_case(name) || peer.name.eq_ignore_ascii_case(name)
        };
        let ours = self.study.peers.iter().find(is_called).map(|peer| peer.look);
        Style { peer: ours.unwrap_or(self.study.looks + number), published: true }
    }

    fn peer_title(&self, peer: usize) -> &str {
        &self.study.peers[peer].title
    }

    /// Title of the y axis: that of the scenario, or else the given one.
    fn y_title(&self, otherwise: &str) -> String {
        if self.figure.y_title.is_empty() {
            otherwise.to_owned()
        } else {
            self.figure.y_title.clone()
        }
    }
}

/// Title of a metric, with its unit: `latency_p99_ms` is `latency, 99 %, ms`.
fn metric_title(name: &str) -> String {
    const UNITS: [(&str, &str); 12] = [
        ("_percent", "%"),
        ("_kib", "KiB"),
        ("_mib", "MiB"),
        ("_gib", "GiB"),
        ("_mbit", "Mbit/s"),
        ("_kbit", "kbit/s"),
        ("_ms", "ms"),
        ("_seconds", "s"),
        ("_cpu_s", "s"),
        ("_mean_s", "s"),
        ("_bytes", "bytes"),
        ("_per_second", "1/s"),
    ];
    const PERCENTILES: [(&str, &str); 5] = [
        ("p99_99", "99.99 %"),
        ("p99_9", "99.9 %"),
        ("p99", "99 %"),
        ("p90", "90 %"),
        ("p50", "median"),
    ];
    let unit = UNITS.iter().find(|(ending, _)| name.ends_with(ending));
    let bare = unit.map_or(name, |(ending, _)| name.strip_suffix(ending).unwrap_or(name));
    let mut title = bare.to_owned();
    for (written, read) in PERCENTILES {
        if let Some(before) = title.strip_suffix(written) {
            title = format!("{}, {read}", before.trim_end_matches('_'));
            break;
        }
    }
    let title = title.replace("cpu", "CPU").replace('_', " ");
    unit.map_or(title.clone(), |(_, unit)| format!("{title}, {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_called_by_words() {
        for (name, title) in [
            ("latency_p99_ms", "latency, 99 %, ms"),
            ("latency_p99_9_ms", "latency, 99.9 %, ms"),
            ("server_cpu_s_per_gb", "server CPU s per gb"),
            ("cpu_percent", "CPU, %"),
            ("requests_per_second", "requests, 1/s"),
            ("satisfied", "satisfied"),
        ] {
            assert_eq!(metric_title(name), title);
        }
    }
}
