//! DASH: the manifest of a live stream, ISO/IEC 23009-1, low latency.
//!
//! A period for each run between discontinuities, an adaptation set of all video tracks and one
//! for each audio track. Segments are listed by their timeline, the one being made and the one
//! after it with the duration they will most likely have: a player need not learn of a segment from
//! a new manifest before it can ask for it, and receives its parts as they are published
//! (`availabilityTimeOffset`, chunked transfer). They are named by their time: ffmpeg's player, up
//! to 5.1 at least, loses its place in numbered timelines that do not begin at 0.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use live::{Delivery, Segment, Stream, Track};
use media::Kind;
use protocol::dash::{
    self, AdaptationSet, Address, Audio, Content, Live, Manifest, Period, PlaybackRate,
    Presentation, ProducerReferenceTime, Representation, Role, SegmentTemplate, ServiceDescription,
    UtcTiming, Video,
};

use super::edge::Edges;
use super::hls::{answer, independent, language, ready, version};
use super::segment::change;
use super::{patience, seen};
use crate::Origin;
use crate::http::{Request, Response};

/// `manifest.mpd`. Waits for a stream that has just begun until its tracks are known.
pub(super) async fn manifest(
    request: &Request,
    origin: &Origin,
    edges: &Edges,
    stream: &Arc<Stream>,
) -> Response {
    if !ready(stream).await {
        return Response::text(503, "the stream has no media yet").header("Retry-After", 1);
    }
    // Before the first segment is complete there is nothing to guess the next one's duration from.
    let tracks = stream.state().tracks.clone();
    let deadline = tokio::time::Instant::now() + patience(stream);
    for track in tracks.iter().filter(|track| track.is_present()) {
        let mut windows = edges.follow(track);
        while windows.borrow_and_update().segments.is_empty() && !windows.borrow().ended {
            if let Err(response) = change(&mut windows, deadline).await {
                return response;
            }
        }
    }
    seen(stream, Delivery::Dash, request, origin);
    let version = version(&stream.state());
    let text = stream
        .manifest(Delivery::Dash, version, || model(stream, origin.now().0 / 1000).render().into());
    let etag = format!("{:x}-{version}", stream.since().0);
    answer(request, "application/dash+xml", &cache_control(stream.settings()), &etag, text)
}

/// From one change of the manifest to the next at least, as it says itself.
fn update_period(settings: &live::Settings) -> Duration {
    settings.segment_target / 2
}

/// A manifest holds for `minimumUpdatePeriod` (ISO/IEC 23009-1 5.3.1.2), so caches may share it for as
/// many whole seconds: were it not for that, each player's manifests would all come from the origin.
/// Players ask again when they want another.
fn cache_control(settings: &live::Settings) -> String {
    format!("max-age=0, s-maxage={}, must-revalidate", update_period(settings).as_secs())
}

/// The segments of one track that belong to one period.
struct Run {
    track: Arc<Track>,
    segments: Vec<Arc<Segment>>,
    /// Duration that the segment being made is expected to have, and the one after it; none in a
    /// period that is over.
    expected: Option<u64>,
    /// Whether the last of `segments` is being made.
    open: bool,
}

fn model(stream: &Stream, now: u64) -> Manifest {
    let settings = stream.settings();
    let state = stream.state();
    let ended = state.tracks.iter().all(|track| track.window().ended);
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let millis = |duration: Duration| micros(duration) / 1000;

    let mut periods: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    for track in &state.tracks {
        for (period, run) in runs(track) {
            periods.entry(period).or_default().push(run);
        }
    }
    let latency = latency_target(settings);
    let end = state.tracks.iter().filter_map(|track| {
        let window = track.window();
        let newest = window.newest()?;
        Some(ticks_to_millis(newest.end(), newest.header.track.timescale))
    });
    let presentation = if ended {
        Presentation::Static { duration: end.max().unwrap_or(0) }
    } else {
        Presentation::Dynamic(Live {
            availability_start_time: state.epoch.0 / 1000,
            publish_time: now,
            minimum_update_period: Some(millis(update_period(settings))),
            time_shift_buffer_depth: Some(millis(settings.window)),
            suggested_presentation_delay: Some(latency),
        })
    };
    Manifest {
        presentation,
        profiles: vec![dash::PROFILE_LIVE.to_owned(), dash::PROFILE_LOW_LATENCY.to_owned()],
        min_buffer_time: millis(settings.segment_target),
        max_segment_duration: Some(millis(settings.target_duration)),
        service_description: Some(ServiceDescription {
            latency_target: latency,
            latency_min: Some(latency / 2),
            latency_max: Some(latency * 4),
            playback_rate: Some(PlaybackRate { min: 96, max: 104 }),
        }),
        periods: periods.into_iter().map(|(number, runs)| period(number, &runs)).collect(),
        utc_timing: vec![UtcTiming {
            scheme: dash::UTC_HTTP_ISO.to_owned(),
            value: "/api/v1/time".to_owned(),
        }],
    }
}

/// How far behind live a DASH player should be, in milliseconds: it learns of a segment from the
/// manifest, so it needs a little more than parts alone would ask for.
fn latency_target(settings: &live::Settings) -> u64 {
    let part = u64::try_from(settings.part_target.as_millis()).unwrap_or(u64::MAX);
    (5 * part).max(1000)
}

