//! Lines over two axes.

use maud::html;

use super::super::axis::{Placed, is_shown};
use super::super::label::{self, Box};
use super::super::plot::{Line, Lines, Mark, Point, Style};
use super::page::{self, Anchor, Number, Page, Text, coordinate};
use super::{Frame, TEXT};
use crate::number;

const GRID: &str = "#e4e4e4";
const AXIS: &str = "#6b6b6b";
const MUTED: &str = "#4d4d4d";
/// Distance from one line of text to the next.
const LEADING: f64 = 17.0;
/// At a larger distance from the end of its line, a label does not seem to belong to the line.
const FARTHEST: f64 = 42.0;

/// The inner part of a plot.
struct Inside {
    area: Box,
    x: Placed,
    y: Placed,
}

impl Inside {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x.at(x), self.y.at(y))
    }
}

pub(super) fn draw(lines: &Lines, frame: &Frame<'_>) -> Page {
    let mut page = Page::new(frame.width, frame.height);
    let mut top = 4.0;
    if frame.heading {
        top += LEADING;
        let heading = label::fit(frame.title, super::HEADING * 1.1, frame.width - 8.0);
        page.write(&Text::heading(&heading, 4.0, top - 4.0));
    }
    top += LEADING;
    let title = label::fit(&lines.y.title, TEXT, frame.width - 8.0);
    page.write(&Text { colour: MUTED, ..Text::new(&title, 4.0, top - 4.0) });
    top += 8.0;

    let direct = inside(lines, frame, top, direct_margin(lines, frame));
    let inside = if let Some(places) = direct_labels(lines, &direct) {
        write_direct(&mut page, lines, &direct, &places);
        direct
    } else {
        let under = legend(&mut page, lines, frame, top);
        inside(lines, frame, under, 14.0)
    };
    axes(&mut page, lines, &inside, frame);
    for line in &lines.lines {
        band(&mut page, line, &inside, lines);
    }
    if let Some(threshold) = lines.threshold {
        draw_threshold(&mut page, threshold, &inside);
    }
    for line in &lines.lines {
        draw_line(&mut page, line, &inside, lines);
        let places: Vec<_> = shown(line, lines).map(|point| inside.at(point.x, point.y)).collect();
        for pair in places.windows(2) {
            page.avoid(pair[0], pair[1]);
        }
    }
    for mark in &lines.marks {
        let (x, y) = inside.at(mark.x, mark.y);
        page.avoid((x, y), (x, inside.area.bottom));
    }
    for mark in &lines.marks {
        draw_mark(&mut page, mark, &inside);
    }
    if let Some(threshold) = lines.threshold {
        name_threshold(&mut page, threshold, &inside);
    }
    for line in &lines.lines {
        daggers(&mut page, line, &inside, lines);
    }
    page
}

/// Computes the area of the plot with its axes, below `top` and with `right` of room beside it.
fn inside(lines: &Lines, frame: &Frame<'_>, top: f64, right: f64) -> Inside {
    let bottom = frame.height - 42.0;
    let count = |length: f64, each: f64| (length / each).clamp(2.0, 10.0) as usize;
    let y = lines.y.place(lines.ys(), (bottom, top), count(bottom - top, 36.0));
    let widest = y.ticks.iter().map(|(_, label)| label::width(label, TEXT)).fold(0.0, f64::max);
    let left = widest.min(frame.width / 3.0) + 14.0;
    let last = lines.x.place(lines.xs(), (0.0, 1.0), 4).ticks.pop();
    let half = last.map_or(0.0, |(_, label)| label::width(&label, TEXT) / 2.0);
    let right = frame.width - right.max(half + 4.0);
    let x = lines.x.place(lines.xs(), (left, right), count(right - left, 60.0));
    Inside { area: Box { left, top, right, bottom }, x, y }
}

/// The points that the axes can show.
fn shown<'a>(line: &'a Line, lines: &'a Lines) -> impl Iterator<Item = &'a Point> {
    line.points
        .iter()
        .filter(|point| is_shown(point.x, lines.x.scale) && is_shown(point.y, lines.y.scale))
}

