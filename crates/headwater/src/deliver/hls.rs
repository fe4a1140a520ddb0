//! HLS: the multivariant playlist and the tracks' media playlists, RFC 8216bis.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Precondition, Request, Response, Validators};
use live::{Delivery, State, Status, Stream, Track, Window};
use media::Kind;
use protocol::hls::{
    self, Audio, Decision, LowLatency, MediaPlaylist, MultivariantPlaylist, OpenSegment, Part,
    RenditionReport, Rounding, Segment, Skip, Variant,
};

use super::relay::Relays;
use super::segment::{change, first, part_micros, too_far};
use super::{no_media, not_found, seen};
use crate::Origin;
use live::wait::{patience, settled};

const CONTENT_TYPE: &str = "application/vnd.apple.mpegurl";

/// How long the first playlists of a stream wait for a track without a complete segment. Silence
/// that stands in for audio is behind by less than this.
const STRAGGLER: Duration = Duration::from_secs(1);

/// Serves `index.m3u8`. If the stream has just begun, waits until its tracks are known. Answers with
/// 503 while no track is offered, as between two publishers: players take a playlist without variants
/// for a broken one, and do not ask again.
pub(super) async fn multivariant(request: &Request, stream: &Arc<Stream>) -> Response {
    if !settled(stream).await {
        return no_media();
    }
    let state = stream.state();
    if state.tracks.is_empty() {
        return not_found();
    }
    let tracks = offered(&state.tracks);
    if tracks.is_empty() {
        return no_media();
    }
    let version = version(&state);
    let text = stream.manifest(Delivery::Hls, version, || render_multivariant(&tracks).into());
    let etag = format!("{:x}-{version}", stream.since().0);
    answer(request, CONTENT_TYPE, "max-age=1", &etag, text)
}

/// A number that grows with every change of the manifests: of the stream's tracks or state, and
/// when a segment begins or ends. A new part does not change the manifests.
fn version(state: &State) -> u64 {
    let progress = |track: &Arc<Track>| {
        let window = track.window();
        window.newest().map_or(0, |newest| newest.msn)
            + window.next_msn().unwrap_or(0)
            + u64::from(window.ended)
    };
    state.version + state.tracks.iter().map(progress).sum::<u64>()
}

/// Answers with a manifest or playlist. `etag` must differ between streams that had the same name
/// in turn: the versions of each begin at 0.
pub(super) fn answer(
    request: &Request,
    content_type: &str,
    cache_control: &str,
    etag: &str,
    text: Bytes,
) -> Response {
    let validators = Validators { etag: Some(etag), modified: None };
    let (response, cache_control) = match validators.evaluate(request) {
        Precondition::Proceed => {
            (Response::new(200).header("Content-Type", content_type).body(text), cache_control)
        }
        Precondition::NotModified => (Response::new(304), cache_control),
        // This answer concerns only this request.
        Precondition::Failed => (Response::new(412), "no-store"),
    };
    response.header("Cache-Control", cache_control).header("ETag", format_args!("\"{etag}\""))
}

/// The tracks that manifests list: those that are present and have a complete segment. If no track
/// of a kind has one yet, those of this kind that have begun.
pub(super) fn offered(tracks: &[Arc<Track>]) -> Vec<Arc<Track>> {
    let present = |track: &&Arc<Track>| track.is_present() && track.part_limit().is_some();
    let complete = |track: &Arc<Track>| !track.window().segments.is_empty();
    let of_kind = |kind| tracks.iter().filter(present).filter(move |track| track.kind == kind);
    let has_complete = |kind| of_kind(kind).any(complete);
    let listed = |track: &&Arc<Track>| complete(track) || !has_complete(track.kind);
    tracks.iter().filter(present).filter(listed).cloned().collect()
}

/// Whether decoding can start at each of these segments.
pub(super) fn independent<'a>(segments: impl IntoIterator<Item = &'a Arc<live::Segment>>) -> bool {
    segments.into_iter().all(|segment| segment.parts.first().is_none_or(|first| first.independent))
}

