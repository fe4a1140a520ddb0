//! How far a run is: how much time is left, and what it has so far. This module reads no clock.
//!
//! The time left is what the plan says, corrected by what trials of the same load took.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record;
use super::scenario::Scenario;
use crate::number;

/// The course of a run.
pub(super) struct Course<'a> {
    scenario: &'a Scenario,
    /// The trials, each with the time that the plan gives it; `None` for those that are behind.
    ahead: Vec<(&'a str, Option<Duration>)>,
    /// For each load, what its trials took, and what the plan gave them.
    took: BTreeMap<&'a str, (Duration, Duration)>,
    measured: usize,
    failed: usize,
    saturated: usize,
    /// Peer and main figure of the last trial.
    last: Option<String>,
}

impl<'a> Course<'a> {
    /// Begins with trials: the load and the planned time of each.
    pub(super) fn new(
        scenario: &'a Scenario,
        trials: impl Iterator<Item = (&'a str, Duration)>,
    ) -> Self {
        let ahead = trials.map(|(load, planned)| (load, Some(planned))).collect();
        let took = BTreeMap::new();
        Self { scenario, ahead, took, measured: 0, failed: 0, saturated: 0, last: None }
    }

    /// Takes a trial that is not run: it was kept from before, or lies beyond the end of its sweep.
    pub(super) fn skip(&mut self, number: usize) {
        if let Some((_, planned)) = self.ahead.get_mut(number) {
            *planned = None;
        }
    }

    /// Takes a trial that took so long.
    pub(super) fn ran(&mut self, number: usize, took: Duration) {
        let Some((load, planned)) = self.ahead.get_mut(number) else { return };
        let Some(planned) = planned.take() else { return };
        let (all, all_planned) = self.took.entry(*load).or_default();
        *all += took;
        *all_planned += planned;
    }

    /// Counts what a trial gave, also one that was kept from before.
    pub(super) fn has(&mut self, kept: &record::Trial) {
        match (&kept.failed, kept.saturated) {
            (Some(_), _) => self.failed += 1,
            (None, saturated) => {
                self.measured += 1;
                self.saturated += usize::from(saturated);
            }
        }
        let figure = figure(self.scenario, kept).filter(|_| kept.failed.is_none());
        self.last = figure.map(|figure| format!("{}: {figure}", kept.peer));
    }

    /// How long the trials that are ahead will take.
    pub(super) fn left(&self) -> Duration {
        let of = |(load, planned): &(&str, Option<Duration>)| {
            let planned = planned.unwrap_or_default();
            match self.took.get(load) {
                Some((took, all)) if !all.is_zero() => {
                    planned.mul_f64(took.as_secs_f64() / all.as_secs_f64())
                }
                _ => planned,
            }
        };
        self.ahead.iter().map(of).sum()
    }

    /// How much of `of` units of work is done.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a whole number"
    )]
    pub(super) fn done(&self, of: u64) -> u64 {
        let behind: Duration = self.took.values().map(|(took, _)| *took).sum();
        let all = behind + self.left();
        if all.is_zero() {
            0
        } else {
            (behind.as_secs_f64() / all.as_secs_f64() * of as f64) as u64
        }
    }

    /// Describes the course before a trial: `[3/12, 5 min to go; 2 measured, 1 failed; nginx: 5 s]`.
    pub(super) fn before(&self, number: usize) -> String {
        let mut counts = Vec::new();
        for (count, what) in
            [(self.measured, "measured"), (self.failed, "failed"), (self.saturated, "saturated")]
        {
            counts.extend((count > 0).then(|| format!("{count} {what}")));
        }
        let mut said =
            format!("{}/{}, {} to go", number + 1, self.ahead.len(), minutes(self.left()));
        for part in [counts.join(", "), self.last.clone().unwrap_or_default()] {
            if !part.is_empty() {
                said += "; ";
                said += &part;
            }
        }
        format!("[{said}]")
    }
}

