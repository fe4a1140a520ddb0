//! Serves viewers over HTTP.
//!
//! ```text
//! Request ─ route ─┬ hls       playlists, blocking reloads
//!                  ├ dash      the manifest
//!                  ├ segment   headers, segments (also the one being made), parts
//!                  ├ muxed     live.mp4, live.flv: one endless response
//!                  ├ push      a WebSocket: the connection leaves HTTP
//!                  ├ told      a beacon: what a player tells of itself
//!                  ├ files     /vod/PATH
//!                  └ vod       /vod/PATH/index.m3u8 and so on: files packaged on the fly
//! ```
//!
//! Requests for HLS and DASH belong to a session of their player. `visit` looks after these sessions.
//!
//! Nothing is made for one viewer alone. A playlist is rendered once for each state of its track. A
//! segment's bytes are regions of the window. An FLV tag is written once.

mod dash;
pub(crate) mod files;
pub(crate) mod flv;
mod hls;
mod measure;
mod muxed;
mod recent;
mod relay;
mod route;
mod segment;
mod told;
mod unfold;
mod visit;
mod vod;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use files::Opened;
use http::net::Drain;
use http::{Handler, Method, Request, Response};
use live::{Delivery, Stream};
use recent::Recent;
use relay::Relays;
use route::Resource;
use told::Watched;
use visit::Visit;

use crate::Origin;
use crate::access::{Action, Asked, Credentials, Grant, Refusal, Verdict};
use crate::cluster::Unreachable;
use crate::counts::Loop;
use crate::path::{self, StreamPath};
use crate::push::Push;
use crate::sessions::Doing;
use crate::traces::Trace;
use crate::webrtc;

/// The handler of the media plane. Each worker makes its own; all share the origin.
#[derive(Clone)]
pub struct Deliver {
    origin: Arc<Origin>,
    recent: Recent,
    relays: Relays,
    files: Opened,
    push: Rc<Push>,
    timings: Arc<Loop>,
}

impl Deliver {
    /// Makes a handler that serves `origin` on the event loop that `drain` tells of the end.
    pub fn new(origin: Arc<Origin>, drain: Drain) -> Self {
        let (recent, relays, files) = (Recent::default(), Relays::new(drain), Opened::default());
        let push = Push::new(Arc::clone(&origin));
        let timings = origin.timings.join();
        Self { origin, recent, relays, files, push, timings }
    }

    async fn live(
        &self,
        request: &Request,
        (name, resource): (&str, Resource<'_>),
        grant: Grant,
        trace: &mut Trace,
    ) -> Response {
        let visit = match visit::live(request, &self.origin, name, resource) {
            Ok(visit) => visit,
            Err(refused) => return refused,
        };
        let stream = match self.origin.stream(name).await {
            Ok(Some(stream)) => stream,
            Ok(None) => return not_found(),
            Err(error) => return unreachable(error),
        };
        let relays = &self.relays;
        // Playlists, manifests and beacons are counted where they are answered.
        let shows = matches!(
            resource,
            Resource::MediaPlaylist { .. } | Resource::Manifest | Resource::Beacon
        );
        if !shows {
            told::with(request, Watched::Live(&stream), None, &self.origin);
        }
        let kind = measure::live(resource, request);
        let made = measure::watch(pin!(async {
            match resource {
                Resource::Multivariant => hls::multivariant(request, &stream).await,
                Resource::MediaPlaylist { track } => {
                    hls::media(request, &self.origin, relays, &stream, track).await
                }
                Resource::Manifest => dash::manifest(request, &self.origin, relays, &stream).await,
                Resource::Header { track, msn } => segment::header(request, &stream, track, msn),
                Resource::Segment { track, msn } => {
                    segment::segment(request, relays, &stream, track, msn).await
                }
                Resource::SegmentAt { track, time } => {
                    if let Some(track) = stream.track(track) {
                        track.ask(self.origin.now());
                    }
                    segment::segment_at(request, relays, &stream, track, time).await
                }
                Resource::Part { track, msn, part } => {
                    segment::part(request, relays, &stream, track, msn, part).await
                }
                Resource::Mp4 => muxed::mp4(request, &self.origin, &stream, grant).await,
                Resource::Flv => muxed::flv(request, &self.origin, &stream, grant).await,
                Resource::Push => self.push.respond(request, &stream, grant, trace).await,
                Resource::Beacon => told::by_beacon(request, Watched::Live(&stream), &self.origin),
            }
        }))
        .await;
        if made.1 && made.0.status() == 200 && !stream.is_mirrored() {
            self.delayed(&stream, resource);
        }
        let Some(visit) = visit else {
            return measure::count(&self.timings, kind, request, made, None);
        };
        if made.0.status() < 300 {
            visit.gets_live(&stream, resource);
        }
        let (answer, asking) = visit.answered(made.0);
        measure::count(&self.timings, kind, request, (answer, made.1), asking)
    }

    /// Notes how long after its publication that came out which somebody waited for.
    fn delayed(&self, stream: &Stream, resource: Resource<'_>) {
        let (Resource::MediaPlaylist { track } | Resource::Part { track, .. }) = resource else {
            return;
        };
        let window = stream.track(track).map(|track| track.window());
        let newest = window.as_ref().and_then(|window| window.newest()?.parts.last());
        if let Some(newest) = newest {
            self.timings.delayed(self.origin.now().since(newest.published));
        }
    }
}

impl Handler for Deliver {
    fn accepts(&self, request: &Request) -> bool {
        let path = request.path();
        let rest = path::signed(path).filter(|_| self.origin.access.signs());
        match StreamPath::parse(rest.map_or(path, |(_, rest)| rest)) {
            Some(StreamPath::Live(path)) => match request.method() {
                // WHIP and WHEP have answers of their own.
                Method::Get | Method::Head | Method::Options => !webrtc::is_signal(path),
                Method::Post => is_beacon(path),
                _ => false,
            },
            Some(StreamPath::Vod(_)) => true,
            None => false,
        }
    }