fn render_multivariant(tracks: &[Arc<Track>]) -> String {
    let of_kind = |kind| tracks.iter().filter(move |track| track.kind == kind);
    let rate = |track: &Arc<Track>| track.bitrate().unwrap_or((0, 0));
    let codec = |track: &Arc<Track>| track.header().track.codec.rfc6381().into_owned();
    let uri = |track: &Arc<Track>| format!("{}/media.m3u8", track.name);
    if of_kind(Kind::Video).next().is_none() {
        let variants = of_kind(Kind::Audio)
            .map(|track| Variant {
                uri: uri(track),
                bandwidth: rate(track).1.max(1),
                average_bandwidth: Some(rate(track).0),
                codecs: vec![codec(track)],
                ..Variant::default()
            })
            .collect();
        return MultivariantPlaylist { variants, ..Default::default() }.render();
    }
    let audio: Vec<_> = of_kind(Kind::Audio)
        .enumerate()
        .map(|(index, track)| {
            let language = language(track);
            Audio {
                group: "audio".to_owned(),
                name: match &language {
                    Some(language) => format!("{} ({language})", track.name),
                    None => track.name.clone(),
                },
                language,
                default: index == 0,
                channels: track.header().track.codec.audio().map(|(_, channels)| channels),
                uri: Some(uri(track)),
            }
        })
        .collect();
    let loudest = of_kind(Kind::Audio).map(rate).max_by_key(|&(_, peak)| peak).unwrap_or((0, 0));
    let mut audio_codecs: Vec<String> = Vec::new();
    for codec in of_kind(Kind::Audio).map(codec) {
        if !audio_codecs.contains(&codec) {
            audio_codecs.push(codec);
        }
    }
    let variants = of_kind(Kind::Video)
        .map(|track| {
            let (mean, peak) = rate(track);
            Variant {
                uri: uri(track),
                bandwidth: (peak + loudest.1).max(1),
                average_bandwidth: Some(mean + loudest.0),
                codecs: std::iter::once(codec(track)).chain(audio_codecs.iter().cloned()).collect(),
                resolution: track.header().track.codec.resolution(),
                frame_rate: track.frame_rate(),
                audio: (!audio.is_empty()).then(|| "audio".to_owned()),
                ..Variant::default()
            }
        })
        .collect();
    // EXT-X-INDEPENDENT-SEGMENTS would be a promise about future publishers.
    MultivariantPlaylist { audio, variants, ..Default::default() }.render()
}

/// RFC 5646 tag of the track's language; `None` if the source gave no language.
pub(super) fn language(track: &Track) -> Option<String> {
    media::language::tag(track.header().track.language)
}

/// The delivery directives of a request. No player encodes them, but a client may.
fn directives(request: &Request) -> Result<hls::Request, hls::RequestError> {
    let query = request.query().unwrap_or_default();
    // Values of other parameters often are, such as those of CMCD.
    let is_encoded = |parameter: &str| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        name.contains('%') || (name.starts_with("_HLS_") && value.contains('%'))
    };
    if !query.split('&').any(is_encoded) {
        return hls::Request::parse(query);
    }
    let directives = request.query_pairs().filter(|(name, _)| name.starts_with("_HLS_"));
    // A decoded `&` begins no other parameter.
    let decoded = directives.map(|(name, value)| format!("{name}={value}").replace('&', "%26"));
    hls::Request::parse(&decoded.collect::<Vec<_>>().join("&"))
}

