//! SIGINT and SIGTERM, which end a run with the results so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Exit status after an interruption, as in shells: 128 + SIGINT.
pub(crate) const INTERRUPTED: i32 = 130;

/// Calls `told` for each of the two signals from now on. They no longer end the program.
///
/// # Errors
/// The system provides no handlers or thread.
pub(crate) fn on_each(mut told: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Listens before anything starts: an early signal must not end the program in the default way.
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt()).context("listening for SIGINT")?,
            signal(SignalKind::terminate()).context("listening for SIGTERM")?,
        )
    };
    let listen = move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                told();
            }
        });
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen).context("starting a thread")?;
    Ok(())
}

/// Returns a flag that the first signal sets. A second signal ends the program at once.
///
/// # Errors
/// The system provides no handlers or thread.
pub(crate) fn stop() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    on_each(counting(stop.clone(), || std::process::exit(INTERRUPTED)))?;
    Ok(stop)
}

/// Returns a function that sets `stop`, and from the second call on calls `second` first. Others
/// may set the flag, too. That must not turn the first signal into the second.
fn counting(stop: Arc<AtomicBool>, mut second: impl FnMut()) -> impl FnMut() {
    let mut heard = false;
    move || {
        if std::mem::replace(&mut heard, true) {
            second();
        }
        stop.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_first_signal_is_the_first_whoever_said_to_stop_before() {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Cell::new(0);
        let mut signal = counting(stop.clone(), || ended.set(ended.get() + 1));
        // Set by an order of the parent, or because records cannot be written.
        stop.store(true, Relaxed);
        signal();
        assert_eq!((stop.load(Relaxed), ended.get()), (true, 0));
        signal();
        assert_eq!(ended.get(), 1);
    }
}
