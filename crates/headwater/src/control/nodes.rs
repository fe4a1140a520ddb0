//! The nodes of a cluster, and where viewers go.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use cluster::presence::{self, Known, Shared};
use live::UnixMicros;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Control, DASHBOARD, Observer, api, json, may, page, secured};
use crate::access::{Action, Credentials};
use crate::deliver::stream_of;
use crate::path;
use crate::path::StreamPath;

/// The most streams that an answer has.
const MOST_STREAMS: usize = 1000;

/// The nodes of the cluster, and the streams that they share.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Cluster")]
pub(super) struct Nodes<'a> {
    /// The node that answers.
    node: &'a str,
    /// The nodes of which this one has heard in the last seconds, itself among them, by name.
    nodes: Vec<Node>,
    /// Nodes that have gone within the last ten minutes, by name.
    gone: Vec<Gone>,
    /// The first 1,000 streams by name.
    streams: Vec<Stream<'a>>,
    /// How many streams are left out here.
    streams_left_out: usize,
}

/// A node of the cluster.
#[derive(Serialize, JsonSchema)]
struct Node {
    /// Its name, `cluster.node`.
    name: String,
    /// Its zone, `cluster.zone`. Empty if it has none.
    zone: String,
    /// Where viewers reach it, `cluster.advertise`. Empty if it does not say that.
    address: String,
    /// Whether it takes new viewers.
    ready: bool,
    /// The share of its machine's processors that its program uses, from 0 to 1. `null` if it does not say that.
    load: Option<f64>,
    /// How many viewers it has.
    viewers: u32,
    /// How many streams it has.
    streams: usize,
    /// How many streams of other nodes it copies.
    copies: usize,
    /// How long ago it announced itself, in seconds.
    heard_seconds: f64,
}

/// A node that has gone.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GoneNode")]
struct Gone {
    /// Its name.
    name: String,
    /// Its zone. Empty if it had none.
    zone: String,
    /// Where viewers reached it. Empty if it did not say that.
    address: String,
    /// How long ago it announced itself, in seconds.
    heard_seconds: f64,
}

/// A stream of any node.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SharedStream")]
struct Stream<'a> {
    /// Its path: `live/NAME`.
    name: String,
    /// The node that has it. `null` if only copies are left.
    node: Option<&'a str>,
    /// Whether somebody publishes it.
    live: bool,
    /// The nodes that copy it.
    copies: Vec<Copy<'a>>,
}

/// A node's copy of a stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StreamCopy")]
struct Copy<'a> {
    /// The node that copies it.
    node: &'a str,
    /// How long before its last announcement the copy had all that the stream's node told, in seconds. The node tells how
    /// far it is each half second.
    behind_seconds: f64,
}

/// Serves the page of the nodes, where there is a cluster.
pub(super) async fn show(State(control): State<Arc<Control>>) -> Response {
    match control.origin.cluster.get() {
        Some(_) => secured(page("nodes.html"), DASHBOARD),
        None => (StatusCode::NOT_FOUND, "there is no cluster\n").into_response(),
    }
}

/// Lists the nodes and the streams that they share.
pub(super) async fn list(State(control): State<Arc<Control>>, _: Observer) -> Response {
    let origin = &control.origin;
    let Some(cluster) = origin.cluster.get() else {
        return (StatusCode::NOT_FOUND, "there is no cluster\n").into_response();
    };
    let render = || {
        let now = origin.now();
        let (present, gone) = cluster.nodes();
        let (streams, streams_left_out) = presence::streams(&present, MOST_STREAMS);
        json(&Nodes {
            node: cluster.node(),
            nodes: present.iter().map(|known| node(known, now)).collect(),
            gone: gone.into_iter().map(|known| left(known, now)).collect(),
            streams: streams.into_iter().map(stream).collect(),
            streams_left_out,
        })
    };
    api(control.nodes.get((), render).await, true)
}

fn node(known: &Known, now: UnixMicros) -> Node {
    Node {
        name: known.node.clone(),
        zone: known.zone.clone(),
        address: known.address.clone(),
        ready: known.ready,
        load: known.load.map(|thousandths| f64::from(thousandths) / 1000.0),
        viewers: known.viewers,
        streams: known.streams.len(),
        copies: known.copies.len(),
        heard_seconds: now.since(known.heard).as_secs_f64(),
    }
}

fn left(known: Known, now: UnixMicros) -> Gone {
    let heard_seconds = now.since(known.heard).as_secs_f64();
    Gone { name: known.node, zone: known.zone, address: known.address, heard_seconds }
}

fn stream(shared: Shared<'_>) -> Stream<'_> {
    let copies = shared
        .copies
        .into_iter()
        .map(|(node, millis)| Copy { node, behind_seconds: f64::from(millis) / 1000.0 });
    Stream {
        name: StreamPath::Live(shared.name).to_string(),
        node: shared.holder.map(|(node, _)| node),
        live: shared.holder.is_some_and(|(_, is_live)| is_live),
        copies: copies.collect(),
    }
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
    let (signed, rest) = match path::signed(&format!("/{path}")) {
        Some((token, rest)) => (Some(token.to_owned()), rest.to_owned()),
        None => (None, path),
    };
    let asked = stream_of(rest.trim_start_matches('/'));
    let Some(stream) = StreamPath::parse(&asked) else {
        return (StatusCode::NOT_FOUND, "no such stream\n").into_response();
    };
    let credentials = Credentials { signed: signed.as_deref(), ..Credentials::of(&uri, &headers) };
    if let Err(refusal) = may(origin, Action::Play(stream), peer, credentials).await {
        return refusal.into_response();
    }
    let pairs = || uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let zone = pairs().find_map(|pair| pair.strip_prefix("zone="));
    let rest: Vec<_> = pairs().filter(|pair| !pair.starts_with("zone=")).collect();
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    let address = origin.cluster.get().and_then(|cluster| cluster.route(zone)).unwrap_or_default();
    // The path as it was sent: what was escaped in it stays so. Without an address, two slashes would begin with a host.
    let path = uri.path().strip_prefix("/route").unwrap_or_default().trim_start_matches('/');
    let Ok(location) = HeaderValue::from_str(&format!("{address}/{path}{query}")) else {
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
