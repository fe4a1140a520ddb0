//! SIGINT and SIGTERM, which end a run with what it has, and what follows it before it begins.

use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

static HEARD: Mutex<Option<watch::Receiver<bool>>> = Mutex::new(None);

/// Whether this process has been interrupted since this was first called; from then on signals do
/// not end it any more.
///
/// # Errors
/// Signals cannot be listened for.
pub(super) fn listen() -> anyhow::Result<watch::Receiver<bool>> {
    let mut known = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(heard) = &*known {
        return Ok(heard.clone());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (tell, heard) = watch::channel(false);
    // Listening before anything begins: a signal that comes early must not end the program as ever.
    let inside = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    drop(inside);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tell.send_replace(true);
            // The sender stays, so that those who listen later hear of it as well.
            std::future::pending::<()>().await;
        });
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).context("starting a thread")?;
    Ok(known.insert(heard).clone())
}

/// Waits until it is.
pub(super) async fn heard(mut interrupt: watch::Receiver<bool>) {
    // The sender is never dropped.
    let _ = interrupt.wait_for(|heard| *heard).await;
}
