//! The nodes of a cluster, and where viewers go.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::{Control, api, denied, json};
use crate::access::{self, Action, Credentials};
use crate::path::StreamPath;

#[derive(Serialize)]
struct Nodes {
    /// The node that answers.
    node: String,
    nodes: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    name: String,
    zone: String,
    address: String,
    /// Whether it takes new viewers.
    ready: bool,
    viewers: u32,
    streams: usize,
    /// How long ago it announced itself.
    heard_seconds: f64,
}

/// Lists the nodes.
pub(super) async fn list(
    State(control): State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let origin = &control.origin;
    if !access::may(Action::Observe, peer, Credentials::of(&uri, &headers)) {
        return denied();
    }
    let Some(cluster) = origin.cluster.get() else {
        return (StatusCode::NOT_FOUND, "there is no cluster\n").into_response();
    };
    let now = origin.now();
    let nodes = cluster.nodes().into_iter().map(|known| Node {
        heard_seconds: now.since(known.heard).as_secs_f64(),
        name: known.node,
        zone: known.zone,
        address: known.address,
        ready: known.ready,
        viewers: known.viewers,
        streams: known.streams,
    });
    let nodes = Nodes { node: cluster.node().to_owned(), nodes: nodes.collect() };
    api(json(&nodes), false)
}

/// Sends a viewer of a stream to the node with the fewest viewers. `?zone=` prefers the nodes there, and the rest of
/// the query goes on to the node. Where no node says how viewers reach it, the viewer stays.
pub(super) async fn route(
    State(control): State<Arc<Control>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(path): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let origin = &control.origin;
    let Some(stream) = StreamPath::parse(&path) else {
        return (StatusCode::NOT_FOUND, "no such stream\n").into_response();
    };
    if !access::may(Action::Play(stream), peer, Credentials::of(&uri, &headers)) {
        return denied();
    }
    let pairs = || uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let zone = pairs().find_map(|pair| pair.strip_prefix("zone="));
    let rest: Vec<_> = pairs().filter(|pair| !pair.starts_with("zone=")).collect();
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    let address = origin.cluster.get().and_then(|cluster| cluster.route(zone)).unwrap_or_default();
    // The path as it was sent: what was escaped in it stays so.
    let path = uri.path().strip_prefix("/route").unwrap_or_default();
    let Ok(location) = HeaderValue::from_str(&format!("{address}{path}{query}")) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let anybody = HeaderValue::from_static("*");
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, anybody),
    ];
    (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
}
