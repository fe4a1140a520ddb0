//! Finding what a player wants of the VOD folder, which may wait for a disk.

use std::pin::Pin;
use std::sync::Arc;

use tokio::task::{JoinError, spawn_blocking};

use crate::Origin;
use crate::pace::Plan;
use crate::titles::flv::FlvTitle;

/// A title that is being looked for.
pub(super) type Lookup = Pin<Box<dyn Future<Output = Found> + Send>>;

/// What became of it.
pub(super) struct Found {
    pub(super) flv_title: Result<Arc<FlvTitle>, NoTitle>,
    pub(super) wanted: Wanted,
}

/// What it is looked for.
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
                // librtmp takes the end off names of MP4 files.
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

/// Ready when what is looked for is found or not; never where nothing is.
pub(super) async fn done(lookup: &mut Option<Lookup>) -> Found {
    match lookup {
        Some(lookup) => lookup.await,
        None => std::future::pending().await,
    }
}
