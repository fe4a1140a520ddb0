//! Plots as SVG: one self-contained element, with title and description for screen readers.
//!
//! No font is measured. Widths of text are estimated generously ([`label`](super::label)), and
//! every text asks the page whether there is room.

mod bars;
mod lines;
mod page;

use maud::{Markup, html};

use super::plot::Plot;
use page::Page;

/// How to draw a plot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    /// An id that no other plot of the page has: letters, digits and hyphens.
    pub(super) id: &'a str,
    /// Title.
    pub(super) title: &'a str,
    /// Whether the title is also written above the plot.
    pub(super) heading: bool,
    /// Description for readers who cannot see the plot.
    pub(super) description: &'a str,
    /// Width in pixels of CSS.
    pub(super) width: f64,
    /// Height of plots with lines. The number of bars decides the height of plots with bars.
    pub(super) height: f64,
}

/// Sizes of text.
const TEXT: f64 = 12.0;
const HEADING: f64 = 13.0;

/// Draws an `svg` element.
pub(super) fn draw(plot: &Plot, frame: &Frame<'_>) -> Markup {
    let page = match plot {
        Plot::Lines(lines) => lines::draw(lines, frame),
        Plot::Bars(bars) => bars::draw(bars, frame),
    };
    let Page { width, height, .. } = page;
    let (title, description) = (format!("{}-title", frame.id), format!("{}-desc", frame.id));
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width:.0} {height:.0}"))
            width=(format!("{width:.0}")) height=(format!("{height:.0}")) role="img"
            aria-labelledby=(format!("{title} {description}"))
            font-family="Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
            font-size=(TEXT) fill="#1a1a1a" {
            title id=(title) { (page::clean(frame.title)) }
            desc id=(description) { (page::clean(frame.description)) }
            rect width=(format!("{width:.0}")) height=(format!("{height:.0}")) fill="#fff" {}
            (page.into_markup())
        }
    }
}
