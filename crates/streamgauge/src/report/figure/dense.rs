//! Lines with many points, over time or over percentiles. One plot for each case.

use std::collections::BTreeMap;

use super::super::axis::{Axis, Scale};
use super::super::plot::{Line, Lines, Plot, Point};
use super::super::samples::{self, Distribution};
use super::{Drawn, Source};
use crate::number;
use crate::runs::Kept;
use crate::runs::dimension;
use crate::runs::marks::Doubt;
use crate::runs::statistics::Summary;

/// The most points of a line: there are no more pixels.
const MOST_POINTS: usize = 240;
/// Points for each decade of a distribution.
const POINTS_A_DECADE: usize = 40;

/// Draws a column of the meter over time. Repetitions are combined second by second.
pub(super) fn over_time(source: &Source<'_>) -> anyhow::Result<Vec<Drawn>> {
    let column = source.figure.y.as_deref().unwrap_or_default();
    anyhow::ensure!(samples::is_column(column), "there is no column {column:?} to draw over time");
    let x = axis(source, "time, s", Scale::Linear, true);
    let y_scale = if source.figure.log { Scale::Log } else { Scale::Linear };
    let title = source.y_title(samples::column_title(column));
    let y = Axis { title, exact: false, ..axis(source, "", y_scale, true) };
    each_case(source, (&x, &y), |trials| {
        let mut seconds: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        for kept in trials {
            let Some(samples) = samples::samples(&kept.folder)? else { continue };
            for (at, value) in samples::column(&samples, column) {
                seconds.entry(at.clamp(0.0, 1e9).round() as i64).or_default().push(value);
            }
        }
        let points = seconds.into_iter().filter_map(|(second, values)| {
            let summary = Summary::of(values)?;
            Some(point(second as f64, summary))
        });
        Ok(thinned(&points.collect::<Vec<_>>()))
    })
}

/// Draws a distribution over 1/(1-q). All repetitions count as one.
pub(super) fn percentiles(source: &Source<'_>) -> anyhow::Result<Vec<Drawn>> {
    let name = source.figure.histogram.as_deref().unwrap_or_default();
    let x = axis(source, "percentile", Scale::Percentile, false);
    let title = source.y_title(&format!("{}, ms", name.replace('_', " ")));
    let y = Axis { title, ..axis(source, "", Scale::Log, false) };
    each_case(source, (&x, &y), |trials| {
        let mut all: Option<Distribution> = None;
        for kept in trials {
            let Some(one) = samples::histogram(&kept.folder, name)? else { continue };
            match &mut all {
                Some(all) => all.add(&one)?,
                None => all = Some(one),
            }
        }
        Ok(all.map(|all| by_percentile(&all)).unwrap_or_default())
    })
}

/// The points of a distribution, from all values to a single one.
fn by_percentile(all: &Distribution) -> Vec<Point> {
    let last = (all.count().max(2) as f64).log10();
    let steps = (last * POINTS_A_DECADE as f64).ceil().max(1.0) as usize;
    let place = |step: usize| {
        let left = 10_f64.powf(last * step as f64 / steps as f64);
        let y = all.at(1.0 - 1.0 / left);
        Point { x: left, y, low: y, high: y, doubt: None }
    };
    (0..=steps).map(place).collect()
}

fn point(x: f64, summary: Summary) -> Point {
    Point { x, y: summary.median, low: summary.min, high: summary.max, doubt: None }
}

/// Combines neighbours if there are too many points.
fn thinned(points: &[Point]) -> Vec<Point> {
    let together = points.len().div_ceil(MOST_POINTS).max(1);
    let one = |points: &[Point]| {
        let middle = points[points.len() / 2];
        let mean = points.iter().map(|point| point.y / points.len() as f64).sum();
        let low = points.iter().map(|point| point.low).fold(f64::INFINITY, f64::min);
        let high = points.iter().map(|point| point.high).fold(f64::NEG_INFINITY, f64::max);
        Point { x: middle.x, y: mean, low, high, doubt: None }
    };
    points.chunks(together).map(one).collect()
}

fn axis(source: &Source<'_>, title: &str, scale: Scale, from_zero: bool) -> Axis {
    let given = &source.figure.x_title;
    let title = if given.is_empty() { title } else { given };
    Axis { title: title.to_owned(), scale, range: None, from_zero, exact: true }
}

/// Draws a plot for each case, with a line for each peer.
fn each_case(
    source: &Source<'_>,
    (x, y): (&Axis, &Axis),
    points: impl Fn(&[&Kept]) -> anyhow::Result<Vec<Point>>,
) -> anyhow::Result<Vec<Drawn>> {
    let by = dimension::telling(source.load, &source.trials, &[]);
    let mut drawn = Vec::new();
    for (title, trials) in dimension::grouped(source.load, &source.trials, &by) {
        let mut lines = Vec::new();
        let mut notes = Vec::new();
        for (peer, trials) in source.by_peer(&trials) {
            let measured: Vec<&Kept> =
                trials.into_iter().filter(|kept| kept.trial.failed.is_none()).collect();
            let points = points(&measured)?;
            if points.is_empty() {
                continue;
            }
            let saturated = measured.iter().any(|kept| kept.trial.saturated);
            let doubt = saturated.then_some(Doubt::Saturated);
            let dagger = doubt.map(|doubt| format!(" {}", doubt.mark())).unwrap_or_default();
            notes.extend(Doubt::notes(doubt.into_iter()));
            if measured.len() > 1 && x.scale == Scale::Linear {
                notes.push(
                    "Lines are medians over repetitions; bands reach from the least to the most."
                        .to_owned(),
                );
            }
            let label = format!("{}{dagger}", source.peer_title(peer));
            lines.push(Line { label, style: source.style(peer), points });
        }
        if lines.is_empty() {
            continue;
        }
        let description = describe(&lines, x, y);
        let (x, y) = (x.clone(), y.clone());
        let plot = Plot::Lines(Lines { x, y, lines, threshold: None, marks: vec![], sparse: true });
        drawn.push(Drawn { title, description, plot, notes });
    }
    Ok(drawn)
}

fn describe(lines: &[Line], x: &Axis, y: &Axis) -> String {
    let line = |line: &Line| {
        let Summary { median, max, .. } = Summary::of(line.points.iter().map(|point| point.y))?;
        let (median, max) = (number::sensible(median), number::sensible(max));
        Some(format!("{}: median of the line {median}, most {max}", line.label))
    };
    let lines: Vec<String> = lines.iter().filter_map(line).collect();
    format!("Lines of {} over {}. {}.", y.title, x.title, lines.join("; "))
}
