//! The last hour in figures, for the dashboard: one sample each five seconds, of the node and of its streams.
//! [`crate::sampler`] takes them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use live::UnixMicros;

/// Samples of an hour.
pub(crate) const KEPT: usize = 720;

/// The figures of the last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    node: VecDeque<NodeSample>,
    streams: BTreeMap<String, VecDeque<StreamSample>>,
}

/// The node at one time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeSample {
    /// By the wall clock.
    pub(crate) at: UnixMicros,
    /// Viewers of all streams and titles, by delivery.
    pub(crate) viewers: BTreeMap<&'static str, u64>,
    /// What was sent since the sample before.
    pub(crate) bits_per_second: u64,
    /// Processors that this process kept busy.
    pub(crate) processors: f64,
    /// Memory of the process in RAM, in bytes.
    pub(crate) memory: u64,
    /// Memory of live streams, in bytes.
    pub(crate) live_memory: u64,
}

/// A stream at one time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StreamSample {
    /// By the wall clock.
    pub(crate) at: UnixMicros,
    pub(crate) viewers: u64,
    pub(crate) bits_per_second: u64,
    pub(crate) frame_rate: Option<f64>,
    pub(crate) keyframe_distance: Option<f64>,
    pub(crate) audio_offset: Option<f64>,
    pub(crate) discontinuities: u64,
}

impl History {
    /// Keeps a sample of the node and those of its streams, by their paths.
    pub(crate) fn keep(&self, node: NodeSample, streams: BTreeMap<String, StreamSample>) {
        let mut inner = self.inner();
        keep(&mut inner.node, node);
        inner.streams.retain(|path, _| streams.contains_key(path));
        for (path, sample) in streams {
            keep(inner.streams.entry(path).or_default(), sample);
        }
    }

    /// The samples of the node, the oldest first.
    pub(crate) fn node(&self) -> Vec<NodeSample> {
        self.inner().node.iter().cloned().collect()
    }

    /// Whether there are samples of a stream.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.inner().streams.contains_key(path)
    }

    /// The samples of a stream, `live/NAME`, the oldest first. `None` if there are none.
    pub(crate) fn stream(&self, path: &str) -> Option<Vec<StreamSample>> {
        Some(self.inner().streams.get(path)?.iter().cloned().collect())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep<T>(samples: &mut VecDeque<T>, sample: T) {
    samples.push_back(sample);
    if samples.len() > KEPT {
        samples.pop_front();
    }
}
