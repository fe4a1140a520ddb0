//! Colours, dashes and markers. Each of them alone distinguishes peers, so figures are readable for
//! people with other colour vision, and on black-and-white paper.

use super::plot::Style;

/// The palette of Okabe and Ito, without yellow, which is not visible on white.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9"];

/// Dashes of lines that are too dense for a marker at each point.
const DASHES: [&str; 7] = ["", "9 3", "2.5 2.5", "9 3 2 3", "14 4", "5 2.5", "9 3 2 3 2 3"];

/// Dashes of the study's lines.
const PUBLISHED: &str = "5 4";

/// The sign at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Reversed,
    Hexagon,
    Bar,
}

const MARKERS: [Marker; 7] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::Reversed,
    Marker::Hexagon,
    Marker::Bar,
];

impl Style {
    pub(super) fn colour(self) -> &'static str {
        COLOURS[self.peer % COLOURS.len()]
    }

    /// The stroke-dasharray; empty for a solid line. From the eighth peer on, colours repeat with
    /// other dashes and markers.
    pub(super) fn dash(self, sparse: bool) -> &'static str {
        match (self.published, sparse) {
            (true, _) => PUBLISHED,
            (false, true) => DASHES[(self.peer + self.peer / COLOURS.len()) % DASHES.len()],
            (false, false) => "",
        }
    }

    pub(super) fn marker(self) -> Marker {
        MARKERS[(self.peer + 3 * (self.peer / COLOURS.len())) % MARKERS.len()]
    }
}

impl Marker {
    /// Path data of the marker around a point.
    pub(super) fn path(self, x: f64, y: f64, size: f64) -> String {
        let corners = |corners: &[(f64, f64)]| {
            let mut data = String::new();
            for (index, (across, down)) in corners.iter().enumerate() {
                let command = if index == 0 { 'M' } else { 'L' };
                let (x, y) = (x + across * size, y + down * size);
                data += &format!("{command}{x:.2} {y:.2}");
            }
            data + "Z"
        };
        match self {
            Self::Circle => {
                let (left, size) = (x - size, size);
                format!(
                    "M{left:.2} {y:.2}a{size:.2} {size:.2} 0 1 0 {0:.2} 0a{size:.2} {size:.2} 0 1 0 -{0:.2} 0Z",
                    2.0 * size
                )
            }
            Self::Square => corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Self::Triangle => corners(&[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)]),
            Self::Diamond => corners(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Self::Reversed => corners(&[(0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)]),
            Self::Hexagon => corners(&[
                (-0.6, -1.1),
                (0.6, -1.1),
                (1.2, 0.0),
                (0.6, 1.1),
                (-0.6, 1.1),
                (-1.2, 0.0),
            ]),
            Self::Bar => corners(&[(-1.3, -0.5), (1.3, -0.5), (1.3, 0.5), (-1.3, 0.5)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_peers_look_different() {
        let looks = (0..21).map(|peer| {
            let style = Style { peer, published: false };
            (style.colour(), style.dash(true), style.marker() as u8)
        });
        let different: std::collections::HashSet<_> = looks.collect();
        assert_eq!(different.len(), 21);
    }
}
