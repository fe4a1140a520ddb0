//! What viewers ask for over HTTP, and what they get.
//!
//! ```text
//! Request ─ route ─┬ hls       playlists, blocking reloads
//!                  ├ dash      the manifest
//!                  ├ segment   headers, segments (also the one being made), parts
//!                  ├ muxed     live.mp4, live.flv: one endless response
//!                  └ files     /vod/PATH
//! ```
//!
//! Nothing is made for one viewer alone: a playlist is rendered once per state of its track, a
//! segment's bytes are regions of the window, an FLV tag is written once.

pub mod cursor;
mod dash;
pub(crate) mod files;
mod hls;
pub mod muxed;
mod route;
mod segment;
mod unfold;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use live::{Delivery, Stream};

use crate::Origin;
use crate::http::{Handler, Request, Response};
use route::Resource;

/// The media plane's handler: one a worker, sharing the origin.
#[derive(Clone)]
pub struct Deliver {
    origin: Arc<Origin>,
}

impl Deliver {
    /// Serves what `origin` has.
    pub fn new(origin: Arc<Origin>) -> Self {
        Self { origin }
    }

    async fn live(&self, request: &Request, name: &str, resource: Resource<'_>) -> Response {
        let Some(stream) = self.origin.registry.stream(name) else {
            return not_found();
        };
        match resource {
            Resource::Multivariant => hls::multivariant(request, &stream).await,
            Resource::MediaPlaylist { track } => {
                hls::media(request, &self.origin, &stream, track).await
            }
            Resource::Manifest => dash::manifest(request, &self.origin, &stream).await,
            Resource::Header { track, msn } => segment::header(request, &stream, track, msn),
            Resource::Segment { track, msn } => {
                segment::segment(request, &stream, track, msn).await
            }
            Resource::SegmentAt { track, time } => {
                segment::segment_at(request, &stream, track, time).await
            }
            Resource::Part { track, msn, part } => {
                segment::part(request, &stream, track, msn, part).await
            }
            Resource::Mp4 => muxed::mp4(request, &self.origin, &stream).await,
            Resource::Flv => muxed::flv(request, &self.origin, &stream).await,
        }
    }
}

impl Handler for Deliver {
    fn accepts(&self, request: &Request) -> bool {
        let path = request.path();
        path.starts_with("/live/") || path.starts_with("/vod/")
    }

    async fn handle(&self, request: Request) -> Response {
        if let Some(path) = request.path().strip_prefix("/live/") {
            match route::live(path) {
                Some((name, resource)) => self.live(&request, name, resource).await,
                None => not_found(),
            }
        } else {
            match files::respond(&request, &self.origin).await {
                Some(response) => response,
                None => files::refuse_manifest(&request, &self.origin).await,
            }
        }
    }
}

fn not_found() -> Response {
    Response::text(404, "no such stream, track or file").header("Cache-Control", "no-cache")
}

/// How long a viewer is kept waiting for something that must come: three target durations
/// (RFC 8216bis 6.2.5.2).
fn patience(stream: &Stream) -> Duration {
    3 * stream.settings().target_duration
}

/// Counts the viewer behind a request: one an address and player.
fn seen(stream: &Stream, delivery: Delivery, request: &Request, origin: &Origin) {
    let mut hasher = DefaultHasher::new();
    request.peer().ip().hash(&mut hasher);
    // A player's requests come over several connections, but from one page.
    request.header("user-agent").hash(&mut hasher);
    request.header("x-playback-session-id").hash(&mut hasher);
    stream.seen(delivery, hasher.finish(), origin.now());
}

/// `Cache-Control` of what never changes but leaves with the window.
fn immutable(stream: &Stream) -> String {
    format!("public, max-age={}, immutable", stream.settings().window.as_secs())
}
