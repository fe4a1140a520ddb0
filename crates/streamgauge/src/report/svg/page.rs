//! The drawing so far, and the places of its texts.

use maud::{Markup, PreEscaped, Render, html};

use super::super::label::{self, Box};
use super::{HEADING, TEXT};
use crate::number;

/// Which point of a text is at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A text and its style. The place is that of the baseline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) anchor: Anchor,
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) colour: &'a str,
    /// Whether it lies over lines, which must not touch its letters.
    pub(super) halo: bool,
}

impl<'a> Text<'a> {
    pub(super) fn new(text: &'a str, x: f64, y: f64) -> Self {
        let (size, bold, colour, halo) = (TEXT, false, "#1a1a1a", false);
        Self { text, x, y, anchor: Anchor::Start, size, bold, colour, halo }
    }

    pub(super) fn heading(text: &'a str, x: f64, y: f64) -> Self {
        Self { size: HEADING, bold: true, ..Self::new(text, x, y) }
    }

    pub(super) fn anchored(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    /// The area that the text needs.
    pub(super) fn area(&self) -> Box {
        let bolder = if self.bold { 1.1 } else { 1.0 };
        let width = label::width(self.text, self.size) * bolder;
        let left = match self.anchor {
            Anchor::Start => self.x,
            Anchor::Middle => self.x - width / 2.0,
            Anchor::End => self.x - width,
        };
        let (top, bottom) = (self.y - 0.85 * self.size, self.y + 0.25 * self.size);
        Box { left, top, right: left + width, bottom }
    }
}

/// A drawing in progress.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Elements behind everything else: grid and bands.
    back: Vec<Markup>,
    /// Lines and bars.
    shapes: Vec<Markup>,
    texts: Vec<Markup>,
    taken: Vec<Box>,
    /// Places of lines. Text lies there only if there is no other place.
    lines: Vec<Box>,
}

impl Page {
    pub(super) fn new(width: f64, height: f64) -> Self {
        let (back, shapes, texts) = (vec![], vec![], vec![]);
        Self { width, height, back, shapes, texts, taken: vec![], lines: vec![] }
    }

    pub(super) fn back(&mut self, shape: Markup) {
        self.back.push(shape);
    }

    pub(super) fn shape(&mut self, shape: Markup) {
        self.shapes.push(shape);
    }

    /// Writes a text at its place.
    pub(super) fn write(&mut self, text: &Text<'_>) {
        self.taken.push(text.area());
        let anchor = match text.anchor {
            Anchor::Start => None,
            Anchor::Middle => Some("middle"),
            Anchor::End => Some("end"),
        };
        self.texts.push(html! {
            text x=(Number(text.x)) y=(Number(text.y)) text-anchor=[anchor]
                font-size=[(text.size != TEXT).then_some(text.size)]
                font-weight=[text.bold.then_some("bold")]
                fill=[(text.colour != "#1a1a1a").then_some(text.colour)]
                stroke=[text.halo.then_some("#fff")] stroke-width=[text.halo.then_some("3")]
                stroke-linejoin=[text.halo.then_some("round")]
                paint-order=[text.halo.then_some("stroke")] {
                (clean(text.text))
            }
        });
    }

    /// Keeps text off a line between two points, if possible.
    pub(super) fn avoid(&mut self, from: (f64, f64), to: (f64, f64)) {
        const STEP: f64 = 6.0;
        let steps = ((to.0 - from.0).hypot(to.1 - from.1) / STEP).ceil().clamp(1.0, 400.0);
        for step in 0..=steps as usize {
            let along = step as f64 / steps;
            let (x, y) = (from.0 + (to.0 - from.0) * along, from.1 + (to.1 - from.1) * along);
            self.lines.push(Box { left: x - 2.0, top: y - 2.0, right: x + 2.0, bottom: y + 2.0 });
        }
    }

    /// Writes a text at the first place that has room within `area`, preferably off all lines;
    /// returns whether there was a place.
    pub(super) fn write_where_room(
        &mut self,
        text: &Text<'_>,
        places: impl IntoIterator<Item = (f64, f64, Anchor)>,
        area: &Box,
    ) -> bool {
        let mut best: Option<(usize, Text<'_>)> = None;
        for (x, y, anchor) in places {
            let text = Text { x, y, anchor, ..*text };
            if !self.has_room(&text, area) {
                continue;
            }
            let wanted = text.area();
            let crossed = self.lines.iter().filter(|line| line.overlaps(&wanted)).count();
            if best.is_none_or(|(least, _)| crossed < least) {
                best = Some((crossed, text));
            }
            if crossed == 0 {
                break;
            }
        }
        if let Some((_, text)) = best {
            self.write(&text);
        }
        best.is_some()
    }

    pub(super) fn has_room(&self, text: &Text<'_>, area: &Box) -> bool {
        let wanted = text.area();
        area.holds(&wanted) && !self.taken.iter().any(|taken| taken.overlaps(&wanted))
    }

    pub(super) fn into_markup(self) -> Markup {
        html! { @for part in [self.back, self.shapes, self.texts] { @for shape in part { (shape) } } }
    }
}

/// A coordinate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number(pub(super) f64);

impl Render for Number {
    fn render_to(&self, buffer: &mut String) {
        buffer.push_str(&coordinate(self.0));
    }
}

/// Writes a coordinate with the visible digits.
pub(super) fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), ToOwned::to_owned)
}

/// A straight line.
pub(super) fn line(from: (f64, f64), to: (f64, f64), colour: &str, width: f64) -> Markup {
    html! {
        line x1=(Number(from.0)) y1=(Number(from.1)) x2=(Number(to.0)) y2=(Number(to.1))
            stroke=(colour) stroke-width=(width) {}
    }
}

/// Removes characters that XML cannot contain.
pub(super) fn clean(text: &str) -> String {
    let carried =
        |letter: &char| !letter.is_control() && !matches!(letter, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|letter| if letter == '\n' { ' ' } else { letter }).filter(carried).collect()
}

/// A hint that appears under the mouse pointer.
pub(super) fn hint(text: &str) -> Markup {
    html! { title { (clean(text)) } }
}

/// Writes a value for a hint.
pub(super) fn value(value: f64) -> PreEscaped<String> {
    PreEscaped(number::sensible(value))
}
