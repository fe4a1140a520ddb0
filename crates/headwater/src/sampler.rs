//! Takes the samples for [`crate::history`].

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::health::Health;
use crate::history::{NodeSample, StreamSample};
use crate::path::StreamPath;
use crate::sessions::Doing;
use crate::{Origin, machine};

/// From one sample to the next.
const EVERY: Duration = Duration::from_secs(5);

/// Most streams that are sampled: about 10 MiB for all in an hour.
const MOST_STREAMS: usize = 256;

/// The counters at the last sample.
#[derive(Debug, Default)]
pub(crate) struct Sampler(Option<Counted>);

/// Counters that only grow.
#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Instant,
    sent: u64,
    processor: Duration,
}

impl Sampler {
    /// Takes a sample if it is time. `sent` is how many bytes were sent over HTTP. Call it about once a second.
    pub(crate) fn take(&mut self, origin: &Origin, sent: u64) {
        let at = Instant::now();
        if self.0.is_some_and(|last| at.duration_since(last.at) < EVERY) {
            return;
        }
        let others = origin.sessions.figures().bytes.into_iter();
        let by_http = ["push", "mp4", "flv"];
        let others =
            others.filter(|((doing, by), _)| *doing == Doing::Play && !by_http.contains(by));
        let sent = sent + others.map(|(_, bytes)| bytes).sum::<u64>();
        let counted = Counted { at, sent, processor: machine::processor_time() };
        let last = self.0.replace(counted).unwrap_or(counted);
        let seconds = at.duration_since(last.at).as_secs_f64().max(0.001);
        let (at, now) = (origin.wall_clock(), origin.now());
        let (mut viewers, mut streams) = (BTreeMap::<_, u64>::new(), BTreeMap::new());
        let mut all = origin.registry.streams();
        // New streams do not drive out those that have samples.
        all.sort_by_cached_key(|stream| {
            !origin.history.has(&StreamPath::Live(stream.name()).to_string())
        });
        for stream in all {
            let counts = stream.viewers(now);
            for (delivery, count) in counts {
                *viewers.entry(delivery.name()).or_default() += count as u64;
            }
            if streams.len() < MOST_STREAMS {
                let health = Health::of(&stream, now);
                let sample = StreamSample {
                    at,
                    viewers: counts.iter().map(|(_, count)| *count as u64).sum(),
                    bits_per_second: health.bitrate(),
                    frame_rate: health.frame_rate(),
                    keyframe_distance: health.keyframe_distance,
                    audio_offset: health.audio_offset,
                    discontinuities: health.discontinuities,
                };
                streams.insert(StreamPath::Live(stream.name()).to_string(), sample);
            }
        }
        for ((_, delivery), count) in origin.title_viewers.count(now) {
            *viewers.entry(delivery).or_default() += count as u64;
        }
        let busy = counted.processor.saturating_sub(last.processor);
        let node = NodeSample {
            at,
            viewers,
            bits_per_second: (counted.sent.saturating_sub(last.sent) as f64 * 8.0 / seconds) as u64,
            processors: busy.as_secs_f64() / seconds,
            memory: machine::resident().unwrap_or(0),
            live_memory: origin.registry.memory().used,
        };
        origin.history.keep(node, streams);
    }
}

#[cfg(test)]
mod tests {
    use live::PublisherInfo;

    use super::*;
    use crate::config::Config;
    use crate::history::KEPT;

    #[tokio::test(start_paused = true)]
    async fn a_sample_is_taken_each_five_seconds_and_kept_for_an_hour() {
        let origin = Origin::new(Config::default());
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let publisher = origin.registry.publish("x", info, origin.now()).unwrap();
        let _viewing = publisher.stream().watch(live::Delivery::Push);
        let (mut sampler, mut sent) = (Sampler::default(), 0);
        for _ in 0..11 {
            sampler.take(&origin, sent);
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
            sampler.take(&origin, sent);
        }
        assert_eq!(origin.history.node().len(), KEPT);
    }
}