fn runs(track: &Arc<Track>) -> BTreeMap<u64, Run> {
    let window = track.window();
    let mut runs: BTreeMap<u64, Run> = BTreeMap::new();
    for segment in window.listed().chain(&window.open) {
        let run = runs.entry(segment.period).or_insert_with(|| Run {
            track: Arc::clone(track),
            segments: Vec::new(),
            expected: None,
            open: false,
        });
        run.segments.push(Arc::clone(segment));
    }
    if let Some(last) = runs.values_mut().next_back()
        && !window.ended
    {
        last.open = window.open.is_some();
        // The complete segment before tells; in the first one, what there is of it.
        let complete = last.segments.iter().rev().nth(usize::from(last.open));
        let known = complete.or(last.segments.last()).map_or(0, |segment| segment.duration);
        let so_far = window.open.as_ref().map_or(0, |open| open.duration);
        last.expected = Some(known.max(so_far));
    }
    runs
}

fn period(number: u64, runs: &[Run]) -> Period {
    let start = runs
        .iter()
        .filter_map(|run| {
            let first = run.segments.first()?;
            // It must not change while the period lasts, though its first segments leave.
            Some(ticks_to_millis(first.period_start, first.header.track.timescale))
        })
        .min()
        .unwrap_or(0);
    let of_kind = |kind| runs.iter().filter(move |run| run.track.kind == kind);
    let mut sets = Vec::new();
    let video: Vec<_> = of_kind(Kind::Video).filter_map(|run| representation(run, start)).collect();
    if !video.is_empty() {
        let reference = of_kind(Kind::Video).next();
        let mut set = set(1, Content::Video, video, None, true, reference);
        set.starts_with_sap = of_kind(Kind::Video).all(|run| independent(&run.segments));
        sets.push(set);
    }
    for (index, run) in of_kind(Kind::Audio).enumerate() {
        let Some(audio) = representation(run, start) else { continue };
        let id = u32::try_from(index + 2).unwrap_or(u32::MAX);
        sets.push(set(
            id,
            Content::Audio,
            vec![audio],
            language(&run.track),
            index == 0,
            Some(run),
        ));
    }
    Period { id: format!("p{number}"), start, duration: None, adaptation_sets: sets }
}

fn set(
    id: u32,
    content: Content,
    representations: Vec<Representation>,
    language: Option<String>,
    main: bool,
    reference: Option<&Run>,
) -> AdaptationSet {
    let producer_reference_time =
        reference.and_then(|run| run.segments.last()).map(|newest| ProducerReferenceTime {
            id,
            wall_clock_time: newest.captured.0 / 1000,
            presentation_time: newest.start.unsigned_abs(),
        });
    AdaptationSet {
        id,
        content,
        language,
        label: None,
        role: main.then_some(Role::Main),
        producer_reference_time,
        // Publishers' keyframes cut, and renditions may have different publishers.
        aligned: false,
        // Sound decodes from any frame on; what video does is for the caller to say.
        starts_with_sap: content == Content::Audio,
        representations,
    }
}

fn representation(run: &Run, period_start: u64) -> Option<Representation> {
    let first = run.segments.first()?;
    let described = &first.header.track;
    let codec = &described.codec;
    let timescale = described.timescale;
    let mut segments: Vec<_> = run
        .segments
        .iter()
        .map(|segment| dash::Segment {
            start: segment.start.unsigned_abs(),
            duration: segment.duration,
        })
        .collect();
    if let (Some(duration), Some(last)) = (run.expected, segments.last_mut()) {
        if run.open {
            last.duration = duration;
        }
        let start = last.start + last.duration;
        segments.push(dash::Segment { start, duration });
    }
    // Available as soon as its first part is: that much before it is complete.
    let offset = run.track.part_limit().and_then(|part| {
        let whole = run.expected.or(run.segments.last().map(|segment| segment.duration))?;
        Some(whole.saturating_sub(u64::from(part)) * 1000 / u64::from(timescale))
    });
    Some(Representation {
        id: run.track.name.clone(),
        bandwidth: run.track.bitrate().map_or(1, |(_, peak)| peak.max(1)),
        codecs: codec.rfc6381().into_owned(),
        video: codec.resolution().map(|(width, height)| Video {
            width,
            height,
            frame_rate: run.track.frame_rate(),
        }),
        audio: codec.sound().map(|(sample_rate, channels)| Audio { sample_rate, channels }),
        address: Address::Template(SegmentTemplate {
            timescale,
            initialization: format!("$RepresentationID$/init.{}.mp4", first.header.msn),
            media: "$RepresentationID$/t$Time$.m4s".to_owned(),
            start_number: None,
            presentation_time_offset: period_start * u64::from(timescale) / 1000,
            availability_time_offset: offset,
            segments,
        }),
    })
}

fn ticks_to_millis(ticks: i64, timescale: u32) -> u64 {
    live::rescale(ticks, timescale, 1000).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_share_a_manifest_for_no_longer_than_it_says_that_it_holds() {
        let of = |segment_target| {
            cache_control(&live::Settings { segment_target, ..live::Settings::default() })
        };
        assert_eq!(of(Duration::from_secs(2)), "max-age=0, s-maxage=1, must-revalidate");
        assert_eq!(of(Duration::from_secs(6)), "max-age=0, s-maxage=3, must-revalidate");
        assert_eq!(of(Duration::from_secs(1)), "max-age=0, s-maxage=0, must-revalidate");
    }
}
