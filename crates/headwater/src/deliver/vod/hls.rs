//! Playlists of a title, RFC 8216bis.
//!
//! The playlists do not mention closed captions, as the server does not know whether a bitstream
//! has them.

use std::sync::Arc;

use media::Kind;
use protocol::hls::{
    Audio, IFrames, MediaPlaylist, MultivariantPlaylist, PlaylistType, Rounding, Segment, Skip,
    Subtitles, Variant,
};
use vod::{Text, Title, Track};

const AUDIO: &str = "audio";
const TEXT: &str = "text";

/// `index.m3u8`
pub(super) fn multivariant(title: &Title) -> String {
    let version = title.version;
    let of_kind = |kind| title.tracks.iter().filter(move |track| track.media.kind() == kind);
    let uri = |name: &str| format!("{name}/media.m3u8?v={version}");
    let has_video = of_kind(Kind::Video).next().is_some();
    let audio_tracks: Vec<&Track> = of_kind(Kind::Audio).collect();

    // A title with one audio track and no video has a single variant with that track. Several audio
    // tracks are alternatives in a group.
    let grouped = has_video || audio_tracks.len() > 1;
    let default = audio_tracks.iter().position(|track| track.default).unwrap_or(0);
    let audio: Vec<_> = audio_tracks
        .iter()
        .enumerate()
        .filter(|_| grouped)
        .map(|(index, track)| Audio {
            group: AUDIO.to_owned(),
            name: track.label.clone(),
            language: track.language.clone(),
            default: index == default,
            channels: track.media.codec.audio().map(|(_, channels)| channels),
            uri: (has_video || index != default).then(|| uri(&track.name)),
        })
        .collect();
    let subtitles: Vec<_> = title
        .texts
        .iter()
        .map(|text| Subtitles {
            group: TEXT.to_owned(),
            name: text.label.clone(),
            language: text.language.clone(),
            default: false,
            forced: false,
            uri: uri(&text.name),
        })
        .collect();

    let mut audio_codecs: Vec<String> = Vec::new();
    for track in &audio_tracks {
        let codec = track.media.codec.rfc6381().into_owned();
        if !audio_codecs.contains(&codec) {
            audio_codecs.push(codec);
        }
    }
    let loudest = |rate: fn(&Track) -> u64| audio_tracks.iter().map(|track| rate(track)).max();
    let (peak, mean) = (
        loudest(|track| track.bandwidth.peak).unwrap_or(0),
        loudest(|track| track.bandwidth.average).unwrap_or(0),
    );
    let variant = |uri, peak: u64, mean, codecs| Variant {
        uri,
        bandwidth: peak.max(1),
        average_bandwidth: Some(mean),
        codecs,
        audio: (!audio.is_empty()).then(|| AUDIO.to_owned()),
        subtitles: (!subtitles.is_empty()).then(|| TEXT.to_owned()),
        ..Variant::default()
    };
    // Players switch between variants, so an alternate view cannot be a variant.
    let renditions = || of_kind(Kind::Video).filter(|track| !track.alternate);
    let mut variants: Vec<_> = renditions()
        .map(|track| {
            let own = track.media.codec.rfc6381().into_owned();
            let codecs = std::iter::once(own).chain(audio_codecs.iter().cloned()).collect();
            let rate = track.bandwidth;
            Variant {
                resolution: track.resolution(),
                frame_rate: track.frame_rate.map(|rate| (rate.frames, rate.seconds)),
                ..variant(uri(&track.name), rate.peak + peak, rate.average + mean, codecs)
            }
        })
        .collect();
    if !has_video && let Some(track) = audio_tracks.get(default) {
        variants.push(variant(uri(&track.name), peak, mean, audio_codecs));
    }
    let i_frames = renditions()
        .filter(|track| track.iframe_count() > 0)
        .map(|track| IFrames {
            uri: format!("{}/iframes.m3u8?v={version}", track.name),
            bandwidth: track.iframe_bandwidth.max(1),
            average_bandwidth: None,
            codecs: track.media.codec.rfc6381().into_owned(),
            resolution: track.resolution(),
        })
        .collect();
    // Segments are cut at samples where decoding can start, so they are independent.
    MultivariantPlaylist { independent_segments: true, audio, subtitles, variants, i_frames }
        .render()
}

/// `TRACK/media.m3u8`
pub(super) fn media(title: &Title, track: &Track) -> String {
    let durations: Vec<u64> = track.segments().map(|segment| segment.duration).collect();
    // The target duration is the same in all playlists of a title, as RFC 8216bis 6.2.4 recommends.
    let longest = |track: &Track| {
        let longest = track.segments().map(|segment| segment.duration).max().unwrap_or(0);
        whole_seconds(longest, track.media.timescale)
    };
    let target = title.tracks.iter().map(longest).max().unwrap_or(1);
    let form = Form { suffix: "m4s", prefix: "", header: true, i_frames_only: false };
    render(title, track.media.timescale, target, &durations, &form)
}

/// `TRACK/iframes.m3u8`
pub(super) fn i_frames(title: &Title, track: &Track) -> String {
    let durations: Vec<u64> = track.iframes().map(|frame| frame.duration).collect();
    let longest = durations.iter().copied().max().unwrap_or(0);
    let target = whole_seconds(longest, track.media.timescale);
    let form = Form { suffix: "m4s", prefix: "i.", header: true, i_frames_only: true };
    render(title, track.media.timescale, target, &durations, &form)
}

/// `tN/media.m3u8`
pub(super) fn text(title: &Title, text: &Text) -> String {
    let durations: Vec<u64> = text
        .segments()
        .map(|duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
        .collect();
    let longest = durations.iter().copied().max().unwrap_or(0);
    let form = Form { suffix: "vtt", prefix: "", header: false, i_frames_only: false };
    render(title, 1_000_000, whole_seconds(longest, 1_000_000), &durations, &form)
}

/// How a playlist names its segments, and which kind they are.
struct Form {
    prefix: &'static str,
    suffix: &'static str,
    header: bool,
    i_frames_only: bool,
}

fn render(title: &Title, timescale: u32, target: u32, durations: &[u64], form: &Form) -> String {
    let (version, Form { prefix, suffix, .. }) = (title.version, form);
    let map: Option<Arc<str>> = form.header.then(|| format!("init.mp4?v={version}").into());
    let segments = durations.iter().enumerate().map(|(number, &duration)| Segment {
        uri: format!("{prefix}{number}.{suffix}?v={version}"),
        duration,
        map: map.clone(),
        date: None,
        discontinuity: false,
        gap: false,
        parts: Vec::new(),
    });
    MediaPlaylist {
        timescale,
        target_duration: target,
        media_sequence: 0,
        discontinuity_sequence: 0,
        kind: Some(PlaylistType::Vod),
        independent_segments: true,
        i_frames_only: form.i_frames_only,
        low_latency: None,
        blocking_reload: false,
        delta_updates: false,
        date_rounding: Rounding::Down,
        segments: segments.collect(),
        open: None,
        preload_hint: None,
        rendition_reports: Vec::new(),
        ended: true,
    }
    .render(Skip::No)
}

/// Rounds to the nearest second, at least 1, for EXT-X-TARGETDURATION.
fn whole_seconds(ticks: u64, timescale: u32) -> u32 {
    let scale = u64::from(timescale.max(1));
    u32::try_from((ticks.saturating_add(scale / 2) / scale).max(1)).unwrap_or(u32::MAX)
}
