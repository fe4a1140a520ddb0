//! A metric against a parameter: a line for each peer, the study's lines, and inflexion points.

use crate::lab::record::{Parameters, Value};

use super::super::axis::{Axis, Scale};
use super::super::inflexion::{Inflexion, inflexion};
use super::super::plot::{Line, Lines, Mark, Plot, Point, Style};
use super::super::table;
use super::{Drawn, Source, metric_title};
use crate::number;
use crate::runs::Kept;
use crate::runs::dimension;
use crate::runs::marks::Doubt;
use crate::runs::metric::{self, Tells};
use crate::runs::statistics::Summary;

/// If values differ by a larger factor, a logarithmic axis shows them better.
const WIDE: f64 = 60.0;

pub(super) fn draw(source: &Source<'_>) -> Vec<Drawn> {
    let x = source.figure.x.as_deref().unwrap_or_default();
    let by = dimension::telling(source.load, &source.trials, &[x]);
    let mut groups = dimension::grouped(source.load, &source.trials, &by);
    if groups.is_empty() && source.figure.published.is_some() {
        groups.push((String::new(), vec![]));
    }
    groups.into_iter().filter_map(|(title, trials)| plot(source, x, title, &trials)).collect()
}

fn plot(source: &Source<'_>, x: &str, title: String, trials: &[&Kept]) -> Option<Drawn> {
    let y = source.figure.y.as_deref().unwrap_or_default();
    let peers = source.by_peer(trials);
    let mut lines: Vec<Line> = Vec::new();
    // Where each line's server failed.
    let mut failures: Vec<Option<f64>> = Vec::new();
    for (peer, trials) in &peers {
        let label = source.peer_title(*peer).to_owned();
        let places = places(trials, x);
        let points = measured(&places, y);
        if !points.is_empty() {
            lines.push(Line { label, style: source.style(*peer), points });
            failures.push(failure(&places));
        }
    }
    let measured = lines.len();
    let context = trials.first().map(|kept| &kept.trial.parameters);
    lines.extend(published(source, x, y, context));
    if lines.is_empty() {
        return None;
    }
    let threshold = source.figure.threshold;
    let mut notes = Vec::new();
    let mut marks = Vec::new();
    if let Some(threshold) = threshold {
        // Two points of a study, far apart, do not tell where between them something happens.
        let known = |line: &&Line| !line.style.published || line.points.len() > 2;
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| known(line)) {
            let failed = failures.get(at).copied().flatten();
            let (mark, note) = crossing(line, failed, threshold, (x, y));
            marks.extend(mark);
            notes.extend(note);
        }
    }
    if source.figure.expected {
        let (curves, told) = expected(&lines[..measured], threshold, x);
        lines.extend(curves);
        notes.extend(told);
    }
    let points = lines.iter().flat_map(|line| &line.points);
    notes.extend(Doubt::notes(points.filter_map(|point| point.doubt)));
    if lines.iter().flat_map(|line| &line.points).any(|point| point.low < point.high) {
        notes.push("Points are medians; bands reach from the least to the most.".to_owned());
    }
    let description = describe(&lines, &notes);
    let x_title = match source.figure.x_title.as_str() {
        "" => dimension::title(x),
        title => title.to_owned(),
    };
    let xs = lines.iter().flat_map(|line| &line.points).map(|point| point.x);
    let mut plot = Lines {
        x: Axis {
            title: x_title,
            scale: scale(xs, false),
            range: None,
            from_zero: false,
            exact: true,
        },
        y: Axis {
            title: source.y_title(&metric_title(y)),
            scale: Scale::Linear,
            range: None,
            from_zero: true,
            exact: false,
        },
        lines,
        threshold,
        marks,
        sparse: false,
    };
    plot.y.scale = scale(plot.ys(), source.figure.log);
    Some(Drawn { title, description, plot: Plot::Lines(plot), notes })
}

