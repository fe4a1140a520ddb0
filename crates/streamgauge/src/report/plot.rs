//! The content of a plot, independent of its drawing.

use super::axis::Axis;
use crate::runs::marks::Doubt;

/// Lines over two axes, or bars.
#[derive(Debug, Clone)]
pub(super) enum Plot {
    Lines(Lines),
    Bars(Bars),
}

/// A point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The smallest and the largest value measured here.
    pub(super) low: f64,
    pub(super) high: f64,
    /// Whether and why it is not to be trusted.
    pub(super) doubt: Option<Doubt>,
}

/// The owner of a drawn element. All elements of a peer look alike throughout a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    /// The peer's number.
    pub(super) peer: usize,
    /// Whether it comes from the study.
    pub(super) published: bool,
}

/// A line.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) label: String,
    pub(super) style: Style,
    /// In rising order of x.
    pub(super) points: Vec<Point>,
}

/// An inflexion point.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub(super) label: String,
    pub(super) style: Style,
    pub(super) x: f64,
    pub(super) y: f64,
}

/// Lines over two axes.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// The value that lines should reach, or stay below.
    pub(super) threshold: Option<f64>,
    pub(super) marks: Vec<Mark>,
    /// Whether only some points are marked. Otherwise every point is measured and is marked. Marks
    /// distinguish lines without colours.
    pub(super) sparse: bool,
}

/// A bar.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) style: Style,
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) doubt: Option<Doubt>,
    /// The value as text.
    pub(super) text: String,
}

/// Horizontal bars in groups.
#[derive(Debug, Clone)]
pub(super) struct Bars {
    pub(super) axis: Axis,
    /// Each group with its heading, which may be empty.
    pub(super) groups: Vec<(String, Vec<Bar>)>,
}

impl Lines {
    /// All values along x.
    pub(super) fn xs(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|line| &line.points).map(|point| point.x)
    }

    /// All values along y.
    pub(super) fn ys(&self) -> impl Iterator<Item = f64> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        points.flat_map(|point| [point.low, point.y, point.high]).chain(self.threshold)
    }
}
