//! `/metrics`: the state and the counters of the origin, in the Prometheus text format. docs/metrics.md lists them.

mod delivered;
mod histogram;
mod quality;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{Counters, Identity};
use live::Status;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use store::Store;

use crate::access::{Action, Credentials};
use crate::control::{Once, harmless, may};
use crate::path::StreamPath;
use crate::{Origin, log, webrtc};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRendition {
    stream: String,
    rendition: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOperation {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDirection {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRole {
    to: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Viewers {
    stream: String,
    delivery: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStream {
    stream: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

/// Makes the router for `/metrics`.
pub fn router(
    origin: Arc<Origin>,
    http: Arc<Counters>,
    identity: Option<Identity>,
    webrtc: Option<Arc<webrtc::Server>>,
) -> Router {
    let state = Arc::new(Metrics { origin, http, identity, webrtc, rendered: Once::default() });
    Router::new().route("/metrics", get(metrics)).with_state(state).layer(map_response(harmless))
}

struct Metrics {
    origin: Arc<Origin>,
    http: Arc<Counters>,
    identity: Option<Identity>,
    webrtc: Option<Arc<webrtc::Server>>,
    rendered: Once<()>,
}

async fn metrics(
    State(metrics): State<Arc<Metrics>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let Metrics { origin, http, identity, webrtc, rendered } = &*metrics;
    if let Err(refusal) = may(origin, Action::Measure, peer, Credentials::of(&uri, &headers)).await
    {
        return refusal.into_response();
    }
    let render = || {
        let mut text = String::new();
        let registry = registry(origin, http, identity.as_ref(), webrtc.as_deref());
        encode(&mut text, &registry).ok().map(|()| text.into())
    };
    // Writing to a string does not fail.
    let Some(text) = rendered.get((), render).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], text).into_response()
}

/// Collects all metrics. Streams come and go, so their metrics are collected anew each time and not
/// kept.
fn registry(
    origin: &Origin,
    http: &Counters,
    identity: Option<&Identity>,
    webrtc: Option<&webrtc::Server>,
) -> Registry {
    let mut registry = Registry::with_prefix("headwater");
    let now = origin.now();

    let time = Gauge::<f64, AtomicU64>::default();
    time.set(now.0 as f64 / 1e6);
    registry.register_with_unit("time", "When this was said, since 1970", Unit::Seconds, time);

    let streams = Family::<InState, Gauge>::default();
    let viewers = Family::<Viewers, Gauge>::default();
    let publishers = Gauge::<i64>::default();
    for state in ["live", "offline", "ended"] {
        // This makes states without streams appear with 0.
        drop(streams.get_or_create(&InState { state }));
    }
    for stream in origin.registry.streams() {
        let state = stream.state();
        let status = match state.status {
            Status::Live => "live",
            Status::Offline => "offline",
            Status::Ended => "ended",
        };
        streams.get_or_create(&InState { state: status }).inc();
        publishers.inc_by(whole(state.publishers.len() as u64));
        for (delivery, count) in stream.viewers(now) {
            let path = StreamPath::Live(stream.name()).to_string();
            let labels = Viewers { stream: path, delivery: delivery.name() };
            viewers.get_or_create(&labels).set(whole(count as u64));
        }
    }
    for ((stream, delivery), count) in origin.title_viewers.count(now) {
        let labels = Viewers { stream: stream.to_string(), delivery };
        viewers.get_or_create(&labels).set(whole(count as u64));
    }
    registry.register("streams", "Streams by how far along they are", streams);
    registry.register("publishers", "Publishers now", publishers);
    registry.register("viewers", "Viewers now, by stream and delivery", viewers);
    let waiting = Gauge::<i64>::default();
    waiting.set(whole(origin.seats.waiting(now).len() as u64));
    let help = "Publishers now whose media are dropped, because others of the same stream are used";
    registry.register("publishers_waiting", help, waiting);
    let takeovers = Family::<ByRole, Counter>::default();
    let switches = origin.seats.switches();
    for (to, count) in [("backup", switches.to_backup), ("primary", switches.to_primary)] {
        takeovers.get_or_create(&ByRole { to }).inc_by(count);
    }
    quality::register(&mut registry, origin);
    streams::register(&mut registry, origin);
    delivered::register(&mut registry, origin);
    registry.register(
        "access_refused",
        "Attempts that were refused",
        origin.access.refused.clone(),
    );
    let draining = Gauge::<i64>::default();
    draining.set(i64::from(origin.is_draining()));
    registry.register("draining", "1 when the origin takes nobody new, because it ends", draining);
    let help = "Times a publisher went on in place of the other one of its stream";
    registry.register("publisher_takeovers", help, takeovers);
    let slow = &origin.slow_viewers;
    registry.register(
        "slow_viewers_skipped",
        "Times a viewer that read too slowly was moved to the newest keyframe",
        slow.skipped.clone(),
    );
    registry.register(
        "slow_viewers_closed",
        "Viewers disconnected because they read too slowly",
        slow.closed.clone(),
    );

    registry.register(
        "push_violations",
        "Push viewers closed for what they sent, by close code",
        origin.violations.0.clone(),
    );
    if let Some(cluster) = origin.cluster.get() {
        let help = "Messages of other nodes that were refused: damaged, of another format or lease";
        registry.register("cluster_refused", help, cluster.refused.clone());
    }
    let (viewers, switches) = renditions(origin);
    let help = "Push viewers of live streams now, by stream and rendition";
    registry.register("push_viewers", help, viewers);
    let help = "Times a push viewer was sent another rendition, by whether that has more bits";
    registry.register("push_switches", help, switches);

    let paced = &origin.balance;
    for (name, help, value) in [
        ("paced_viewers", "Viewers of files as one long response or push", paced.viewers()),
        (
            "paced_viewers_waiting",
            "Those of them with little in hand and a full socket",
            paced.waiting(),
        ),
        (
            "paced_viewers_aside",
            "Those of them that wait so that a short link can serve the others",
            paced.aside(),
        ),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(whole(value as u64));
        registry.register(name, help, gauge);
    }
    let ladders = &origin.ladders;
    let running = Gauge::<i64>::default();
    running.set(whole(ladders.running()));
    registry.register(
        "ladders",
        "Processes that make renditions of live streams, or what WebRTC viewers need",
        running,
    );
    for (name, help, value) in [
        (
            "ladders_failed",
            "Times such a process could not be started, or failed",
            ladders.failed(),
        ),
        ("ladders_skipped", "Times frames were not made fast enough", ladders.skipped()),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }

    if let Some(webrtc) = webrtc {
        let sessions = Gauge::<i64>::default();
        sessions.set(whole(webrtc.open() as u64));
        registry.register("webrtc_sessions", "WebRTC sessions now", sessions);
        let help = "Datagrams that belonged to no session, or for which a session had no room";
        registry.register("webrtc_dropped", help, ConstCounter::new(webrtc.dropped()));
    }

    let memory = origin.registry.memory();
    for (name, help, value) in [
        ("live_memory", "Memory that live streams hold", memory.used),
        ("live_memory_limit", "Memory that live streams may hold", memory.limit),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(whole(value));
        registry.register_with_unit(name, help, Unit::Bytes, gauge);
    }
    let help = "Segments that left their window early to make room";
    registry.register("live_segments_given_up", help, ConstCounter::new(memory.given_up));

    let blocks = Gauge::<i64>::default();
    blocks.set(whole(origin.flv_titles.memory() as u64));
    let help = "Memory for what RTMP players are sent of files";
    registry.register_with_unit("title_blocks", help, Unit::Bytes, blocks);

    if let Some(store) = &origin.store {
        of_store(&mut registry, store);
    }

    let missing = log::missing();
    for (name, help, value) in [
        ("log_lines_dropped", "Lines of the log that nobody took", missing.dropped),
        ("log_lines_held_back", "Lines of the log of which there were too many", missing.held_back),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }

    let traces = &origin.traces;
    for (name, help, value) in [
        ("trace_spans_dropped", "Spans that no collector took", traces.dropped()),
        (
            "trace_requests_over_limit",
            "Requests that are not traced, because too many clients want it",
            traces.not_granted(),
        ),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }

    if let Some(not_after) = identity.and_then(Identity::not_after) {
        let gauge = Gauge::<i64>::default();
        gauge.set(whole(not_after));
        let help = "Until when the certificate of HTTPS and RTMPS is valid, since 1970";
        let name = "tls_certificate_expiry_timestamp";
        registry.register_with_unit(name, help, Unit::Seconds, gauge);
    }

    let totals = http.totals();
    let open = Gauge::<i64>::default();
    open.set(whole(totals.open));
    registry.register("http_connections", "HTTP connections now", open);
    if origin.config.http.max_connections > 0 {
        let most = Gauge::<i64>::default();
        most.set(whole(origin.config.http.max_connections as u64));
        registry.register("http_connections_limit", "HTTP connections that there may be", most);
    }
    for (name, help, value) in [
        ("http_connections_accepted", "HTTP connections accepted", totals.accepted),
        ("http_connections_refused", "HTTP connections over a limit", totals.refused),
        (
            "http_tls_handshakes_failed",
            "TLS handshakes that failed or took too long",
            totals.tls_failed,
        ),
        ("http2_connections_accepted", "Connections that speak HTTP/2", totals.http2),
        ("http_connections_stalled", "HTTP connections that took nothing", totals.stalled),
        ("http_requests", "Requests for media and playlists", totals.requests),
        ("http_bad_requests", "Requests refused as malformed or slow", totals.bad_requests),
        ("http_cold_reads", "Times a file had to wait for a disk", totals.cold_reads),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }
    registry.register_with_unit(
        "http_sent",
        "Bytes sent over HTTP",
        Unit::Bytes,
        ConstCounter::new(totals.bytes_sent),
    );
    registry.register_with_unit(
        "http_file_sent",
        "Bytes of files sent over HTTP without being copied",
        Unit::Bytes,
        ConstCounter::new(totals.file_bytes),
    );
    registry
}

/// Collects what concerns the store with the files.
fn of_store(registry: &mut Registry, store: &Store) {
    let counts = store.counts();
    let requests = Family::<ByOperation, Counter>::default();
    for (operation, counter) in
        [("head", &counts.heads), ("list", &counts.lists), ("get", &counts.gets)]
    {
        requests.get_or_create(&ByOperation { operation }).inc_by(counter.now());
    }
    registry.register("store_requests", "Requests to the store, by operation", requests);
    for (name, help, counter) in [
        ("store_errors", "Requests to the store that failed", &counts.errors),
        ("store_hits", "Blocks of files that were in the cache", &counts.hits),
        ("store_misses", "Blocks of files that viewers had to wait for", &counts.misses),
        ("store_evictions", "Blocks that made room in the cache", &counts.evictions),
        ("store_damaged", "Blocks that were damaged in the cache", &counts.damaged),
    ] {
        registry.register(name, help, ConstCounter::new(counter.now()));
    }
    let fetched = ConstCounter::new(counts.bytes.now());
    registry.register_with_unit("store_fetched", "Bytes from the store", Unit::Bytes, fetched);
    let (used, limit) = store.room();
    for (name, help, value) in [
        ("store_cache", "Disk space of the cache", used),
        ("store_cache_limit", "Disk space that the cache may use", limit),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(whole(value));
        registry.register_with_unit(name, help, Unit::Bytes, gauge);
    }
}

/// Collects the renditions that push viewers have, and how often they switched.
fn renditions(origin: &Origin) -> (Family<ByRendition, Gauge>, Family<ByDirection, Counter>) {
    let viewers = Family::<ByRendition, Gauge>::default();
    for ((stream, rendition), count) in origin.chosen.viewers() {
        let labels = ByRendition { stream: StreamPath::Live(&stream).to_string(), rendition };
        viewers.get_or_create(&labels).set(whole(count as u64));
    }
    let switches = Family::<ByDirection, Counter>::default();
    for (direction, count) in origin.chosen.switches() {
        switches.get_or_create(&ByDirection { direction }).inc_by(count);
    }
    (viewers, switches)
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