    fn posts(&self, request: &Request) -> bool {
        is_beacon(request.path())
    }

    async fn handle(&self, mut request: Request) -> Response {
        let token = self.unsign(&mut request);
        let mut trace = self.origin.traces.request(&request);
        let answer = self.answer(&request, token.as_deref(), &mut trace).await;
        measure::traced(trace, &request, answer)
    }
}

impl Deliver {
    async fn answer(&self, request: &Request, token: Option<&str>, trace: &mut Trace) -> Response {
        let (answer, is_personal) = match StreamPath::parse(request.path()) {
            Some(StreamPath::Live(path)) => {
                let Some((name, resource)) = route::live(path) else { return not_found() };
                if let Some(delivery) = resource.delivery() {
                    trace.asks(Doing::Play, delivery.name(), &StreamPath::Live(name));
                }
                let asked = (StreamPath::Live(name), resource.is_endless());
                let verdict = may_play(&self.origin, request, asked, token).await;
                trace.phase("access");
                match verdict {
                    Ok(grant) => {
                        let is_personal = grant.is_personal;
                        (self.live(request, (name, resource), grant, trace).await, is_personal)
                    }
                    Err(refusal) => return refused(refusal),
                }
            }
            Some(StreamPath::Vod(path)) => {
                let asked = route::vod(path);
                // A folder has the same name with a slash.
                let title = asked.map_or(path, |(title, _)| title).trim_end_matches('/');
                trace.asks(Doing::Play, "title", &StreamPath::Vod(title));
                let lasts = matches!(asked, Some((_, route::Packaged::Push)));
                let wanted = (StreamPath::Vod(title), lasts);
                let verdict = may_play(&self.origin, request, wanted, token).await;
                trace.phase("access");
                match verdict {
                    Ok(grant) => {
                        let is_personal = grant.is_personal;
                        let viewer = Viewer { grant, signed: token, visit: None, trace };
                        (self.title(request, asked, viewer).await, is_personal)
                    }
                    Err(refusal) => return refused(refusal),
                }
            }
            None => return not_found(),
        };
        // Caches that serve others must not keep what one was allowed.
        if is_personal { answer.without_shared_caches() } else { answer }
    }

