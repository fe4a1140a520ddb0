//! The control plane: web pages, API, health checks. It may be slow; media delivery may not.

mod nodes;
mod once;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use bytes::Bytes;
use live::backup::Role;
use live::{Status, Stream, Track, UnixMicros};
use media::Kind;
pub(crate) use once::Once;
use rust_embed::{EmbeddedFile, RustEmbed};
use serde::Serialize;

use crate::access::{self, Action, Credentials};
use crate::path::StreamPath;
use crate::{Origin, webrtc};

/// The output of `npm run build` in `web/`.
#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Pages;

/// Content security policy of responses without one of their own: nothing is allowed.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// Policy of the dashboard and of the page that publishes: their own files, and requests to this
/// server. No other page may show them in a frame, where it could trick users into clicks.
const DASHBOARD: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Policy of the player. Media reach the video element as `blob:` URLs. Subtitles begin with an
/// empty track as a `data:` URL. hls.js and dash.js start workers from `blob:` URLs of their own
/// code.
const PLAYER: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    media-src 'self' blob: data:; worker-src 'self' blob:; base-uri 'none'; form-action 'none'";

/// State of the control plane's handlers.
struct Control {
    origin: Arc<Origin>,
    webrtc: Option<Arc<webrtc::Server>>,
    /// Renderings of the list of streams. The flag tells whether one includes what only
    /// administrators may see. Single streams can never take their place.
    list: Once<bool>,
    /// Renderings of single streams, with the same flag.
    single: Once<(String, bool)>,
    /// Renderings of the list of nodes.
    nodes: Once<()>,
}

/// Makes the router for everything but media, and for the requests of WHIP and WHEP.
pub fn router(origin: Arc<Origin>, webrtc: Option<Arc<webrtc::Server>>) -> Router {
    let (list, single, nodes) = (Once::default(), Once::default(), Once::default());
    let control = Arc::new(Control { origin, webrtc, list, single, nodes });
    // These have no policy. A worker gets the policy of its script's response, and that response
    // may be a 304.
    let parts = Router::new()
        .route("/assets/{*file}", get(asset))
        .route("/player/push.js", get(script))
        .route("/player/push.d.ts", get(types));
    Router::new()
        .route("/", get(|| async { secured(page("index.html"), DASHBOARD) }))
        .route("/watch/{*stream}", get(player))
        .route("/publish/{*stream}", get(|| async { secured(page("publish.html"), DASHBOARD) }))
        .route("/nodes", get(nodes::show))
        .route("/api/v1/streams", get(streams))
        .route("/api/v1/streams/{*name}", get(stream))
        .route("/api/v1/cluster", get(nodes::list))
        .route("/api/v1/time", get(time))
        .route("/route/{*path}", get(nodes::route))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        // The media plane answers GET, HEAD and OPTIONS. Only other methods arrive here.
        .route("/live/{*path}", any(signal).layer(DefaultBodyLimit::max(webrtc::MOST_OFFER)))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such page\n") })
        .layer(map_response(harmless))
        .merge(parts.layer(map_response(nosniff)))
        .with_state(control)
}

/// Makes sure that browsers run nothing in a response that is no page.
pub(crate) async fn harmless(response: Response) -> Response {
    let mut response = nosniff(response).await;
    let policy = response.headers_mut().entry(header::CONTENT_SECURITY_POLICY);
    policy.or_insert(HeaderValue::from_static(NOTHING));
    response
}

