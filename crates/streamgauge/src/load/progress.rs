//! Shows progress on a terminal at standard error; shows nothing without a terminal.

use indicatif::{HumanBytes, ProgressBar};

use super::tally::Counters;
use super::{Plan, Tick};
use crate::progress::bar;

/// A line with the progress and the rates of a run.
pub(super) struct Progress {
    bar: ProgressBar,
    by_time: bool,
    last: Tick,
}

impl Progress {
    pub(super) fn new(plan: &Plan) -> Self {
        let length = plan.length();
        let whole = length.map(|length| length.as_millis() as u64).or(plan.requests);
        let bar = bar(whole.unwrap_or_default(), "{msg}", false);
        let last = Tick { at: 0.0, counters: Counters::default() };
        Self { bar, by_time: length.is_some(), last }
    }

    pub(super) fn tick(&mut self, tick: &Tick) {
        let Tick { at, counters: now } = tick;
        let then = &self.last.counters;
        let elapsed = (at - self.last.at).max(1e-3);
        let done = now.responses + now.errors;
        self.bar.set_position(if self.by_time { (at * 1e3) as u64 } else { done });
        let answers = now.responses.saturating_sub(then.responses) as f64 / elapsed;
        let bytes = now.body_bytes.saturating_sub(then.body_bytes) as f64 / elapsed;
        self.bar.set_message(format!(
            "{at:.0} s  {answers:.0} answers/s  {}/s  {} in flight  {} errors",
            HumanBytes(bytes as u64),
            now.requests.saturating_sub(done),
            now.errors
        ));
        self.last = *tick;
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
