use schemars::JsonSchema;
use serde::Serialize;

use super::injection::Injection;
use super::player::Player;

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Unit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Megabits per second.
    #[serde(rename = "Mbit/s")]
    MegabitsPerSecond,
    /// A number of things.
    #[serde(rename = "count")]
    Count,
}

/// A figure of a viewer's report, compared with what was done to the viewer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Check {
    /// The player.
    pub player: Player,
    /// What was done to it.
    pub injection: Injection,
    /// The figure, as in the viewer's record.
    pub figure: String,
    /// The unit of all values of this check.
    pub unit: Unit,
    /// The true value, which follows from what the server did.
    pub injected: f64,
    /// What the instrument reports; absent if it reports nothing.
    pub reported: Option<f64>,
    /// The reported value minus the true one.
    pub error: Option<f64>,
    /// How large the error may be, in either direction.
    pub bound: f64,
    /// Whether a value was reported with an error within the bound.
    pub passed: bool,
    /// How late the machine was meanwhile.
    pub lags: Lags,
}

/// How late event loops woke at most, in seconds. The machine, not the instrument, is at fault for an error that is
/// no larger.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Lags {
    /// That of the viewer.
    pub viewer: f64,
    /// That of the bundled server.
    pub server: f64,
}

/// Room for the rounding of sums of seconds.
const EPSILON: f64 = 1e-9;

impl Check {
    /// Compares a figure with the true value and the bound of its error.
    pub(super) fn new(
        (player, injection): (Player, Injection),
        (figure, unit): (&str, Unit),
        (injected, bound): (f64, f64),
        reported: Option<f64>,
        lags: Lags,
    ) -> Self {
        let error = reported.map(|reported| reported - injected);
        let passed = error.is_some_and(|error| error.abs() <= bound + EPSILON);
        let figure = figure.to_owned();
        Self { player, injection, figure, unit, injected, reported, error, bound, passed, lags }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(injected: f64, bound: f64, reported: Option<f64>) -> Check {
        let of = (Player::Rtmp, Injection::Delay);
        let lags = Lags { viewer: 0.0, server: 0.0 };
        Check::new(of, ("startup", Unit::Seconds), (injected, bound), reported, lags)
    }

    #[test]
    fn an_error_within_the_bound_passes_in_both_directions() {
        for (reported, passed) in
            [(1.0, true), (1.05, true), (0.95, true), (1.06, false), (0.94, false)]
        {
            let check = check(1.0, 0.05, Some(reported));
            assert_eq!(check.passed, passed, "{check:?}");
            assert!((check.error.unwrap() - (reported - 1.0)).abs() < 1e-12, "{check:?}");
        }
    }

    #[test]
    fn a_wrong_truth_is_found_and_so_is_a_figure_that_is_missing() {
        assert!(!check(2.0, 0.05, Some(1.0)).passed);
        assert!(!check(2.0, 0.0, Some(1.0)).passed);
        assert!(check(2.0, 0.0, Some(2.0)).passed);
        assert!(!check(1.0, 0.05, None).passed);
        assert!(!check(1.0, 0.05, Some(f64::NAN)).passed);
    }
}
