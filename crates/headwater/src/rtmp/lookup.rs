//! Finding what a player wants of the VOD folder, which may wait for a disk.

use std::pin::Pin;
use std::sync::Arc;

use tokio::task::{JoinError, spawn_blocking};

use crate::Origin;
use crate::pace::Plan;
use crate::titles::film::Film;

/// A film that is being looked for.
pub(super) type Lookup = Pin<Box<dyn Future<Output = Found> + Send>>;

/// What became of it.
pub(super) struct Found {
    pub(super) film: Result<Arc<Film>, NoFilm>,
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
pub(super) enum NoFilm {
    NotFound,
    Failed(String),
}

/// Path below the VOD root, if a file's is asked for. Clients put `mp4:` before names of MP4 files,
/// as Adobe's server wanted it, and draw the line between application and name where they like.
pub(super) fn path_below_root(app: &str, name: &str) -> Option<String> {
    let name = name.strip_prefix("mp4:").unwrap_or(name);
    let path = format!("{}/{}", app.trim_matches('/'), name.trim_matches('/'));
    path.strip_prefix("vod/").map(str::to_owned)
}

/// Looks for the film at `path` below the VOD root.
pub(super) fn film(origin: &Arc<Origin>, path: String, wanted: Wanted) -> Lookup {
    let origin = Arc::clone(origin);
    Box::pin(async move {
        let looked = spawn_blocking(move || {
            let title = match origin.titles.title(&path) {
                // librtmp takes the end off names of MP4 files.
                Err(vod::Error::NotFound) => origin.titles.title(&format!("{path}.mp4")),
                title => title,
            };
            let title = title.map_err(|error| match error {
                vod::Error::NotFound => NoFilm::NotFound,
                error => NoFilm::Failed(error.to_string()),
            })?;
            let film = origin.films.film(title);
            film.map_err(|error| NoFilm::Failed(format!("{path}: {error}")))
        });
        let failed = |error: JoinError| Err(NoFilm::Failed(error.to_string()));
        Found { film: looked.await.unwrap_or_else(failed), wanted }
    })
}

/// Ready when what is looked for is found or not; never where nothing is.
pub(super) async fn done(lookup: &mut Option<Lookup>) -> Found {
    match lookup {
        Some(lookup) => lookup.await,
        None => std::future::pending().await,
    }
}
