//! The control plane: web pages, API, health checks. It may be slow; media delivery may not.

mod follow;
mod history;
mod nodes;
mod once;
mod openapi;
mod problem;
mod quality;
mod sessions;
mod streams;
mod titles;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, delete, get};
use bytes::Bytes;
use http::net::Gate;
use live::UnixMicros;
pub(crate) use once::Once;
use rust_embed::{EmbeddedFile, RustEmbed};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::access::{self, Action, Asked, Credentials, Door, Grant, Verdict};
use crate::{Origin, request_id, webrtc};

/// The output of `npm run build` in `web/`.
#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Pages;

/// Content security policy of responses without one of their own: nothing is allowed.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// Policy of the dashboard and of the page that publishes: their own files, and requests to this
/// server. Posters of titles reach a video element as `blob:` URLs. No other page may show these
/// two in a frame, where it could trick users into clicks.
const DASHBOARD: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Policy of the player. Media reach the video element as `blob:` URLs. Subtitles begin with an
/// empty track as a `data:` URL. hls.js and dash.js start workers from `blob:` URLs of their own
/// code.
const PLAYER: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    media-src 'self' blob: data:; worker-src 'self' blob:; base-uri 'none'; form-action 'none'";

/// The answer below a signed path where no key is configured.
const NO_SIGNED_PATHS: &str = "there are no signed paths here\n";

/// The route that ends sessions.
const ENDING: &str = "/api/v1/sessions/{id}";

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
    /// Turns of those who look at titles: each holds a thread.
    looks: Arc<Semaphore>,
    /// Places of clients that follow the events.
    followers: Arc<Gate>,
    openapi: openapi::Document,
}

impl Control {
    fn new(origin: Arc<Origin>, webrtc: Option<Arc<webrtc::Server>>) -> Self {
        let (list, single, nodes) = (Once::default(), Once::default(), Once::default());
        let followers = follow::places();
        let openapi = openapi::Document::make();
        let looks = titles::turns();
        Self { origin, webrtc, list, single, nodes, looks, followers, openapi }
    }
}

/// Everything but media, and the requests of WHIP and WHEP.
#[derive(Debug)]
pub struct Router {
    viewers: axum::Router,
    operators: axum::Router,
    /// What ends sessions.
    ending: axum::Router,
    origin: Arc<Origin>,
}

impl Router {
    /// Makes the routes. `metrics` are for operators.
    pub fn new(
        origin: Arc<Origin>,
        webrtc: Option<Arc<webrtc::Server>>,
        metrics: axum::Router,
    ) -> Self {
        let control = Arc::new(Control::new(Arc::clone(&origin), webrtc));
        // These have no policy. A worker gets the policy of its script's response, and that response
        // may be a 304.
        let parts = axum::Router::new()
            .route("/assets/{*file}", get(asset))
            .route("/player/push.js", get(script))
            .route("/player/push.d.ts", get(types));
        let whole = DefaultBodyLimit::max(webrtc::MOST_OFFER);
        let mut viewers = axum::Router::new()
            .route("/watch/{*stream}", get(player))
            .route("/s/{token}/watch/{*stream}", get(player))
            .route("/s/{token}/live/{*path}", any(signed).layer(whole))
            .route("/publish/{*stream}", get(|| async { secured(page("publish.html"), DASHBOARD) }))
            // The media plane answers GET, HEAD and OPTIONS. Only other methods arrive here.
            .route("/live/{*path}", any(signal).layer(whole));
        for (path, route) in for_viewers() {
            viewers = viewers.route(path, route);
        }
        let mut operators = axum::Router::new()
            .route("/", get(|| async { secured(page("index.html"), DASHBOARD) }))
            .route("/nodes", get(nodes::show));
        for (path, route) in for_operators() {
            operators = operators.route(path, route);
        }
        let operators = operators.with_state(Arc::clone(&control)).merge(metrics);
        let ending = axum::Router::new().route(ENDING, delete(sessions::end));
        let ending = ending.with_state(Arc::clone(&control));
        let none = || async { (StatusCode::NOT_FOUND, "no such page\n") };
        let viewers = viewers.fallback(none).layer(map_response(harmless));
        let viewers = viewers.merge(parts.layer(map_response(nosniff))).with_state(control);
        Self { viewers, operators, ending, origin }
    }

