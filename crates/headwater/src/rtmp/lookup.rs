//! Looks up the file that a player asks for in the VOD folder. This may wait for a disk.

use std::pin::Pin;
use std::sync::Arc;

use tokio::task::{JoinError, spawn_blocking};

use crate::Origin;
use crate::pace::Plan;
use crate::titles::flv::FlvTitle;

/// A lookup in progress.
pub(super) type Lookup = Pin<Box<dyn Future<Output = Found> + Send>>;

/// The result of a lookup.
pub(super) struct Found {
    pub(super) flv_title: Result<Arc<FlvTitle>, NoTitle>,
    pub(super) wanted: Wanted,
}

/// The request that the lookup serves.
pub(super) enum Wanted {
    /// `start` and `duration` in milliseconds.
    Play {
        path: String,
        plan: Plan,
        start: f64,
        duration: Option<f64>,
    },
    Length {
        transaction: f64,
    },
}

/// Why there is nothing to play.
pub(super) enum NoTitle {
    NotFound,
    Failed(String),
}

/// Looks for the title at `path` below the VOD root.
pub(super) fn title(origin: &Arc<Origin>, path: String, wanted: Wanted) -> Lookup {
    let origin = Arc::clone(origin);
    Box::pin(async move {
        let looked = spawn_blocking(move || {
            let title = match origin.titles.title(&path) {
                // librtmp cuts the `.mp4` off the names of MP4 files.
                Err(vod::Error::NotFound) => origin.titles.title(&format!("{path}.mp4")),
                title => title,
            };
            let title = title.map_err(|error| match error {
                vod::Error::NotFound => NoTitle::NotFound,
                error => NoTitle::Failed(error.to_string()),
            })?;
            let flv_title = origin.flv_titles.of(title);
            flv_title.map_err(|error| NoTitle::Failed(format!("{path}: {error}")))
        });
        let failed = |error: JoinError| Err(NoTitle::Failed(error.to_string()));
        Found { flv_title: looked.await.unwrap_or_else(failed), wanted }
    })
}

/// Waits for the lookup's result. Stays pending when there is no lookup.
pub(super) async fn done(lookup: &mut Option<Lookup>) -> Found {
    match lookup {
        Some(lookup) => lookup.await,
        None => std::future::pending().await,
    }
}
