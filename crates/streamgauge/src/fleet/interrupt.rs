//! SIGINT and SIGTERM, which end a run with what it has, and what follows it before it begins.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::signals;

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
    let (tell, heard) = watch::channel(false);
    // The sender stays, so that those who listen later hear of it as well.
    signals::on_each(move || {
        tell.send_replace(true);
    })?;
    Ok(known.insert(heard).clone())
}

/// Waits until it is.
pub(super) async fn heard(mut interrupt: watch::Receiver<bool>) {
    // The sender is never dropped.
    let _ = interrupt.wait_for(|heard| *heard).await;
}