/// Tells browsers to trust the content type.
async fn nosniff(mut response: Response) -> Response {
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

fn secured(mut page: Response, policy: &str) -> Response {
    if let Ok(policy) = HeaderValue::from_str(policy) {
        page.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    page
}

/// Serves the player's page.
async fn player(State(control): State<Arc<Control>>, uri: Uri, headers: HeaderMap) -> Response {
    let host = access::host(&uri, &headers);
    let embed = &control.origin.config.control.embed;
    secured(page("watch.html"), &player_policy(host.as_ref(), embed))
}

/// Makes the player's policy. Not all browsers extend `'self'` to WebSockets of the same host.
fn player_policy(host: Option<&Authority>, embed: &str) -> String {
    let sockets = host.map(|host| format!(" ws://{host} wss://{host}")).unwrap_or_default();
    let ancestors = match embed {
        // Without the directive, really everybody may: `*` does not match every scheme.
        "*" => String::new(),
        "" => "; frame-ancestors 'none'".to_owned(),
        origins => format!("; frame-ancestors {origins}"),
    };
    format!("{PLAYER}; connect-src 'self'{sockets}{ancestors}")
}

/// Answers WHIP and WHEP, and methods that a stream's other resources do not support.
async fn signal(
    State(control): State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(path): Path<String>,
    (method, uri, headers): (Method, Uri, HeaderMap),
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let (method, uri, headers) = (&method, &uri, &headers);
    let request = webrtc::Request { method, path: &path, uri, headers, peer, body };
    let answer = match &control.webrtc {
        Some(server) => webrtc::respond(server, &request).await,
        None => None,
    };
    answer.unwrap_or_else(|| {
        let allow = [(header::ALLOW, "GET, HEAD, OPTIONS")];
        (StatusCode::METHOD_NOT_ALLOWED, allow, "only GET and HEAD\n").into_response()
    })
}

/// Tells whether new viewers and publishers are welcome. From the signal to end on they are not,
/// although the process still serves those it has.
async fn ready(State(control): State<Arc<Control>>) -> (StatusCode, &'static str) {
    if control.origin.draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

/// Serves a page, or a file at the site's root. It may change with the next release.
fn page(name: &str) -> Response {
    match Pages::get(name) {
        Some(file) => embedded(file, "no-cache"),
        None => (StatusCode::NOT_FOUND, "the web pages were not built into this binary\n")
            .into_response(),
    }
}

/// Serves a file with a content hash in its name.
async fn asset(Path(file): Path<String>) -> Response {
    match Pages::get(&format!("assets/{file}")) {
        Some(file) => embedded(file, "public, max-age=31536000, immutable"),
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}

/// Serves the push player.
async fn script(headers: HeaderMap) -> Response {
    module("push.js", "text/javascript", &headers)
}

/// Serves the push player's type declarations.
async fn types(headers: HeaderMap) -> Response {
    module("push.d.ts", "text/plain", &headers)
}

/// Serves a module that other sites import under a stable name. Browsers revalidate it each time.
fn module(name: &str, kind: &'static str, asked: &HeaderMap) -> Response {
    let name = format!("player/{name}");
    let mut response = page(&name);
    if let Some(file) = Pages::get(&name) {
        let hash = file.metadata.sha256_hash();
        let etag: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let etag = format!("\"{etag}\"");
        if has(asked, &etag) {
            response =
                (StatusCode::NOT_MODIFIED, [(header::CACHE_CONTROL, "no-cache")]).into_response();
        } else {
            // By its `.ts` ending it would have the type of MPEG-TS video.
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if let Ok(etag) = HeaderValue::from_str(&etag) {
            response.headers_mut().insert(header::ETAG, etag);
        }
    }
    let anybody = HeaderValue::from_static("*");
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, anybody);
    response
}

/// Whether the client already has the version with this tag (RFC 9110 13.1.2).
fn has(asked: &HeaderMap, etag: &str) -> bool {
    let lists = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|tag| {
        let tag = tag.trim();
        tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag
    })
}

fn embedded(file: EmbeddedFile, cache: &'static str) -> Response {
    let kind = file.metadata.mimetype().to_owned();
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cache.to_owned())], file.data)
        .into_response()
}

/// Serves the origin's clock, for players that measure latency: DASH's
/// `urn:mpeg:dash:utc:http-iso`.
async fn time(State(control): State<Arc<Control>>) -> Response {
    let now = rfc3339(control.origin.wall_clock());
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    (headers, now).into_response()
}

fn rfc3339(time: UnixMicros) -> String {
    protocol::utc::Utc(time.0 / 1000).to_string()
}

