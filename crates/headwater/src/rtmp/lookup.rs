//! Looks up what a peer asks for: a file in the VOD folder, which may wait for a disk, or a live stream that another
//! node has.

use std::pin::Pin;
use std::sync::Arc;

use live::Stream;
use protocol::rtmp::PlayStart;
use tokio::task::{JoinError, spawn_blocking};

use crate::Origin;
use crate::access::{Attempt, Verdict};
use crate::cluster::Unreachable;
use crate::look_up;
use crate::pace::Plan;
use crate::path::published_as;
use crate::titles::flv::FlvTitle;

/// A lookup in progress.
pub(super) type Lookup = Pin<Box<dyn Future<Output = Found> + Send>>;

/// The result of a lookup.
pub(super) enum Found {
    Title {
        flv_title: Result<Arc<FlvTitle>, NoTitle>,
        wanted: Wanted,
    },
    Live {
        name: String,
        stream: Result<Option<Arc<Stream>>, Unreachable>,
    },
    /// What other nodes have of a stream that a publisher comes with.
    Fetched {
        name: String,
        query: String,
    },
    /// Whether the peer may do what it asked for.
    Decided {
        verdict: Verdict,
        request: AccessRequest,
    },
}

/// A request that is let in, or not.
pub(super) enum AccessRequest {
    /// To publish a live stream.
    Publish { name: String, query: String },
    /// To play a live stream or a file.
    Play { path: String, query: String, start: PlayStart, duration: Option<f64> },
    /// How long a file is.
    Length { path: String, query: String, transaction: f64 },
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
    /// A reason that the player may know: what is wrong with the file.
    Failed(String),
    /// A reason that only the log gets: it may tell of the machine or of its store.
    Unread(String),
}

/// Looks for the title at `path` below the VOD root.
pub(super) fn title(origin: &Arc<Origin>, path: String, wanted: Wanted) -> Lookup {
    let origin = Arc::clone(origin);
    Box::pin(async move {
        let title = match look_up::title(&origin, &path, &origin.rtmp_lookups).await {
            Ok(title) => title,
            Err(error) => {
                let flv_title = Err(match error {
                    vod::Error::NotFound => NoTitle::NotFound,
                    error @ vod::Error::Io { .. } => NoTitle::Unread(error.to_string()),
                    error => NoTitle::Failed(error.to_string()),
                });
                return Found::Title { flv_title, wanted };
            }
        };
        let looked = spawn_blocking(move || {
            let flv_title = origin.flv_titles.of(title);
            flv_title.map_err(|error| NoTitle::Failed(format!("{path}: {error}")))
        });
        let failed = |error: JoinError| Err(NoTitle::Failed(error.to_string()));
        Found::Title { flv_title: looked.await.unwrap_or_else(failed), wanted }
    })
}

/// Looks for the live stream `name` on all nodes.
pub(super) fn live(origin: &Arc<Origin>, name: String) -> Lookup {
    let origin = Arc::clone(origin);
    Box::pin(async move {
        let stream = origin.stream(&name).await;
        Found::Live { name, stream }
    })
}

/// Gets what other nodes have of the live stream `name`, which a peer wants to publish.
pub(super) fn fetch(origin: &Arc<Origin>, name: String, query: String) -> Lookup {
    let origin = Arc::clone(origin);
    Box::pin(async move {
        let (role, _) = published_as(&query);
        origin.fetch(&name, role).await;
        Found::Fetched { name, query }
    })
}

/// Finds out whether a peer may do what it asks for.
pub(super) fn access(
    origin: &Arc<Origin>,
    attempt: Box<Attempt>,
    request: AccessRequest,
) -> Lookup {
    let access = Arc::clone(&origin.access);
    Box::pin(async move { Found::Decided { verdict: access.finish(attempt).await, request } })
}

/// Waits for the lookup's result. Stays pending when there is no lookup.
pub(super) async fn done(lookup: &mut Option<Lookup>) -> Found {
    match lookup {
        Some(lookup) => lookup.await,
        None => std::future::pending().await,
    }
}