    /// The routes as one of the listeners has them. Sessions are ended only by that of the operators: proxies that do not
    /// name their clients make viewers look like this machine.
    pub fn at(&self, door: Door) -> axum::Router {
        let mut operators = self.operators.clone();
        if door == Door::Control {
            operators = operators.merge(self.ending.clone());
        }
        let may = middleware::from_fn_with_state((Arc::clone(&self.origin), door), only_operators);
        let operators = operators.layer(may).layer(map_response(harmless));
        let router = self.viewers.clone().merge(operators);
        let router = router.layer(middleware::from_fn(problem::describe));
        router.layer(middleware::from_fn(request_id::named)).layer(Extension(door))
    }
}

/// Lets requests of operators pass. Everybody else can watch, and no more.
async fn only_operators(
    State((origin, door)): State<(Arc<Origin>, Door)>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let asked = (request.uri(), request.headers());
    if access::may_operate(&origin.config.control, door, peer, asked) {
        return next.run(request).await;
    }
    let why = match door {
        Door::Public => "the dashboard, the API and the metrics are at control.listen\n",
        Door::Control => "not for pages of other sites; control.hosts may name hosts\n",
    };
    (StatusCode::FORBIDDEN, why).into_response()
}

/// The routes for viewers' programs. `openapi` describes these, and those for operators.
fn for_viewers() -> [(&'static str, MethodRouter<Arc<Control>>); 7] {
    [
        ("/api/v1/openapi.json", get(openapi::show)),
        ("/api/v1/streams/{*name}", get(streams::single)),
        ("/s/{token}/api/v1/streams/{*name}", get(streams::signed)),
        ("/api/v1/time", get(time)),
        ("/route/{*path}", get(nodes::route)),
        ("/healthz", get(|| async { "ok\n" })),
        ("/readyz", get(ready)),
    ]
}

/// The routes for operators' programs.
fn for_operators() -> [(&'static str, MethodRouter<Arc<Control>>); 9] {
    [
        ("/api/v1/streams", get(streams::list)),
        ("/api/v1/sessions", get(sessions::list)),
        ("/api/v1/titles", get(titles::list)),
        ("/api/v1/titles/{*path}", get(titles::single)),
        ("/api/v1/posters/{*path}", get(titles::show)),
        ("/api/v1/events", get(follow::events)),
        ("/api/v1/log", get(follow::log)),
        ("/api/v1/history", get(history::show)),
        ("/api/v1/cluster", get(nodes::list)),
    ]
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
    // Credentials in a page's address are for no server that it asks, and for no log of a proxy.
    let referrer = HeaderValue::from_static("strict-origin");
    page.headers_mut().insert(header::REFERRER_POLICY, referrer);
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
    signal_of(&control, peer, (None, &path), (&method, &uri, &headers), body).await
}

/// Answers WHIP and WHEP below a signed path.
async fn signed(
    State(control): State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path((token, path)): Path<(String, String)>,
    (method, uri, headers): (Method, Uri, HeaderMap),
    body: Result<Bytes, BytesRejection>,
) -> Response {
    if !control.origin.access.signs() {
        return (StatusCode::NOT_FOUND, NO_SIGNED_PATHS).into_response();
    }
    signal_of(&control, peer, (Some(&token), &path), (&method, &uri, &headers), body).await
}

async fn signal_of(
    control: &Control,
    peer: SocketAddr,
    (signed, path): (Option<&str>, &str),
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let request = webrtc::Request { method, path, uri, headers, peer, body, signed };
    let answer = match &control.webrtc {
        Some(server) => webrtc::respond(server, &request).await,
        None => webrtc::is_signal(path).then(no_webrtc),
    };
    answer.unwrap_or_else(|| {
        let allow = [(header::ALLOW, "GET, HEAD, OPTIONS")];
        (StatusCode::METHOD_NOT_ALLOWED, allow, "only GET and HEAD\n").into_response()
    })
}

/// Answers WHIP and WHEP where there is no WebRTC. An empty `Allow` says that the configuration leaves no method (RFC
/// 9110 10.2.1).
fn no_webrtc() -> Response {
    let allow = [(header::ALLOW, "")];
    (StatusCode::METHOD_NOT_ALLOWED, allow, "there is no WebRTC here\n").into_response()
}

/// Tells whether new viewers and publishers are welcome. From the signal to end on they are not,
/// although the process still serves those it has.
async fn ready(State(control): State<Arc<Control>>) -> (StatusCode, &'static str) {
    if control.origin.is_draining() {
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

/// Serves a module that other sites import under a stable name.
fn module(name: &str, kind: &'static str, asked: &HeaderMap) -> Response {
    let name = format!("player/{name}");
    let Some(file) = Pages::get(&name) else { return page(&name) };
    let hash = file.metadata.sha256_hash();
    let etag: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    // By its `.ts` ending it would have the type of MPEG-TS video.
    revalidated(file.data, kind, &format!("\"{etag}\""), asked)
}

/// Answers with a document that has a stable name and that other sites may use. Clients revalidate it each time.
fn revalidated(
    body: impl Into<Body>,
    kind: &'static str,
    etag: &str,
    asked: &HeaderMap,
) -> Response {
    let headers = [
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, etag),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    match has(asked, etag) {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, [(header::CONTENT_TYPE, kind)], body.into()).into_response(),
    }
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

/// A client that may observe the origin. Requests of others are refused before their handler is called.
struct Observer {
    /// Whether it may see addresses and end sessions: it is at an address of `control.admin`, or was let in for a secret.
    is_admin: bool,
}

impl FromRequestParts<Arc<Control>> for Observer {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Response> {
        observe(parts, control, false).await.map(|(observer, _)| observer)
    }
}

/// An observer that stays, and the permission by which it does.
struct Follower(Observer, Grant);

impl FromRequestParts<Arc<Control>> for Follower {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Response> {
        observe(parts, control, true).await.map(|(observer, grant)| Self(observer, grant))
    }
}

/// Lets a client observe the origin, or refuses its request.
async fn observe(
    parts: &mut Parts,
    control: &Arc<Control>,
    lasts: bool,
) -> Result<(Observer, Grant), Response> {
    let peer = ConnectInfo::<SocketAddr>::from_request_parts(parts, control).await;
    let ConnectInfo(peer) = peer.map_err(IntoResponse::into_response)?;
    let origin = &control.origin;
    let credentials = Credentials::of(&parts.uri, &parts.headers);
    let asked = Asked { action: Action::Observe, peer, protocol: "http", credentials, lasts };
    let grant = origin.access.may(&asked).await.map_err(IntoResponse::into_response)?;
    let is_near = access::may_administer(&origin.config.control.admin, peer, credentials);
    Ok((Observer { is_admin: grant.by_secret || is_near }, grant))
}

/// Whether a client of the control plane may do something.
pub(crate) async fn may(
    origin: &Origin,
    action: Action<'_>,
    peer: SocketAddr,
    credentials: Credentials<'_>,
) -> Verdict {
    origin.access.may(&Asked { action, peer, protocol: "http", credentials, lasts: false }).await
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

    #[tokio::test]
    async fn responses_without_a_policy_of_their_own_may_do_nothing() {
        let answer = harmless("text".into_response()).await;
        assert_eq!(answer.headers()[header::CONTENT_SECURITY_POLICY], NOTHING);
        assert_eq!(answer.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let page = harmless(secured(().into_response(), DASHBOARD)).await;
        assert_eq!(page.headers()[header::CONTENT_SECURITY_POLICY], DASHBOARD);
        assert_eq!(page.headers()[header::REFERRER_POLICY], "strict-origin");
    }
}
