//! SIGINT and SIGTERM. The first signal asks for an orderly end, the second one ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::signals;

/// Pause between two checks of a condition.
pub(super) const POLL: Duration = Duration::from_millis(20);

/// Tells whether this program was asked to end.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

/// The program was asked to end while it waited.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

impl Stop {
    /// Starts to listen for signals. Child processes die with this program: their groups have
    /// guards.
    ///
    /// # Errors
    /// The system provides no handlers or thread.
    pub fn on_signals() -> anyhow::Result<Self> {
        signals::stop().map(Self)
    }

    /// Whether the program was asked to end.
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Waits for a time, and checks `holds` in the meantime.
    ///
    /// # Errors
    /// [`Interrupted`], or the error of `holds`.
    pub fn pause(
        &self,
        time: Duration,
        holds: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.wait(time, &mut || holds().map(|()| None::<()>)).map(drop)
    }

    /// Waits until `look` finds something, at most for `limit`. `None` if it has found nothing by
    /// then.
    ///
    /// # Errors
    /// [`Interrupted`], or the error of `look`.
    pub fn wait<T>(
        &self,
        limit: Duration,
        look: &mut dyn FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        let end = Instant::now() + limit;
        loop {
            // Computed before `look`, so that the last call is not before the end.
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
