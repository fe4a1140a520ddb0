//! Progress on a terminal, on standard error; nothing where there is none.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::Tick;

/// A line that says how far a run is and what its viewers get.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    last: Tick,
}

impl Progress {
    /// A run that takes so long; `quiet` where nothing is to be shown.
    pub(crate) fn new(length: Duration, quiet: bool) -> Self {
        let bar = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
        };
        // The default is shown if the template should ever be wrong.
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        Self { bar, last: Tick::default() }
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