#[derive(Serialize)]
struct StreamList<'a> {
    /// The name of this node, if there is a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    streams: Vec<StreamInfo>,
}

#[derive(Serialize)]
struct StreamInfo {
    name: String,
    state: &'static str,
    since: String,
    publishers: Vec<PublisherInfo>,
    /// Publishers that are connected here, and whose media are dropped for now.
    waiting: Vec<PublisherInfo>,
    /// Whether a backup is connected to any node: it is `live` or `waiting`.
    backup: Option<&'static str>,
    tracks: Vec<TrackInfo>,
    viewers: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct PublisherInfo {
    peer: Option<String>,
    protocol: &'static str,
    rendition: Option<String>,
    backup: bool,
}

#[derive(Serialize)]
struct TrackInfo {
    name: String,
    kind: &'static str,
    codec: String,
    bitrate: u64,
    rendition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frame_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_rate: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<u16>,
}

async fn streams(
    State(control): State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let origin = &control.origin;
    let may = |action| access::may(action, peer, Credentials::of(&uri, &headers));
    if !may(Action::Observe) {
        return denied();
    }
    let admin = may(Action::Administer(&origin.config.control.admin));
    let render = || {
        let (streams, now) = (origin.registry.streams(), origin.now());
        let streams = streams.iter().map(|stream| describe(origin, stream, now, admin)).collect();
        json(&StreamList { node: origin.cluster.get().map(|cluster| cluster.node()), streams })
    };
    api(control.list.get(admin, render).await, admin)
}

async fn stream(
    State(control): State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let origin = &control.origin;
    let may = |action| access::may(action, peer, Credentials::of(&uri, &headers));
    let not_found = || (StatusCode::NOT_FOUND, "no such stream\n").into_response();
    let Some(path @ StreamPath::Live(live)) = StreamPath::parse(&name) else {
        return not_found();
    };
    if !may(Action::Play(path)) {
        return denied();
    }
    let Some(stream) = origin.registry.stream(live) else { return not_found() };
    let admin = may(Action::Administer(&origin.config.control.admin));
    let render = || json(&describe(origin, &stream, origin.now(), admin));
    api(control.single.get((name, admin), render).await, admin)
}

/// Answers a client that [`access::may`] refuses.
pub(crate) fn denied() -> Response {
    (StatusCode::FORBIDDEN, [(header::CACHE_CONTROL, "no-store")], "not allowed\n").into_response()
}

fn json(value: &impl Serialize) -> Option<Bytes> {
    serde_json::to_vec(value).ok().map(Bytes::from)
}

/// Makes an API response. Pages of other origins may read it, unless it is for administrators.
fn api(body: Option<Bytes>, admin: bool) -> Response {
    // Serializing text and numbers does not fail.
    let Some(body) = body else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    let mut response = (headers, body).into_response();
    if !admin {
        let anybody = HeaderValue::from_static("*");
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, anybody);
    }
    response
}

/// Describes a stream. Only administrators get the addresses of publishers.
fn describe(origin: &Origin, stream: &Stream, now: UnixMicros, admin: bool) -> StreamInfo {
    let (state, presence) = (stream.state(), origin.seats.presence(stream.name(), now));
    let cluster = origin.cluster.get();
    let elsewhere = || Some(cluster?.elsewhere(stream.name())?.publisher?.into());
    let live = presence.live.or_else(elsewhere);
    let is_backup = |(role, _): &(Role, _)| *role == Role::Backup;
    let waits = presence.waiting.iter().any(is_backup)
        || cluster.is_some_and(|it| it.waits_elsewhere(stream.name(), Role::Backup));
    let info = |publisher: &live::PublisherInfo, role: Option<Role>| PublisherInfo {
        peer: publisher.peer.filter(|_| admin).map(|peer| peer.to_string()),
        protocol: publisher.protocol,
        rendition: publisher.rendition.clone(),
        backup: publisher.rendition.is_none() && role == Some(Role::Backup),
    };
    StreamInfo {
        name: StreamPath::Live(stream.name()).to_string(),
        state: match state.status {
            Status::Live => "live",
            Status::Offline => "offline",
            Status::Ended => "ended",
        },
        since: rfc3339(stream.since()),
        publishers: state.publishers.iter().map(|publisher| info(publisher, live)).collect(),
        waiting: presence.waiting.iter().map(|(role, it)| info(it, Some(*role))).collect(),
        backup: match live {
            Some(Role::Backup) => Some("live"),
            _ => waits.then_some("waiting"),
        },
        tracks: state.tracks.iter().filter(|track| track.is_present()).map(track).collect(),
        viewers: stream
            .viewers(now)
            .into_iter()
            .map(|(delivery, count)| (delivery.name().to_owned(), count.into()))
            .collect(),
    }
}