/// The room that labels at the ends of lines need.
fn direct_margin(lines: &Lines, frame: &Frame<'_>) -> f64 {
    let widest = lines.lines.iter().map(|line| label::width(&line.label, TEXT)).fold(0.0, f64::max);
    (widest + 22.0).min(frame.width * 0.4)
}

/// The heights of labels to the right of the plot, each beside the end of its line. `None` if they
/// do not fit, or would be too far from their lines.
fn direct_labels(lines: &Lines, inside: &Inside) -> Option<Vec<f64>> {
    let area = &inside.area;
    let mut wanted = Vec::new();
    for line in &lines.lines {
        let end = shown(line, lines).last()?;
        let (x, y) = inside.at(end.x, end.y);
        let near = x > area.right - 0.35 * (area.right - area.left);
        let fits = label::width(&line.label, TEXT) <= 0.4 * (area.right + 40.0);
        if !near || !fits || area.right - area.left < 160.0 {
            return None;
        }
        wanted.push(y);
    }
    let places = label::spread(&wanted, 15.0, (area.top + 4.0, area.bottom - 2.0))?;
    let far = wanted.iter().zip(&places).any(|(wanted, place)| (wanted - place).abs() > FARTHEST);
    (!far && wanted.len() <= 12).then_some(places)
}

fn write_direct(page: &mut Page, lines: &Lines, inside: &Inside, places: &[f64]) {
    let right = inside.area.right;
    for (line, place) in lines.lines.iter().zip(places) {
        let Some(end) = shown(line, lines).last() else { continue };
        let (x, y) = inside.at(end.x, end.y);
        if (y - place).abs() > 3.0 || x < right - 3.0 {
            let leader = page::line((x + 5.0, y), (right + 13.0, *place), "#b0b0b0", 0.8);
            page.back(leader);
        }
        let room = page.width - right - 16.0;
        let text = label::fit(&line.label, TEXT, room);
        page.write(&Text {
            colour: text_colour(line.style),
            ..Text::new(&text, right + 15.0, place + 4.0)
        });
    }
}

/// Orange and sky blue are too light for text.
fn text_colour(style: Style) -> &'static str {
    match style.colour() {
        "#e69f00" => "#8a5f00",
        "#56b4e9" => "#1f6f9f",
        "#cc79a7" => "#9c4a78",
        "#009e73" => "#00704f",
        "#d55e00" => "#ad4c00",
        colour => colour,
    }
}

/// Draws rows of names with samples of their lines above the plot; returns where they end.
fn legend(page: &mut Page, lines: &Lines, frame: &Frame<'_>, top: f64) -> f64 {
    const SAMPLE: f64 = 30.0;
    let (mut x, mut y) = (8.0, top + 4.0);
    for line in &lines.lines {
        let text = label::fit(&line.label, TEXT, frame.width - SAMPLE - 30.0);
        let wide = SAMPLE + 6.0 + label::width(&text, TEXT);
        if x > 8.0 && x + wide > frame.width - 8.0 {
            (x, y) = (8.0, y + LEADING);
        }
        page.shape(html! {
            line x1=(Number(x)) y1=(Number(y)) x2=(Number(x + SAMPLE)) y2=(Number(y))
                stroke=(line.style.colour()) stroke-width="1.8"
                stroke-dasharray=[dash(line.style, lines.sparse)] {}
        });
        page.shape(marker(line.style, x + SAMPLE / 2.0, y, line.style.published));
        page.write(&Text::new(&text, x + SAMPLE + 6.0, y + 4.0));
        x += wide + 16.0;
    }
    (y + LEADING).min(frame.height - 120.0)
}

fn dash(style: Style, sparse: bool) -> Option<&'static str> {
    Some(style.dash(sparse)).filter(|dash| !dash.is_empty())
}

