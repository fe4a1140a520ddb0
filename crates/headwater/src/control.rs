//! The control plane: the web pages, the API, health. Everything here may be slow; media is not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use live::{Status, Stream, Track, UnixMicros};
use media::Kind;
use rust_embed::{EmbeddedFile, RustEmbed};
use serde::Serialize;

use crate::Origin;

/// What `npm run build` made of `web/`.
#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Pages;

/// Everything that is not media.
pub fn router(origin: Arc<Origin>) -> Router {
    Router::new()
        .route("/", get(|| async { page("index.html") }))
        .route("/watch/{*stream}", get(|| async { page("watch.html") }))
        .route("/assets/{*file}", get(asset))
        .route("/player/push.js", get(script))
        .route("/player/push.d.ts", get(types))
        .route("/api/v1/streams", get(streams))
        .route("/api/v1/streams/{*name}", get(stream))
        .route("/api/v1/time", get(time))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such page\n") })
        .with_state(origin)
}

/// Whether new viewers and publishers are welcome: not from the moment on at which the process was
/// told to end, while it still serves those it has.
async fn ready(State(origin): State<Arc<Origin>>) -> (StatusCode, &'static str) {
    if origin.draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

/// A page, or a file at the site's root: may change with the next release.
fn page(name: &str) -> Response {
    match Pages::get(name) {
        Some(file) => embedded(file, "no-cache"),
        None => (StatusCode::NOT_FOUND, "the web pages were not built into this binary\n")
            .into_response(),
    }
}

/// A file whose name has a hash of its content in it.
async fn asset(Path(file): Path<String>) -> Response {
    match Pages::get(&format!("assets/{file}")) {
        Some(file) => embedded(file, "public, max-age=31536000, immutable"),
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}

/// The player of push.
async fn script(headers: HeaderMap) -> Response {
    module("push.js", "text/javascript", &headers)
}

/// Its types.
async fn types(headers: HeaderMap) -> Response {
    module("push.d.ts", "text/plain", &headers)
}

/// What other people's pages import by this name too: they ask each time whether it is another by now.
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
            // By its ending alone, a declaration of types would be taken for video.
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

/// Whether the client has the version of this tag (RFC 9110 13.1.2).
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

/// The origin's clock, for players that measure latency: DASH's `urn:mpeg:dash:utc:http-iso`.
async fn time(State(origin): State<Arc<Origin>>) -> Response {
    let now = rfc3339(origin.now());
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
struct StreamList {
    streams: Vec<StreamInfo>,
}

#[derive(Serialize)]
struct StreamInfo {
    name: String,
    state: &'static str,
    since: String,
    publishers: Vec<PublisherInfo>,
    tracks: Vec<TrackInfo>,
    viewers: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct PublisherInfo {
    peer: Option<String>,
    protocol: &'static str,
    rendition: Option<String>,
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

async fn streams(State(origin): State<Arc<Origin>>) -> Response {
    let now = origin.now();
    let streams = origin.registry.streams().iter().map(|stream| describe(stream, now)).collect();
    no_store(Json(StreamList { streams }))
}

async fn stream(State(origin): State<Arc<Origin>>, Path(name): Path<String>) -> Response {
    let found = name.strip_prefix("live/").and_then(|name| origin.registry.stream(name));
    match found {
        Some(stream) => no_store(Json(describe(&stream, origin.now()))),
        None => (StatusCode::NOT_FOUND, "no such stream\n").into_response(),
    }
}

fn no_store(body: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store"), (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")], body)
        .into_response()
}

fn describe(stream: &Stream, now: UnixMicros) -> StreamInfo {
    let state = stream.state();
    StreamInfo {
        name: format!("live/{}", stream.name()),
        state: match state.status {
            Status::Live => "live",
            Status::Offline => "offline",
            Status::Ended => "ended",
        },
        since: rfc3339(stream.since()),
        publishers: state
            .publishers
            .iter()
            .map(|publisher| PublisherInfo {
                peer: publisher.peer.map(|peer| peer.to_string()),
                protocol: publisher.protocol,
                rendition: publisher.rendition.clone(),
            })
            .collect(),
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
    let (sample_rate, channels) = codec.sound().unzip();
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
