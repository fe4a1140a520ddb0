//! The last hour in figures.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use live::UnixMicros;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Control, Observer, api, json};
use crate::history::{NodeSample, StreamSample};

/// What a client asks for.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    stream: Option<String>,
    absent: Option<String>,
}

/// Figures of the node: one entry in each list for each sample, one in five seconds for the last hour.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "History")]
pub(super) struct NodeHistory {
    /// When each sample was taken, in seconds since 1970.
    at: Vec<u64>,
    /// How many processors the machine has.
    processors: usize,
    /// How many of them the process kept busy.
    processors_used: Vec<f64>,
    /// Viewers of all streams and titles, by delivery.
    viewers: BTreeMap<&'static str, Vec<u64>>,
    /// What was sent to viewers, in bit/s.
    bits_per_second: Vec<u64>,
    /// Memory of the process, in bytes.
    memory: Vec<u64>,
    /// Memory of live streams, in bytes.
    live_memory: Vec<u64>,
}

/// Figures of a stream: one entry in each list for each sample, one in five seconds for the last hour.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "StreamHistory")]
pub(super) struct StreamHistory {
    /// When each sample was taken, in seconds since 1970.
    at: Vec<u64>,
    /// Viewers by all deliveries.
    viewers: Vec<u64>,
    /// Mean bitrate of all tracks over the window, in bit/s.
    bits_per_second: Vec<u64>,
    /// Frames per second of the first video track. `null` where this is not known, as below.
    frame_rate: Vec<Option<f64>>,
    /// The longest time between two keyframes in the window, in seconds.
    keyframe_distance_seconds: Vec<Option<f64>>,
    /// How far audio is ahead of video, in seconds. Below 0 it is behind.
    audio_offset_seconds: Vec<Option<f64>>,
    /// How often the timeline had broken off.
    discontinuities: Vec<u64>,
}

/// Tells the figures of the node, or of one stream.
pub(super) async fn show(
    State(control): State<Arc<Control>>,
    _: Observer,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Response {
    let origin = &control.origin;
    let Ok(Query(Wanted { stream, absent })) = wanted else {
        return (StatusCode::BAD_REQUEST, "stream and absent are named once at most\n")
            .into_response();
    };
    let body = match stream {
        None => json(&of_node(&origin.history.node())),
        Some(path) => match origin.history.stream(&path) {
            Some(samples) => json(&of_stream(&samples)),
            // Browsers report each 404, and a page may ask for an hour.
            None if absent.as_deref() == Some("null") => Some(Bytes::from_static(b"null")),
            None => {
                return (StatusCode::NOT_FOUND, "no figures of such a stream\n").into_response();
            }
        },
    };
    api(body, true)
}

fn seconds(at: UnixMicros) -> u64 {
    at.0 / 1_000_000
}

/// A number with three decimals.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn of_node(samples: &[NodeSample]) -> NodeHistory {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut history = NodeHistory { processors, ..NodeHistory::default() };
    for (taken, sample) in samples.iter().enumerate() {
        history.at.push(seconds(sample.at));
        history.processors_used.push(rounded(sample.processors));
        history.bits_per_second.push(sample.bits_per_second);
        history.memory.push(sample.memory);
        history.live_memory.push(sample.live_memory);
        for (delivery, count) in &sample.viewers {
            let counts = history.viewers.entry(delivery).or_default();
            counts.resize(taken, 0);
            counts.push(*count);
        }
    }
    for counts in history.viewers.values_mut() {
        counts.resize(samples.len(), 0);
    }
    history
}

fn of_stream(samples: &[StreamSample]) -> StreamHistory {
    let mut history = StreamHistory::default();
    for sample in samples {
        history.at.push(seconds(sample.at));
        history.viewers.push(sample.viewers);
        history.bits_per_second.push(sample.bits_per_second);
        history.frame_rate.push(sample.frame_rate.map(rounded));
        history.keyframe_distance_seconds.push(sample.keyframe_distance.map(rounded));
        history.audio_offset_seconds.push(sample.audio_offset.map(rounded));
        history.discontinuities.push(sample.discontinuities);
    }
    history
}
