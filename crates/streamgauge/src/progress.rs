//! Shows progress on a terminal at standard error; shows nothing without a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::Tick;

/// Makes a bar on a terminal. The bar is hidden without a terminal, or if `quiet`. `message` is the
/// template of its last part.
pub(crate) fn bar(length: u64, message: &str, quiet: bool) -> ProgressBar {
    let bar = if quiet || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(length)
    };
    // If the template should be wrong, the bar has the default style.
    let template = format!("{{bar:24}} {{percent:>3}} %  {message}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

/// Progress in steps: how much is done, and the current step.
#[derive(Debug)]
pub(crate) struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// Makes the progress of `all` units of work.
    pub(crate) fn new(all: u64) -> Self {
        Self { bar: bar(all, "{elapsed}  {wide_msg}", false) }
    }

    /// Whether there is a terminal.
    pub(crate) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Sets how much work there is, once it is known. The display goes on during long steps.
    pub(crate) fn begin(&self, all: u64) {
        self.bar.set_length(all);
        if self.is_shown() {
            self.bar.enable_steady_tick(Duration::from_secs(1));
        }
    }

    /// Shows how much is done and the next step, on a terminal only.
    pub(crate) fn show(&self, done: u64, next: &str) {
        self.bar.set_position(done);
        self.bar.set_message(next.to_owned());
        self.bar.tick();
    }

    /// Does the same; without a terminal it prints a line.
    pub(crate) fn next(&self, done: u64, next: &str) {
        if self.is_shown() { self.show(done, next) } else { self.tell(next) }
    }

    /// Prints a line that stays.
    #[expect(clippy::print_stderr, reason = "the program's own progress")]
    pub(crate) fn tell(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A line with the progress of a run and the figures of its viewers.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    last: Tick,
}

impl Progress {
    /// Makes the progress of a run of this length. Shows nothing if `quiet`.
    pub(crate) fn new(length: Duration, quiet: bool) -> Self {
        let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self { bar: bar(length, "{msg}", quiet), last: Tick::default() }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "for people, and clamped by the bar"
    )]
    pub(crate) fn tick(&mut self, tick: &Tick) {
        let elapsed = (tick.at - self.last.at).max(1e-3);
        let mbit = tick.media_bytes.saturating_sub(self.last.media_bytes) as f64 * 8e-6 / elapsed;
        self.bar.set_position((tick.at * 1000.0) as u64);
        let mut message = format!(
            "{:.0} s  {} watching, {} playing  {mbit:.1} Mbit/s  {:.0} s of media  {} stalls",
            tick.at,
            tick.joined.saturating_sub(tick.left),
            tick.playing,
            tick.received,
            tick.stalls
        );
        if tick.delivery > 0.0 {
            message += &format!("  {:.0} ms behind capture", tick.delivery * 1000.0);
        }
        if tick.failed > 0 || tick.troubles > 0 {
            message += &format!("  {} failed, {} troubles", tick.failed, tick.troubles);
        }
        self.bar.set_message(message);
        self.last = *tick;
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
