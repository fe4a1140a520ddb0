//! What comes in of each live stream.

use std::sync::atomic::AtomicU64;

use live::{Status, Stream, Track, UnixMicros, Window};
use media::Kind;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::ByStream;
use crate::Origin;
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

/// What comes in of a stream.
struct Health {
    /// The tracks by their names: bits per second, and frames per second of video.
    tracks: Vec<(String, u64, Option<f64>)>,
    /// The longest time between two keyframes of the leading video that the window has, in seconds.
    keyframe_distance: Option<f64>,
    /// Age of the newest part, in seconds.
    part_age: Option<f64>,
    /// How far audio is ahead of video, in seconds. Below 0 it is behind.
    audio_offset: Option<f64>,
    /// How often the timeline has broken off.
    discontinuities: u64,
}

impl Health {
    fn of(stream: &Stream, now: UnixMicros) -> Self {
        let state = stream.state();
        let of_kind = |kind| {
            let mut tracks = state.tracks.iter().filter(|track| track.is_present());
            tracks.find(|track| track.kind == kind)
        };
        let (video, audio) = (of_kind(Kind::Video), of_kind(Kind::Audio));
        let end = |track: &Track| {
            let newest = track.window().newest().map(|segment| segment.end())?;
            Some(newest as f64 / f64::from(track.header().track.timescale.max(1)))
        };
        let (ends_video, ends_audio) = (video.and_then(|it| end(it)), audio.and_then(|it| end(it)));
        let leading = video.or(audio);
        Self {
            tracks: state
                .tracks
                .iter()
                .filter(|track| track.is_present())
                .map(|track| {
                    let frames = track.frame_rate().filter(|_| track.kind == Kind::Video);
                    let frames = frames.map(|(n, d)| f64::from(n) / f64::from(d));
                    (track.name.clone(), track.bitrate().map_or(0, |(mean, _)| mean), frames)
                })
                .collect(),
            keyframe_distance: video.and_then(|track| {
                let timescale = track.header().track.timescale.max(1);
                Some(keyframe_distance(&track.window())? as f64 / f64::from(timescale))
            }),
            part_age: stream.newest_published().map(|at| now.since(at).as_secs_f64()),
            audio_offset: ends_audio.zip(ends_video).map(|(audio, video)| audio - video),
            discontinuities: leading
                .and_then(|track| Some(track.window().newest()?.period))
                .unwrap_or(0),
        }
    }
}

/// The longest time from one keyframe to the next in the newest period of a window, or from the last one to its end;
/// in the track's timescale.
fn keyframe_distance(window: &Window) -> Option<i64> {
    let period = window.newest()?.period;
    let segments = window.all().filter(|segment| segment.period == period);
    let samples = segments.flat_map(|segment| &segment.parts).flat_map(|part| &part.samples);
    let (mut longest, mut before, mut newest) = (0, None, 0);
    for sample in samples {
        newest = sample.dts;
        if sample.sync {
            longest = before.map_or(0, |before| sample.dts - before).max(longest);
            before = Some(sample.dts);
        }
    }
    Some(longest.max(newest - before?))
}
