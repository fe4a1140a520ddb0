//! The last hour in figures, for the dashboard: one sample each five seconds, of the node and of its streams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use live::UnixMicros;
use tokio::time::Instant;

use crate::health::Health;
use crate::path::StreamPath;
use crate::{Origin, machine};

/// From one sample to the next.
const EVERY: Duration = Duration::from_secs(5);

/// Samples of an hour.
const KEPT: usize = 720;

/// Streams of which samples are kept, at most: about 10 MiB for all. Those that began first have them.
const MOST_STREAMS: usize = 256;

/// The figures of the last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    node: VecDeque<NodeSample>,
    streams: BTreeMap<String, VecDeque<StreamSample>>,
    /// What was counted at the last sample.
    last: Option<Counted>,
}

/// What only grows.
#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Instant,
    sent: u64,
    processor: Duration,
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
    /// Takes a sample if it is time. `sent` is how many bytes the process has sent to viewers. Call it about once a second.
    pub(crate) fn take(&self, origin: &Origin, sent: impl FnOnce() -> u64) {
        let now = Instant::now();
        let mut inner = self.inner();
        if inner.last.is_some_and(|last| now.duration_since(last.at) < EVERY) {
            return;
        }
        let counted = Counted { at: now, sent: sent(), processor: machine::processor_time() };
        let last = inner.last.replace(counted).unwrap_or(counted);
        let seconds = now.duration_since(last.at).as_secs_f64().max(0.001);
        let (at, clock) = (origin.wall_clock(), origin.now());
        let mut viewers = BTreeMap::<_, u64>::new();
        let mut present = BTreeMap::new();
        for stream in origin.registry.streams() {
            let counts = stream.viewers(clock);
            for (delivery, count) in counts {
                *viewers.entry(delivery.name()).or_default() += count as u64;
            }
            if present.len() < MOST_STREAMS {
                let path = StreamPath::Live(stream.name()).to_string();
                let health = Health::of(&stream, clock);
                let sample = StreamSample {
                    at,
                    viewers: counts.iter().map(|(_, count)| *count as u64).sum(),
                    bits_per_second: health.bitrate(),
                    frame_rate: health.frame_rate(),
                    keyframe_distance: health.keyframe_distance,
                    audio_offset: health.audio_offset,
                    discontinuities: health.discontinuities,
                };
                present.insert(path, sample);
            }
        }
        for ((_, delivery), count) in origin.title_viewers.count(clock) {
            *viewers.entry(delivery).or_default() += count as u64;
        }
        let node = NodeSample {
            at,
            viewers,
            bits_per_second: (counted.sent.saturating_sub(last.sent) as f64 * 8.0 / seconds) as u64,
            processors: (counted.processor.saturating_sub(last.processor)).as_secs_f64() / seconds,
            memory: machine::resident().unwrap_or(0),
            live_memory: origin.registry.memory().used,
        };
        keep(&mut inner.node, node);
        inner.streams.retain(|path, _| present.contains_key(path));
        for (path, sample) in present {
            keep(inner.streams.entry(path).or_default(), sample);
        }
    }

    /// The samples of the node, the oldest first.
    pub(crate) fn node(&self) -> Vec<NodeSample> {
        self.inner().node.iter().cloned().collect()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use live::PublisherInfo;

    use super::*;
    use crate::config::Config;

    #[tokio::test(start_paused = true)]
    async fn a_sample_is_taken_each_five_seconds_and_kept_for_an_hour() {
        let origin = Arc::new(Origin::new(Config::default()));
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let publisher = origin.registry.publish("x", info, origin.now()).unwrap();
        let _viewing = publisher.stream().watch(live::Delivery::Push);
        let mut sent = 0;
        for _ in 0..11 {
            origin.history.take(&origin, || sent);
            sent += 1000;
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let node = origin.history.node();
        assert_eq!(node.iter().map(|it| it.bits_per_second).collect::<Vec<_>>(), [0, 8000, 8000]);
        assert!(node.iter().all(|it| it.viewers["push"] == 1 && it.viewers["hls"] == 0));
        assert!(node[0].memory > 1 << 20, "{node:?}");
        assert_eq!(origin.history.stream("live/x").unwrap().len(), 3);
        assert_eq!(origin.history.stream("live/y"), None);
        for _ in 0..KEPT {
            tokio::time::advance(EVERY).await;
            origin.history.take(&origin, || sent);
        }
        assert_eq!(origin.history.node().len(), KEPT);
    }
}
