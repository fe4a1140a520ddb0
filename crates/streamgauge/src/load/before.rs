//! The time limit of everything that happens before a run.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Why waiting has ended without a result.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    /// The time is over.
    #[error("no answer in time")]
    Late,
    /// The run was told to stop before it started.
    #[error("interrupted")]
    Stopped,
    /// The system provides no thread.
    #[error("starting a thread: {0}")]
    Thread(#[from] io::Error),
}

/// One deadline for all preparations, and a flag that ends them earlier.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before<'a> {
    end: Instant,
    stop: &'a AtomicBool,
}

impl<'a> Before<'a> {
    /// Sets the deadline to `length` from now. `stop` ends the preparations earlier.
    pub(super) fn new(length: Duration, stop: &'a AtomicBool) -> Self {
        Self { end: Instant::now() + length, stop }
    }

    /// The time that is left.
    ///
    /// # Errors
    /// [`Ended`]: no time is left.
    fn left(&self) -> Result<Duration, Ended> {
        if self.stop.load(Relaxed) {
            return Err(Ended::Stopped);
        }
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Ended::Late) } else { Ok(left) }
    }

    /// Waits for work that blocks without a time-out, such as the lookup of a name. The work gets
    /// the time that is left. If it takes longer, its thread is left behind.
    ///
    /// # Errors
    /// [`Ended`]: there is no result.
    pub(super) fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Duration) -> T + Send + 'static,
    ) -> Result<T, Ended> {
        let left = self.left()?;
        let (done, finished) = sync_channel(1);
        thread::Builder::new().name("before".to_owned()).spawn(move || {
            // The receiver may have stopped waiting.
            let _ = done.send(work(left));
        })?;
        loop {
            match finished.recv_timeout(self.left()?.min(LOOK)) {
                Ok(found) => return Ok(found),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("it ended without a result").into());
                }
            }
        }
    }

    /// Waits for a future, within a runtime.
    ///
    /// # Errors
    /// [`Ended`]: there is no result.
    pub(super) async fn future<T>(&self, work: impl Future<Output = T>) -> Result<T, Ended> {
        let mut work = std::pin::pin!(work);
        loop {
            if let Ok(found) = tokio::time::timeout(self.left()?.min(LOOK), &mut work).await {
                return Ok(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_deadline_is_all_there_is() {
        let stop = AtomicBool::new(false);
        assert_eq!(Before::new(Duration::from_secs(3600), &stop).blocking(|_| 7).unwrap(), 7);
        let before = Before::new(Duration::from_millis(120), &stop);
        let (keep, hang) = sync_channel::<()>(0);
        let late = before.blocking(move |_| hang.recv().is_ok());
        assert!(matches!(late, Err(Ended::Late)), "{late:?}");
        // Work after the deadline has no time of its own.
        assert!(matches!(before.blocking(|_| 7), Err(Ended::Late)));
        drop(keep);
    }

    #[test]
    fn a_stopped_run_does_not_begin_to_wait() {
        let stop = AtomicBool::new(true);
        let before = Before::new(Duration::from_secs(3600), &stop);
        assert!(matches!(before.blocking(|_| 7), Err(Ended::Stopped)));
    }

    #[test]
    fn a_run_stopped_while_it_waits_waits_no_longer() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let before = Before::new(Duration::from_secs(3600), &STOP);
        let (keep, hang) = sync_channel::<()>(0);
        let stopped = before.blocking(move |_| {
            STOP.store(true, Relaxed);
            hang.recv().is_ok()
        });
        assert!(matches!(stopped, Err(Ended::Stopped)), "{stopped:?}");
        drop(keep);
    }
}