fn marker(style: Style, x: f64, y: f64, hollow: bool) -> maud::Markup {
    let fill = if hollow { "#fff" } else { style.colour() };
    html! {
        path d=(style.marker().path(x, y, 3.6)) fill=(fill) stroke=(style.colour())
            stroke-width="1.3" {}
    }
}

fn axes(page: &mut Page, lines: &Lines, inside: &Inside, frame: &Frame<'_>) {
    let Box { left, top, right, bottom } = inside.area;
    for (value, _) in &inside.y.ticks {
        let y = inside.y.at(*value);
        page.back(page::line((left, y), (right, y), GRID, 1.0));
    }
    let whole = Box { left: 0.0, top: 0.0, right: frame.width, bottom: frame.height };
    // From the far end: if labels are too close, those of rare values are worth more.
    for (value, label) in inside.y.ticks.iter().rev().filter(|(_, label)| !label.is_empty()) {
        let text = label::fit(label, TEXT, left - 12.0);
        let text = Text::new(&text, left - 8.0, inside.y.at(*value) + 4.0).anchored(Anchor::End);
        if page.has_room(&text, &whole) {
            page.write(&text);
        }
    }
    for (value, label) in inside.x.ticks.iter().rev() {
        let x = inside.x.at(*value);
        page.back(page::line((x, bottom), (x, bottom + 4.0), AXIS, 1.0));
        let text = Text::new(label, x, bottom + 18.0).anchored(Anchor::Middle);
        // The blank keeps a distance between labels.
        let padded = format!("{label} ");
        if page.has_room(&Text { text: &padded, ..text }, &whole) {
            page.write(&text);
        }
    }
    page.back(page::line((left, bottom), (right, bottom), AXIS, 1.0));
    page.back(page::line((left, top), (left, bottom), AXIS, 1.0));
    let title = label::fit(&lines.x.title, TEXT, frame.width - 8.0);
    let half = label::width(&title, TEXT) / 2.0;
    let middle = f64::midpoint(left, right).min(frame.width - half - 4.0).max(half + 4.0);
    let text = Text::new(&title, middle, frame.height - 7.0).anchored(Anchor::Middle);
    page.write(&Text { colour: MUTED, ..text });
}

/// Draws a band from the smallest to the largest measured value.
fn band(page: &mut Page, line: &Line, inside: &Inside, lines: &Lines) {
    let points: Vec<&Point> = shown(line, lines).collect();
    if points.len() < 2 || points.iter().all(|point| point.low >= point.high) {
        return;
    }
    let corner = |x: f64, y: f64| {
        let (x, y) = inside.at(x, y);
        format!("{} {}", coordinate(x), coordinate(y))
    };
    let above = points.iter().map(|point| corner(point.x, point.high));
    let below = points.iter().rev().map(|point| corner(point.x, point.low));
    let data = above.chain(below).collect::<Vec<_>>().join("L");
    page.back(html! {
        path d=(format!("M{data}Z")) fill=(line.style.colour()) fill-opacity="0.16" {}
    });
}

fn draw_line(page: &mut Page, line: &Line, inside: &Inside, lines: &Lines) {
    let points: Vec<&Point> = shown(line, lines).collect();
    let mut corners = Vec::with_capacity(points.len());
    for point in &points {
        let (x, y) = inside.at(point.x, point.y);
        corners.push(format!("{} {}", coordinate(x), coordinate(y)));
    }
    if corners.len() > 1 {
        page.shape(html! {
            path d=(format!("M{}", corners.join("L"))) fill="none" stroke=(line.style.colour())
                stroke-width=(if lines.sparse { "1.5" } else { "1.8" })
                stroke-dasharray=[dash(line.style, lines.sparse)] stroke-linejoin="round" {
                (page::hint(&line.label))
            }
        });
    }
    let every = (inside.area.right - inside.area.left) / 5.0;
    // The markers of each line are at other places, so that they do not cover each other.
    let mut next = inside.area.left + every * (0.15 + 0.17 * (line.style.peer % 5) as f64);
    for point in points {
        let (x, y) = inside.at(point.x, point.y);
        if lines.sparse && corners.len() > 5 {
            if x < next {
                continue;
            }
            next += every * ((x - next) / every).floor().max(0.0) + every;
        }
        let hollow = line.style.published || point.doubt.is_some();
        page.shape(html! {
            g {
                (page::hint(&describe(line, point)))
                (marker(line.style, x, y, hollow))
            }
        });
    }
}

