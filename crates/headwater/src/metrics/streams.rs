//! What comes in of each live stream.

use std::sync::atomic::AtomicU64;

use live::Status;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::ByStream;
use crate::Origin;
use crate::health::Health;
use crate::path::StreamPath;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByTrack {
    stream: String,
    track: String,
}

type OfStreams = Family<ByStream, Gauge<f64, AtomicU64>>;
type OfTracks = Family<ByTrack, Gauge<f64, AtomicU64>>;

/// Collects it, of streams that are not over.
pub(super) fn register(registry: &mut Registry, origin: &Origin) {
    let [bitrate, frames] = [(); 2].map(|()| OfTracks::default());
    let [keyframes, age, offset] = [(); 3].map(|()| OfStreams::default());
    let broken = Family::<ByStream, Counter>::default();
    for stream in origin.registry.streams() {
        if stream.state().status == Status::Ended {
            continue;
        }
        let health = Health::of(&stream, origin.now());
        let name = StreamPath::Live(stream.name()).to_string();
        for (track, bits, rate) in health.tracks {
            let by = ByTrack { stream: name.clone(), track };
            bitrate.get_or_create(&by).set(bits as f64);
            if let Some(rate) = rate {
                frames.get_or_create(&by).set(rate);
            }
        }
        let by = ByStream { stream: name };
        for (family, value) in [
            (&keyframes, health.keyframe_distance),
            (&age, health.part_age),
            (&offset, health.audio_offset),
        ] {
            if let Some(value) = value {
                family.get_or_create(&by).set(value);
            }
        }
        broken.get_or_create(&by).inc_by(health.discontinuities);
    }
    let rate = Unit::Other("bits_per_second".to_owned());
    let help = "Mean bitrate of a track over the window";
    registry.register_with_unit("stream_bitrate", help, rate, bitrate);
    let rate = Unit::Other("frames_per_second".to_owned());
    registry.register_with_unit("stream_rate", "Frames of a video track", rate, frames);
    for (name, help, family) in [
        (
            "stream_keyframe_distance",
            "The longest time between keyframes of the first video track in the window",
            keyframes,
        ),
        ("stream_part_age", "Age of the newest part", age),
        (
            "stream_audio_offset",
            "How far the newest audio is ahead of the newest video, below 0 behind it",
            offset,
        ),
    ] {
        registry.register_with_unit(name, help, Unit::Seconds, family);
    }
    let help = "Times the timeline broke off: the publisher came back, or its clock jumped";
    registry.register("stream_discontinuities", help, broken);
}