    async fn title(
        &self,
        request: &Request,
        asked: Option<(&str, route::Packaged<'_>)>,
        viewer: Viewer<'_>,
    ) -> Response {
        let Self { origin, recent, files, push, .. } = self;
        let visit = match visit::title(request, origin, asked) {
            Ok(visit) => visit,
            Err(refused) => return refused,
        };
        let kind = measure::title(asked.map(|(_, resource)| resource));
        let made = measure::watch(pin!(async {
            match asked {
                Some(asked) => {
                    let viewer = Viewer { visit: visit.as_ref(), ..viewer };
                    vod::respond(request, origin, recent, files, (push, viewer), asked).await
                }
                None => {
                    files::respond(request, origin, files, recent).await.unwrap_or_else(not_found)
                }
            }
        }))
        .await;
        let (answer, asking) = match visit {
            Some(visit) => visit.answered(made.0),
            None => (made.0, None),
        };
        measure::count(&self.timings, kind, request, (answer, made.1), asking)
    }

    /// Takes the token off a signed path. What is left is the path that was signed.
    fn unsign(&self, request: &mut Request) -> Option<String> {
        let (token, rest) = path::signed(request.path()).filter(|_| self.origin.access.signs())?;
        let (token, length) = (token.to_owned(), request.path().len() - rest.len());
        request.cut_path(length);
        Some(token)
    }
}

/// Whether a path is that of a beacon. Nothing else of the media plane takes a POST.
fn is_beacon(path: &str) -> bool {
    path.rsplit('/').next() == Some(route::BEACON)
}

/// Somebody who may play what was asked for.
struct Viewer<'a> {
    grant: Grant,
    /// The token of the signed path.
    signed: Option<&'a str>,
    /// The session that the request belongs to.
    visit: Option<&'a Visit<'a>>,
    trace: &'a mut Trace,
}

/// Whether a request may have what it asks for: something of a stream or title, by an answer that may last.
async fn may_play(
    origin: &Origin,
    request: &Request,
    (path, lasts): (StreamPath<'_>, bool),
    signed: Option<&str>,
) -> Verdict {
    let credentials = Credentials {
        query: request.query().unwrap_or_default(),
        authorization: request.header("authorization"),
        signed,
        ..Credentials::default()
    };
    let (action, peer) = (Action::Play(path), request.peer());
    origin.access.may(&Asked { action, peer, protocol: "http", credentials, lasts }).await
}

/// The path of the stream or title that a path of ours names, or names a resource of.
pub(crate) fn stream_of(path: &str) -> String {
    match StreamPath::parse(path) {
        Some(StreamPath::Live(rest)) => {
            let name = route::live(rest).map(|(name, _)| name);
            let name = name.or_else(|| webrtc::stream_of(rest)).unwrap_or(rest);
            StreamPath::Live(name).to_string()
        }
        Some(StreamPath::Vod(rest)) => {
            let title = route::vod(rest).map_or(rest, |(title, _)| title);
            StreamPath::Vod(title).to_string()
        }
        None => path.to_owned(),
    }
}

fn refused(refusal: Refusal) -> Response {
    let response = Response::text(refusal.status(), refusal).header("Cache-Control", "no-store");
    let fields = refusal.fields().into_iter();
    fields.fold(response, |response, (name, value)| response.header(name, value))
}

fn no_media() -> Response {
    Response::text(503, "the stream has no media yet").header("Retry-After", 1)
}

fn not_found() -> Response {
    Response::text(404, "no such stream, track or file").header("Cache-Control", "no-cache")
}

/// Answers who asks for a stream whose node does not answer.
fn unreachable(error: Unreachable) -> Response {
    Response::text(503, error.to_string()).header("Retry-After", 1)
}

/// Counts the viewer behind a request: one for each session if its player names one, or else for each address and
/// player.
fn seen(stream: &Stream, delivery: Delivery, request: &Request, origin: &Origin) {
    if told::with(request, Watched::Live(stream), Some(delivery), origin) {
        return;
    }
    stream.seen(delivery, player(request), origin.now());
}

/// Identifies the player behind a request.
fn player(request: &Request) -> u64 {
    let mut hasher = DefaultHasher::new();
    request.peer().ip().hash(&mut hasher);
    // One page may use several connections, so the connection does not count.
    request.header("user-agent").hash(&mut hasher);
    request.header("x-playback-session-id").hash(&mut hasher);
    hasher.finish()
}

/// `Cache-Control` of a resource that never changes until it leaves the window.
fn immutable(stream: &Stream) -> String {
    format!("public, max-age={}, immutable", stream.window().as_secs())
}