fn describe(line: &Line, point: &Point) -> String {
    let doubt = point.doubt.map(|doubt| format!(", {}", doubt.words())).unwrap_or_default();
    let value = page::value(point.y).0;
    format!("{}, {}: {value}{doubt}", line.label, number::plain(point.x))
}

/// Draws the threshold. It also applies beyond the measured values.
fn draw_threshold(page: &mut Page, threshold: f64, inside: &Inside) {
    let Box { left, right, .. } = inside.area;
    let y = inside.y.at(threshold);
    page.avoid((left, y), (right, y));
    page.shape(html! {
        line x1=(Number(left)) y1=(Number(y)) x2=(Number(right)) y2=(Number(y))
            stroke="#4d4d4d" stroke-width="1" stroke-dasharray="1.5 3" {}
    });
}

fn name_threshold(page: &mut Page, threshold: f64, inside: &Inside) {
    let y = inside.y.at(threshold);
    let area = &inside.area;
    let text = format!("threshold {}", number::plain(threshold));
    let text = label::fit(&text, TEXT, 0.6 * (area.right - area.left));
    let text = Text { colour: MUTED, halo: true, ..Text::new(&text, 0.0, 0.0) };
    let ends = [(area.right - 4.0, Anchor::End), (area.left + 6.0, Anchor::Start)];
    let middle = (f64::midpoint(area.left, area.right), Anchor::Middle);
    let places = ends
        .into_iter()
        .chain([middle])
        .flat_map(|(x, anchor)| [y - 5.0, y + 14.0, y - 20.0, y + 29.0].map(|y| (x, y, anchor)));
    page.write_where_room(&text, places, area);
}

/// Draws an inflexion point: a ring, a line down to the axis, and its value.
fn draw_mark(page: &mut Page, mark: &Mark, inside: &Inside) {
    let (x, y) = inside.at(mark.x, mark.y);
    let (area, colour) = (&inside.area, mark.style.colour());
    page.shape(html! {
        line x1=(Number(x)) y1=(Number(y)) x2=(Number(x)) y2=(Number(area.bottom))
            stroke=(colour) stroke-width="1" stroke-dasharray="2 2" {}
        circle cx=(Number(x)) cy=(Number(y)) r="5.5" fill="none" stroke=(colour)
            stroke-width="1.6" { (page::hint(&mark.label)) }
    });
    let text = Text {
        bold: true,
        colour: text_colour(mark.style),
        halo: true,
        ..Text::new(&mark.label, 0.0, 0.0)
    };
    let sides = [(x + 8.0, Anchor::Start), (x - 8.0, Anchor::End)];
    let places =
        [y - 9.0, y - 25.0, y + 18.0, y + 34.0, area.bottom - 6.0, area.bottom - 22.0, y - 41.0]
            .into_iter()
            .flat_map(|y| sides.map(|(x, anchor)| (x, y, anchor)));
    page.write_where_room(&text, places, area);
}

/// Draws its mark at each point that is doubtful.
fn daggers(page: &mut Page, line: &Line, inside: &Inside, lines: &Lines) {
    let area = Box { right: inside.area.right + 14.0, top: 0.0, ..inside.area };
    for point in shown(line, lines) {
        let Some(doubt) = point.doubt else { continue };
        let (x, y) = inside.at(point.x, point.y);
        let text = Text { halo: true, bold: true, ..Text::new(doubt.mark(), x, y) };
        let places =
            [(x + 5.0, y - 4.0), (x - 12.0, y - 4.0), (x + 5.0, y + 13.0), (x - 12.0, y + 13.0)]
                .map(|(x, y)| (x, y, Anchor::Start));
        page.write_where_room(&text, places, &area);
    }
}
