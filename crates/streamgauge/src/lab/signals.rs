//! SIGINT and SIGTERM: the first one asks for an orderly end, the second one ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::signals;

/// Between two looks at whatever is waited for.
pub(super) const POLL: Duration = Duration::from_millis(20);

/// Whether this program was asked to end.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

/// Asked to end while something was waited for.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

impl Stop {
    /// Listens for signals from now on. What was started dies with this program: its groups have
    /// guards.
    ///
    /// # Errors
    /// The system gives no handlers or thread.
    pub fn on_signals() -> anyhow::Result<Self> {
        signals::stop().map(Self)
    }

    /// Whether it was.
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Waits for a time, and looks at `holds` meanwhile.
    ///
    /// # Errors
    /// [`Interrupted`], or what `holds` says.
    pub fn pause(
        &self,
        time: Duration,
        holds: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        loop {
            holds()?;
            if self.is_asked() {
                bail!(Interrupted);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL));
        }
    }
}
