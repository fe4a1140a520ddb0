//! What comes in of a live stream, and what its publisher should know.

use live::{Status, Stream, Track, UnixMicros, Window};
use media::Kind;
use schemars::JsonSchema;
use serde::Serialize;

/// Viewers wait for a keyframe when they join. With more time between two of them, that is noticed.
const SELDOM: f64 = 4.0;

/// Audio and video that are further apart come from an encoder that has lost its balance, or from a link that has.
const APART: f64 = 1.0;

/// After so long without media, viewers of low latency stand still.
const LATE: f64 = 3.0;

/// What comes in of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Health {
    /// The tracks by their names: bits per second, and frames per second of video.
    pub(crate) tracks: Vec<(String, u64, Option<f64>)>,
    /// The longest time between two keyframes of the leading video that the window has, in seconds.
    pub(crate) keyframe_distance: Option<f64>,
    /// Age of the newest part, in seconds.
    pub(crate) part_age: Option<f64>,
    /// How far audio is ahead of video, in seconds. Below 0 it is behind.
    pub(crate) audio_offset: Option<f64>,
    /// How often the timeline has broken off.
    pub(crate) discontinuities: u64,
    /// Whether the video is in a codec that some browsers do not decode.
    is_rare: bool,
    /// Whether somebody publishes.
    is_live: bool,
}

/// A sentence for who publishes or operates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Advice")]
pub(crate) struct Advice {
    /// How much it matters.
    level: Level,
    /// What is found, what it does to viewers, and what helps.
    text: String,
}

/// How much something matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AdviceLevel")]
#[serde(rename_all = "lowercase")]
enum Level {
    /// Viewers notice it.
    Warning,
    /// It is good to know.
    Note,
}

impl Health {
    pub(crate) fn of(stream: &Stream, now: UnixMicros) -> Self {
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
        let is_rare = video.is_some_and(|track| {
            let codec = track.header().track.codec.rfc6381().into_owned();
            !codec.starts_with("avc")
        });
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
            is_rare,
            is_live: state.status == Status::Live,
        }
    }

    /// Bits per second of all tracks.
    pub(crate) fn bitrate(&self) -> u64 {
        self.tracks.iter().map(|(_, bits, _)| bits).sum()
    }

    /// Frames per second of the first video track.
    pub(crate) fn frame_rate(&self) -> Option<f64> {
        self.tracks.iter().find_map(|(_, _, frames)| *frames)
    }

    /// What the figures mean, in words. Nothing if all is well.
    pub(crate) fn advice(&self) -> Vec<Advice> {
        let warning = |text| Advice { level: Level::Warning, text };
        let note = |text| Advice { level: Level::Note, text };
        let mut advice = Vec::new();
        if let Some(age) = self.part_age.filter(|&age| self.is_live && age > LATE) {
            advice.push(warning(format!(
                "no media for {age:.0} s: viewers wait; look at the encoder and its link"
            )));
        }
        if let Some(distance) = self.keyframe_distance.filter(|&distance| distance > SELDOM) {
            advice.push(warning(format!(
                "keyframes are {distance:.1} s apart: viewers join late; set the encoder's keyframe interval to 2 s"
            )));
        }
        if let Some(offset) = self.audio_offset.filter(|offset| offset.abs() > APART) {
            let (first, last) = if offset > 0.0 { ("audio", "video") } else { ("video", "audio") };
            let offset = offset.abs();
            advice.push(warning(format!(
                "{first} is {offset:.1} s ahead of {last}: viewers buffer more; look at the encoder's load and its \
                 sources"
            )));
        }
        if self.discontinuities > 0 {
            let times = match self.discontinuities {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            };
            advice.push(note(format!(
                "the timeline broke off {times} since the stream began: the publisher came back, or its clock jumped"
            )));
        }
        if self.is_rare {
            advice.push(note(
                "some browsers do not decode this video; H.264 plays everywhere".to_owned(),
            ));
        }
        advice
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use live::{PublisherInfo, Registry, Settings};
    use media::Sample;

    use super::*;

    fn texts(health: &Health) -> Vec<String> {
        health.advice().into_iter().map(|advice| advice.text).collect()
    }

    #[test]
    fn a_stream_with_seldom_keyframes_is_measured_and_explained() {
        let registry = Registry::new(Settings::default());
        let began = UnixMicros(1_700_000_000_000_000);
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = registry.publish("x", info, began).unwrap();
        let video = media::codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
        publisher.track(0, media::Codec::Avc(video), 1000, *b"und", began).unwrap();
        let mut now = began;
        for frame in 0..500_i64 {
            let data = Bytes::from_static(&[0; 500]);
            let sample =
                Sample { dts: frame * 40, cts: 0, duration: 0, sync: frame % 150 == 0, data };
            now = began.after(std::time::Duration::from_millis(frame.unsigned_abs() * 40));
            publisher.sample(0, sample, now).unwrap();
        }
        let health = Health::of(publisher.stream(), now);
        assert_eq!(health.keyframe_distance, Some(6.0));
        assert_eq!(health.frame_rate(), Some(25.0));
        assert!((90_000..115_000).contains(&health.bitrate()), "{health:?}");
        let [text] = &texts(&health)[..] else { panic!("{health:?}") };
        assert!(text.starts_with("keyframes are 6.0 s apart: viewers join late"), "{text}");
        let later = now.after(std::time::Duration::from_secs(9));
        let stands = texts(&Health::of(publisher.stream(), later));
        assert!(stands[0].starts_with("no media for 9 s"), "{stands:?}");
    }

    #[test]
    fn a_stream_that_is_well_gets_no_advice() {
        let well = Health {
            tracks: vec![
                ("v0".to_owned(), 2_000_000, Some(30.0)),
                ("a0".to_owned(), 128_000, None),
            ],
            keyframe_distance: Some(2.0),
            part_age: Some(0.1),
            audio_offset: Some(-0.2),
            is_live: true,
            ..Health::default()
        };
        assert!(well.advice().is_empty());
        assert_eq!((well.bitrate(), well.frame_rate()), (2_128_000, Some(30.0)));
        let odd = Health { audio_offset: Some(-1.5), discontinuities: 2, is_rare: true, ..well };
        let texts = texts(&odd);
        assert!(texts[0].starts_with("video is 1.5 s ahead of audio"), "{texts:?}");
        assert!(texts[1].contains("broke off 2 times") && texts[2].contains("H.264"), "{texts:?}");
    }
}
