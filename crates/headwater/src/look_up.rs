//! Looks up titles.

use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use vod::{Error, Title};

use crate::Origin;

/// Looks up a title, on a thread that may wait. A title of objects that is kept needs no thread. So
/// its viewers do not wait for titles that are being fetched.
pub(crate) async fn title(
    origin: &Arc<Origin>,
    path: &str,
    turns: &Semaphore,
) -> Result<Arc<Title>, Error> {
    if let Some(known) = origin.titles.known(path) {
        return known;
    }
    if let Some(asked) = origin.titles.ask(path) {
        asked.await;
        if let Some(known) = origin.titles.known(path) {
            return known;
        }
    }
    // The semaphore is never closed.
    let _turn = turns.acquire().await;
    let (library, wanted) = (Arc::clone(origin), path.to_owned());
    let asked = spawn_blocking(move || library.titles.title(&wanted)).await;
    asked.unwrap_or_else(|died| {
        let source = Arc::new(io::Error::other(died));
        Err(Error::Io { what: path.to_owned(), source })
    })
}
