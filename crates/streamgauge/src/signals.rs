//! SIGINT and SIGTERM, which end a run with what it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// How a program ends that was interrupted, as shells have it: 128 + SIGINT.
pub(crate) const INTERRUPTED: i32 = 130;

/// Has each of the two do this from now on, instead of ending the program.
///
/// # Errors
/// The system gives no handlers or thread.
pub(crate) fn on_each(mut told: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Listening before anything begins: a signal that comes early must not end the program as ever.
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

/// What the first of them sets from now on. A second one ends the program at once.
///
/// # Errors
/// The system gives no handlers or thread.
pub(crate) fn stop() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    on_each(counting(stop.clone(), || std::process::exit(INTERRUPTED)))?;
    Ok(stop)
}

/// What sets `stop` the first time it is called, and then does the other. Others set the flag too,
/// which is not to make the first signal the second.
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
        // A parent's word, or records that cannot be written.
        stop.store(true, Relaxed);
        signal();
        assert_eq!((stop.load(Relaxed), ended.get()), (true, 0));
        signal();
        assert_eq!(ended.get(), 1);
    }
}
