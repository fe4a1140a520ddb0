//! SIGINT and SIGTERM. They end a run, which keeps the results so far, and runs after it do not
//! start.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::signals;

static HEARD: Mutex<Option<watch::Receiver<bool>>> = Mutex::new(None);

/// Watches for interruption of this process since the first call. From the first call on, signals
/// do not end the process.
///
/// # Errors
/// The process cannot listen for signals.
pub(super) fn listen() -> anyhow::Result<watch::Receiver<bool>> {
    let mut known = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(heard) = &*known {
        return Ok(heard.clone());
    }
    let (tell, heard) = watch::channel(false);
    // The sender stays alive, so that later listeners learn of an earlier signal.
    signals::on_each(move || {
        tell.send_replace(true);
    })?;
    Ok(known.insert(heard).clone())
}

/// Waits until the process is interrupted.
pub(super) async fn heard(mut interrupt: watch::Receiver<bool>) {
    // The sender is never dropped.
    let _ = interrupt.wait_for(|heard| *heard).await;
}