fn track(track: &Arc<Track>) -> TrackInfo {
    let header = track.header();
    let codec = &header.track.codec;
    let video = track.kind == Kind::Video;
    let (width, height) = codec.resolution().unzip();
    let (sample_rate, channels) = codec.audio().unzip();
    TrackInfo {
        name: track.name.clone(),
        kind: if video { "video" } else { "audio" },
        codec: codec.rfc6381().into_owned(),
        bitrate: track.bitrate().map_or(0, |(mean, _)| mean),
        rendition: track.rendition.clone(),
        width,
        height,
        frame_rate: track
            .frame_rate()
            .filter(|_| video)
            .map(|(n, d)| (f64::from(n) / f64::from(d) * 1000.0).round() / 1000.0),
        sample_rate,
        channels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_embedding_sites_may_show_the_player_in_a_frame() {
        let host = "origin.example:8080".parse().unwrap();
        let anybody = player_policy(Some(&host), "*");
        assert!(!anybody.contains("frame-ancestors"), "{anybody}");
        let sockets = "connect-src 'self' ws://origin.example:8080 wss://origin.example:8080";
        assert!(anybody.ends_with(sockets), "{anybody}");
        let some = player_policy(None, "https://a.example https://b.example");
        let ending = "connect-src 'self'; frame-ancestors https://a.example https://b.example";
        assert!(some.ends_with(ending), "{some}");
        assert!(player_policy(None, "").ends_with("; frame-ancestors 'none'"));
    }

    /// The list is the most expensive answer.
    #[tokio::test(start_paused = true)]
    async fn the_list_is_rendered_once_a_second_however_many_streams_are_asked_for() {
        let origin = Arc::new(Origin::new(crate::config::Config::default()));
        let control = Arc::new(Control {
            origin: Arc::clone(&origin),
            webrtc: None,
            list: Once::default(),
            single: Once::default(),
            nodes: Once::default(),
        });
        let peer = || ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 1000)));
        let mut publishers = Vec::new();
        let mut publish = |name: String| {
            let info = live::PublisherInfo { peer: None, protocol: "test", rendition: None };
            publishers.push(origin.registry.publish(&name, info, origin.now()).unwrap());
        };
        for i in 0..once::MOST + 1 {
            publish(format!("s{i}"));
            let (name, state) = (Path(format!("live/s{i}")), State(Arc::clone(&control)));
            let answer = stream(state, peer(), name, Uri::default(), HeaderMap::new()).await;
            assert_eq!(answer.status(), StatusCode::OK);
        }
        let list = async || {
            let state = State(Arc::clone(&control));
            let answer = streams(state, peer(), Uri::default(), HeaderMap::new()).await;
            axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap()
        };
        let before = list().await;
        publish("new".to_owned());
        assert_eq!(list().await, before);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert_ne!(list().await, before);
    }

    #[tokio::test]
    async fn responses_without_a_policy_of_their_own_may_do_nothing() {
        let answer = harmless("text".into_response()).await;
        assert_eq!(answer.headers()[header::CONTENT_SECURITY_POLICY], NOTHING);
        assert_eq!(answer.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let page = harmless(secured(().into_response(), DASHBOARD)).await;
        assert_eq!(page.headers()[header::CONTENT_SECURITY_POLICY], DASHBOARD);
    }
}
