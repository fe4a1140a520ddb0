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
        self.wait(time, &mut || holds().map(|()| None::<()>)).map(drop)
    }

    /// Waits until `look` finds something, for so long at most: nothing, if it has not by then.
    ///
    /// # Errors
    /// [`Interrupted`], or what `look` says.
    pub fn wait<T>(
        &self,
        limit: Duration,
        look: &mut dyn FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        let end = Instant::now() + limit;
        loop {
            // Before the look, so that the last one is not before the end.
            let left = end.saturating_duration_since(Instant::now());
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if self.is_asked() {
                bail!(Interrupted);
            }
            if left.is_zero() {
                return Ok(None);
            }
            thread::sleep(left.min(POLL));
        }
    }
}