/// The trials at each value of x, in rising order of x.
fn places<'a>(trials: &[&'a Kept], x: &str) -> Vec<(f64, Vec<&'a Kept>)> {
    let mut places: Vec<(f64, Vec<&Kept>)> = Vec::new();
    for &kept in trials {
        let Some(Value::Number(at)) = kept.trial.parameters.get(x) else { continue };
        match places.iter_mut().find(|(other, _)| other == at) {
            Some((_, here)) => here.push(kept),
            None => places.push((*at, vec![kept])),
        }
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    places
}

/// The medians over repetitions.
fn measured(places: &[(f64, Vec<&Kept>)], y: &str) -> Vec<Point> {
    let point = |(x, here): &(f64, Vec<&Kept>)| {
        let summary = Summary::of(here.iter().filter_map(|kept| kept.metric(y)))?;
        let doubt = Doubt::of(here, y);
        Some(Point { x: *x, y: summary.median, low: summary.min, high: summary.max, doubt })
    };
    places.iter().filter_map(point).collect()
}

/// The first value of x at which every trial failed.
fn failure(places: &[(f64, Vec<&Kept>)]) -> Option<f64> {
    let fails =
        |(_, here): &&(f64, Vec<&Kept>)| here.iter().all(|kept| kept.trial.failed.is_some());
    places.iter().find(fails).map(|(x, _)| *x)
}

/// The curves that are expected of servers that have reached their limit at the first point: from
/// there on, clients share what all clients got at that point. (Study C's Figure 10.) Returns also
/// what to say of them.
fn expected(lines: &[Line], threshold: Option<f64>, x: &str) -> (Vec<Line>, Vec<String>) {
    let (mut curves, mut notes) = (Vec::new(), Vec::new());
    for line in lines {
        let Some(all) = line.points.first().map(|first| first.x * first.y) else { continue };
        let shared = |point: &Point| {
            let y = all / point.x;
            Point { x: point.x, y, low: y, high: y, doubt: None }
        };
        let points = line.points.iter().map(shared).filter(|point| point.y.is_finite());
        let label = format!("{}, expected", line.label);
        let style = Style { published: true, ..line.style };
        curves.push(Line { label, style, points: points.collect() });
        if let Some(threshold) = threshold.filter(|threshold| *threshold > 0.0) {
            let at = number::fixed(all / threshold, 0);
            let what = x.replace('_', " ");
            notes.push(format!("Expected inflexion point of {}: {at} {what}.", line.label));
        }
    }
    if !curves.is_empty() {
        notes.push(
            "Expected: what each client gets if more clients share what the clients of the first \
             point got together."
                .to_owned(),
        );
    }
    curves.retain(|curve| curve.points.len() > 1);
    (curves, notes)
}

/// The lines of the study's peers, with the figures that belong to the cases of this plot.
fn published(source: &Source<'_>, x: &str, y: &str, context: Option<&Parameters>) -> Vec<Line> {
    let Some(published) = &source.figure.published else { return vec![] };
    let column = |name: &str| published.columns.iter().position(|column| column == name);
    let (Some(x), Some(y)) = (column(x), column(y)) else { return vec![] };
    let peer = column("peer");
    let belongs = |row: &Vec<String>| {
        published.columns.iter().zip(row).enumerate().all(|(at, (name, field))| {
            let known = context.and_then(|context| context.get(name));
            at == x || at == y || known.is_none_or(|value| *value == table::parameter(field))
        })
    };
    let mut lines: Vec<Line> = Vec::new();
    for row in published.rows.iter().filter(|row| belongs(row)) {
        let (Ok(at), Ok(value)) = (row[x].parse::<f64>(), row[y].parse::<f64>()) else { continue };
        let name = peer.map_or("", |peer| row[peer].as_str());
        let label = of_study(name);
        let point = Point { x: at, y: value, low: value, high: value, doubt: None };
        match lines.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.push(point),
            None => {
                let style = source.style_of_study(name, lines.len());
                lines.push(Line { label, style, points: vec![point] });
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    lines
}

/// Label of a peer of the study.
pub(super) fn of_study(name: &str) -> String {
    match name {
        "" => "study".to_owned(),
        name if name.contains("(study)") => name.to_owned(),
        name => format!("{name} (study)"),
    }
}

/// Whether a metric must not fall below a threshold. Other metrics must not rise above it: for them,
/// less is better.
fn more_is_better(metric: &str) -> bool {
    !matches!(metric::tells(metric), Some(Tells::Less | Tells::Used))
}

/// Finds the inflexion point of a line of `y` against `x`, and describes it. From `failed` on the server did not hold.
fn crossing(
    line: &Line,
    failed: Option<f64>,
    threshold: f64,
    (x, y): (&str, &str),
) -> (Option<Mark>, Option<String>) {
    let before = |point: &&Point| failed.is_none_or(|failed| point.x < failed);
    let points: Vec<(f64, f64)> =
        line.points.iter().filter(before).map(|point| (point.x, point.y)).collect();
    let (label, what) = (&line.label, x.replace('_', " "));
    let place = |x: f64| number::fixed(x, usize::from(x < 10.0) * 2);
    // The first point that did not hold may be that of a generator which could do no more.
    let blamed = |at: f64| {
        let failed = line.points.iter().find(|point| point.x >= at);
        let is_saturated = failed.is_some_and(|point| point.doubt == Some(Doubt::Saturated));
        if is_saturated {
            " The generator was saturated there: the server may hold more."
        } else {
            ""
        }
    };
    match inflexion(&points, threshold, more_is_better(y)) {
        Some(Inflexion::At(at)) => {
            let mark = Mark { label: place(at), style: line.style, x: at, y: threshold };
            let note = format!("Inflexion point of {label}: {} {what}.{}", place(at), blamed(at));
            (Some(mark), Some(note))
        }
        Some(Inflexion::Beyond(at)) => {
            let held = format!("{label} held up to {} {what}", place(at));
            let note = match failed {
                Some(failed) => format!("{held}. At {} every trial failed.", place(failed)),
                None => format!("{held}, the last value."),
            };
            (None, Some(note))
        }
        Some(Inflexion::Before(at)) => {
            let note = format!("{label} did not hold at {} {what}, the first value.", place(at));
            (None, Some(note + blamed(at)))
        }
        None => {
            let note = |failed| format!("{label}: at {} {what} every trial failed.", place(failed));
            (None, failed.map(note))
        }
    }
}

/// Chooses the scale: logarithmic if values are far apart, or if it is `wanted`. Then zeros are not
/// shown.
fn scale(values: impl Iterator<Item = f64>, wanted: bool) -> Scale {
    let Some(Summary { min, max, .. }) = Summary::of(values) else { return Scale::Linear };
    let wide = min > 0.0 && max / min > WIDE;
    if wide || (wanted && max > 0.0) { Scale::Log } else { Scale::Linear }
}

fn describe(lines: &[Line], notes: &[String]) -> String {
    let ends = |line: &Line| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        let (a, b) = (number::plain(first.x), number::plain(last.x));
        let (from, to) = (number::sensible(first.y), number::sensible(last.y));
        Some(format!("{}: {from} at {a}, {to} at {b}", line.label))
    };
    let lines: Vec<String> = lines.iter().filter_map(ends).collect();
    format!("{}. {}", lines.join("; "), notes.join(" "))
}