/// Serves `TRACK/media.m3u8`, with delivery directives.
pub(super) async fn media(
    request: &Request,
    origin: &Origin,
    relays: &Relays,
    stream: &Arc<Stream>,
    track: &str,
) -> Response {
    let Some(track) = stream.track(track) else { return not_found() };
    let asked = match directives(request) {
        Ok(asked) => asked,
        Err(error) => return Response::text(400, error),
    };
    // A viewer asks for the playlist of each track, but is counted once.
    let blocking = asked.msn.is_some();
    let delivery = if blocking { Delivery::LlHls } else { Delivery::Hls };
    seen(stream, delivery, request, origin);
    track.ask(origin.now());
    if !stream.is_settled() && !settled(stream).await {
        return no_media();
    }

    let mut windows = relays.follow(stream, &track);
    let deadline = tokio::time::Instant::now() + patience(stream);
    let mut alone = !blocking;
    let window = loop {
        let window = windows.borrow_and_update().clone();
        match asked.decide(&state(stream, &track, &window)) {
            // A player that does not support parts gives up on a playlist that has only parts.
            Decision::Now if window.has_listed() || window.ended => {
                if !alone {
                    break window;
                }
                others_begun(stream).await;
                alone = false;
                continue;
            }
            Decision::TooFar => return too_far(),
            Decision::Now | Decision::Wait { .. } => {}
        }
        let changed = match blocking {
            true => change(&mut windows, deadline).await,
            false => first(stream, &track, &mut windows, deadline).await,
        };
        if let Err(response) = changed {
            return response;
        }
    };
    // The track's publisher has left for good and other tracks go on, or nothing of the track is
    // left. If the playlist told the end, the player would end. With 404, it takes another
    // rendition.
    if window.ended && (window.newest().is_none() || stream.state().status == Status::Live) {
        return not_found();
    }
    let rendered = match asked.skip {
        Skip::No => &window.rendered.playlist,
        _ => &window.rendered.delta,
    };
    let (text, sum) = rendered
        .get_or_init(|| {
            let text = Bytes::from(playlist(stream, &track, &window).render(asked.skip));
            let sum = crc32fast::hash(&text);
            (text, sum)
        })
        .clone();
    let cache = if blocking {
        // The response to this request stays the same until the segment leaves the window.
        format!("public, max-age={}", stream.target_duration().as_secs())
    } else {
        "public, max-age=0, must-revalidate".to_owned()
    };
    // A playlist also reports how far other renditions are. Two nodes may have rendered it at two moments, so the window
    // alone does not say which bytes these are.
    let etag = format!("{:x}-{}-{}-{sum:x}", stream.since().0, track.name, window.version);
    answer(request, CONTENT_TYPE, &cache, &etag, text)
}

/// Waits until the playlist of each offered track lists a complete segment, for [`STRAGGLER`] at
/// most.
///
/// hls.js asks for the playlists of audio and video at once. It starts each track at the live edge
/// at the time when its playlist arrives. If audio's playlist arrives later, audio starts later
/// than the video and is missing at the video's start.
async fn others_begun(stream: &Stream) {
    let complete = |window: &Arc<Window>| window.has_listed() || window.ended;
    let state = stream.state();
    if state.tracks.iter().all(|track| complete(&track.window())) {
        return;
    }
    let all = async {
        for track in offered(&state.tracks) {
            // A track that is gone need not be waited for.
            let _ = track.subscribe().wait_for(complete).await;
        }
    };
    let _ = tokio::time::timeout(STRAGGLER, all).await;
}

/// The segments of a window that a playlist shows as complete, and the one that it shows as being
/// made.
///
/// A segment is shown as complete once the next one has a part. The reason is hls.js: if it learns
/// of the last part and of the segment's end together, while it still parses the part before, it
/// takes the segment for buffered. It then never asks for the last part and stands still
/// (docs/player.md). So the two come in different playlists. The exception is the first playlist,
/// for which players of whole segments wait.
struct Told<'a> {
    window: &'a Window,
    /// How many of the window's segments are shown as complete, or have left the playlist.
    complete: usize,
    open: Option<&'a Arc<live::Segment>>,
}

impl<'a> Told<'a> {
    /// Takes constant time: every waiting request calls this at each part.
    fn of(window: &'a Window) -> Self {
        let all = window.segments.len();
        let held = window.open.is_none() && !window.ended && all >= window.unlisted + 2;
        let open = if held { window.segments.back() } else { window.open.as_ref() };
        Self { window, complete: all - usize::from(held), open }
    }

    /// The complete segments in the playlist, oldest first.
    fn listed(&self) -> impl Iterator<Item = &'a Arc<live::Segment>> {
        self.window.listed().take(self.complete.saturating_sub(self.window.unlisted))
    }

    fn last(&self) -> Option<&'a Arc<live::Segment>> {
        self.window.segments.get(self.complete.checked_sub(1)?)
    }
}

fn state(stream: &Stream, track: &Track, window: &Window) -> hls::State {
    let told = Told::of(window);
    let next = || window.next_msn().unwrap_or(track.header().msn);
    hls::State {
        open_msn: told.open.map_or_else(next, |open| open.msn),
        open_parts: told.open.map_or(0, |open| open.parts.len() as u64),
        last_segment_parts: told.last().map_or(0, |last| last.parts.len() as u64),
        part_target_micros: Some(part_micros(stream, track)),
        ended: window.ended,
    }
}

