//! The figures of a scenario: the content of their plots. `svg` draws them.

mod against;
mod bars;
mod dense;

use anyhow::Context;
use schemars::JsonSchema;
use serde::Serialize;

use crate::lab::scenario::{self, Kind, Load};

use super::axis;
use super::plot::{Lines, Plot};
use super::table::headed;
use crate::runs::{Kept, NOT_WHOLE, Study};

/// The note of a figure whose trials measured nothing that it shows. They may have been too short,
/// or the load saturated.
const NOTHING: &str = "No trial measured what this figure shows.";

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
        let meant = |kept: &&Kept| figure.only.admits(&kept.trial.parameters);
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
        share_axes(&mut plots, figure.kind != Kind::Time);
        let mut notes: Vec<String> = Vec::new();
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

/// Gives all plots of a figure the same range, so that they can be compared.
fn share_axes(plots: &mut [&mut Plot], both: bool) {
    fn union(plots: &[&mut Plot], of: fn(&Lines) -> (f64, f64)) -> Option<(f64, f64)> {
        let ranges = plots.iter().filter_map(|plot| match &**plot {
            Plot::Lines(lines) if !lines.lines.is_empty() => Some(of(lines)),
            _ => None,
        });
        ranges.reduce(|(low, high), (a, b)| (low.min(a), high.max(b)))
    }
    let y = union(plots, |lines| axis::range(lines.ys(), lines.y.scale));
    let x = union(plots, |lines| axis::range(lines.xs(), lines.x.scale)).filter(|_| both);
    for plot in plots {
        if let Plot::Lines(lines) = &mut **plot {
            lines.y.range = y;
            lines.x.range = x;
        }
    }
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