/// The main figure of a trial: the first value of the first table that shows its load.
fn figure(scenario: &Scenario, kept: &record::Trial) -> Option<String> {
    let shown = scenario
        .tables
        .iter()
        .filter(|table| table.load == kept.load && table.only.admits(&kept.parameters, &kept.peer));
    let shown = shown.flat_map(|table| &table.values).next()?;
    let value = number::fixed(*kept.metrics.get(&shown.metric)?, shown.digits.min(9));
    Some(format!("{} {value}", shown.named()))
}

/// Writes a time for people.
pub(super) fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scenario whose table shows answers of the load `small`.
    fn scenario() -> Scenario {
        let text = r#"
            title = "x"
            [[load]]
            name = "small"
            peers = []
            job = "file"
            path = "x"
            with = "http"
            arguments = []
            [[table]]
            title = "Theirs"
            load = "small"
            where = { peer = "b" }
            rows = ["peer"]
            values = [{ metric = "errors" }]
            [[table]]
            title = "Answers"
            load = "small"
            rows = ["peer"]
            values = [{ metric = "responses", title = "answers" }]
        "#;
        toml::from_str(text).unwrap()
    }

    fn kept(peer: &str, failed: Option<&str>, saturated: bool) -> record::Trial {
        let document = serde_json::json!({
            "form": record::FORM, "load": "small", "parameters": {}, "scaled": {}, "peer": peer,
            "repetition": 1, "began": "", "elapsed": 0.0, "commands": [],
            "metrics": { "responses": 1234.0, "errors": 2.0 },
            "saturated": saturated, "warnings": [], "failed": failed,
        });
        serde_json::from_value(document).unwrap()
    }

    fn seconds<'a>(all: &'a [u64]) -> impl Iterator<Item = (&'a str, Duration)> {
        let name = |at: usize| -> &'a str { if at < 3 { "small" } else { "large" } };
        all.iter().enumerate().map(move |(at, time)| (name(at), Duration::from_secs(*time)))
    }

    #[test]
    fn the_time_left_is_the_plans_until_trials_of_the_load_tell_better() {
        let scenario = scenario();
        let mut course = Course::new(&scenario, seconds(&[10, 20, 30, 40, 50]));
        let left = |course: &Course<'_>| (course.left().as_secs(), course.done(1000));
        assert_eq!(left(&course), (150, 0));
        course.ran(0, Duration::from_secs(5));
        // Half of the plan's time for the small ones; nothing is known of the large ones.
        assert_eq!(left(&course), (10 + 15 + 90, 5 * 1000 / 120));
        course.ran(1, Duration::from_secs(40));
        assert_eq!(left(&course), (45 + 90, 45 * 1000 / 180));
        course.skip(3);
        assert_eq!(left(&course).0, 45 + 50);
        course.ran(4, Duration::from_secs(100));
        course.ran(2, Duration::ZERO);
        assert_eq!(left(&course), (0, 1000));
    }

    #[test]
    fn trials_without_a_time_are_no_reason_to_divide_by_nothing() {
        let scenario = scenario();
        let mut course = Course::new(&scenario, seconds(&[0, 0, 0]));
        course.ran(0, Duration::from_secs(1));
        assert_eq!((course.left(), course.done(1000)), (Duration::ZERO, 1000));
        let nothing = Course::new(&scenario, seconds(&[]));
        assert_eq!((nothing.left(), nothing.done(1000)), (Duration::ZERO, 0));
    }

    #[test]
    fn a_line_tells_what_the_run_has_so_far() {
        let scenario = scenario();
        let mut course = Course::new(&scenario, seconds(&[60, 60, 60]));
        assert_eq!(course.before(0), "[1/3, 3 min to go]");
        course.ran(0, Duration::from_secs(30));
        course.has(&kept("a", None, false));
        assert_eq!(course.before(1), "[2/3, 60 s to go; 1 measured; a: answers 1,234]");
        course.has(&kept("b", None, true));
        let said = "[2/3, 60 s to go; 2 measured, 1 saturated; b: errors 2]";
        assert_eq!(course.before(1), said);
        // Figures of a trial that failed are no figures.
        course.has(&kept("a", Some("it died"), false));
        let said = "[2/3, 60 s to go; 2 measured, 1 failed, 1 saturated]";
        assert_eq!(course.before(1), said);
    }
}
