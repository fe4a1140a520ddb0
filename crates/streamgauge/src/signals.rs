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
    let told = stop.clone();
    on_each(move || {
        if told.swap(true, Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    })?;
    Ok(stop)
}
