//! Where a line crosses a threshold.

/// Where a quantity along x crosses its threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Inflexion {
    /// Here, between the last point that passed and the first that failed.
    At(f64),
    /// Every point passed; this is the last.
    Beyond(f64),
    /// No point passed before this, the first.
    Before(f64),
}

/// Finds the inflexion point of points (x, y) in rising order of x. It interpolates linearly
/// between the last point that passed and the first that failed. With `more`, y must not be below
/// the threshold; otherwise it must not be above.
pub(super) fn inflexion(points: &[(f64, f64)], threshold: f64, more: bool) -> Option<Inflexion> {
    let margin = |y: f64| if more { y - threshold } else { threshold - y };
    let failed = points.iter().position(|(_, y)| margin(*y) < 0.0);
    match failed {
        None => points.last().map(|(last, _)| Inflexion::Beyond(*last)),
        Some(0) => points.first().map(|(first, _)| Inflexion::Before(*first)),
        Some(at) => {
            let (held, failed) = (points[at - 1], points[at]);
            let (over, under) = (margin(held.1), -margin(failed.1));
            Some(Inflexion::At(held.0 + (failed.0 - held.0) * (over / (over + under))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inflexions_are_interpolated() {
        let falling = [(100.0, 400.0), (200.0, 200.0), (300.0, 50.0)];
        let Some(Inflexion::At(x)) = inflexion(&falling, 100.0, true) else { panic!() };
        assert!((x - 266.666).abs() < 0.01, "{x}");
        // A latency: values above the threshold fail.
        let rising = [(1.0, 10.0), (2.0, 20.0), (3.0, 40.0)];
        assert_eq!(inflexion(&rising, 30.0, false), Some(Inflexion::At(2.5)));
        // A value equal to the threshold passes.
        assert_eq!(inflexion(&rising, 30.0, true), Some(Inflexion::Before(1.0)));
        assert_eq!(inflexion(&[(1.0, 9.0), (2.0, 9.0)], 9.0, true), Some(Inflexion::Beyond(2.0)));
        assert_eq!(inflexion(&[], 1.0, true), None);
    }

    #[test]
    fn a_server_that_recovers_has_failed() {
        let points = [(1.0, 10.0), (2.0, 0.0), (3.0, 10.0)];
        assert_eq!(inflexion(&points, 5.0, true), Some(Inflexion::At(1.5)));
    }
}