/// Makes the playlist's model of a window.
pub(super) fn playlist(stream: &Stream, track: &Arc<Track>, window: &Window) -> MediaPlaylist {
    let header = track.header();
    let timescale = header.track.timescale;
    let part_limit = u64::from(track.part_limit().unwrap_or(timescale));
    // RFC 8216bis 4.4.3.8: at least three part targets. More if parts are short: a player also
    // needs time for a playlist's round trip and its own timers. The extra tick is there because
    // PART-TARGET is written rounded up.
    let hold_back = (3 * part_limit + 1).max(u64::from(timescale) / 2);
    let told = Told::of(window);
    let first = told.listed().next();
    let target_duration = u32::try_from(stream.target_duration().as_secs()).unwrap_or(u32::MAX);
    let next = window.next_msn().unwrap_or(header.msn);
    let next_part = window.open.as_ref().map_or(0, |open| open.parts.len());
    let reports = stream.state();
    MediaPlaylist {
        timescale,
        target_duration: target_duration.max(1),
        media_sequence: first.map_or(next, |first| first.msn),
        discontinuity_sequence: first
            .or(told.open)
            .map_or(0, |first| first.period - u64::from(first.discontinuity)),
        kind: None,
        // Keyframes that are yet to come may be anywhere.
        independent_segments: false,
        i_frames_only: false,
        low_latency: Some(LowLatency { part_target: part_limit, part_hold_back: hold_back }),
        blocking_reload: true,
        delta_updates: stream.window() >= 6 * stream.target_duration(),
        // hls.js places audio by the difference between its date and the video's. If audio's date
        // is a part of a millisecond too late, hls.js may take a part for buffered that is not, and
        // stand still. So audio's dates are rounded down and the video's up.
        date_rounding: if track.kind == Kind::Video { Rounding::Up } else { Rounding::Down },
        segments: segments(stream, &told, timescale),
        open: told.open.map(|open| OpenSegment {
            map: Some(map(open)),
            date: Some(open.captured.0),
            discontinuity: open.discontinuity,
            parts: parts(open),
        }),
        preload_hint: Some(format!("{next}.{next_part}.m4s")),
        rendition_reports: reports
            .tracks
            .iter()
            .filter(|other| other.name != track.name && other.is_present())
            .filter_map(|other| {
                let window = other.window();
                let newest = window.newest()?;
                Some(RenditionReport {
                    uri: format!("../{}/media.m3u8", other.name),
                    last_msn: newest.msn,
                    last_part: Some(newest.parts.len().saturating_sub(1) as u64),
                })
            })
            .collect(),
        ended: window.ended,
    }
}

/// The complete segments. A segment has its parts if these are still listed: within three target
/// durations of the end (RFC 8216bis 6.2.2). Players count durations, so the time while a publisher was
/// away does not count.
fn segments(stream: &Stream, told: &Told<'_>, timescale: u32) -> Vec<Segment> {
    let recent = 4 * stream.target_duration().as_secs() * u64::from(timescale);
    let open = told.open.map_or(0, |open| open.duration);
    let mut after = told.listed().map(|complete| complete.duration).sum::<u64>() + open;
    let listed = told.listed().map(|complete| {
        after -= complete.duration;
        segment(complete, after <= recent)
    });
    listed.collect()
}

fn segment(segment: &live::Segment, is_recent: bool) -> Segment {
    Segment {
        uri: format!("{}.m4s", segment.msn),
        duration: segment.duration,
        map: Some(map(segment)),
        date: Some(segment.captured.0),
        discontinuity: segment.discontinuity,
        gap: false,
        parts: if is_recent { parts(segment) } else { Vec::new() },
    }
}

fn map(segment: &live::Segment) -> Arc<str> {
    format!("init.{}.mp4", segment.header.msn).into()
}

fn parts(segment: &live::Segment) -> Vec<Part> {
    let name = |(index, part): (usize, &Arc<live::Part>)| Part {
        uri: format!("{}.{index}.m4s", segment.msn),
        duration: u64::from(part.duration),
        independent: part.independent,
        gap: false,
    };
    segment.parts.iter().enumerate().map(name).collect()
}

#[cfg(test)]
pub(super) mod tests;
