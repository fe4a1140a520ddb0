//! DASH: the manifest of a live stream, ISO/IEC 23009-1, low latency.
//!
//! Each run between discontinuities is a period. Video tracks that are cut at the same places share
//! an adaptation set; other video tracks have further sets. Each audio track has a set of its own.
//! A timeline lists the segments.
//!
//! If keyframes are regular, the manifest also lists the segment being made and the one after it,
//! with the durations that they will have. Then a player can ask for a segment before a new
//! manifest names it, and gets the parts as they are published (`availabilityTimeOffset`, chunked
//! transfer). If keyframes are irregular, nothing is foretold. Players trust the manifest, so some
//! would ask for segments that never exist, or skip segments that exist. The segment being made is
//! then listed with its duration so far, once that is [`GLIMPSE`], and players stay a little
//! further from the live edge.
//!
//! Segments are named by their time: ffmpeg's player, up to 5.1 at least, loses its place in
//! numbered timelines that do not begin at 0.

mod entrance;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use live::{Delivery, Segment, State, Status, Stream, Track, Window};
use media::Kind;
use protocol::dash::{
    self, AdaptationSet, Address, Audio, Content, Live, Manifest, Period, PlaybackRate,
    Presentation, ProducerReferenceTime, Representation, Role, SegmentTemplate, ServiceDescription,
    UtcTiming, Video,
};

use self::entrance::Entrance;
use super::hls::{answer, independent, language, offered};
use super::relay::Relays;
use super::segment::first;
use super::{no_media, not_found, seen};
use crate::Origin;
use live::wait::{patience, settled};

/// Segments of two renditions start at the same keyframe if their starts are at most this many
/// milliseconds apart.
const SAME: u64 = 60;

/// A segment whose end is not foretold is listed once it has lasted this long.
///
/// GStreamer, up to 1.22 at least, passes over a segment that is shorter than the start time of the
/// first listed segment: `gst_mpd_client_stream_seek` adds that time to the one it looks for. In a
/// stream's first minute that time is one second, because the timeline begins there. When the request for a
/// segment ends, the player looks for that segment in the list. If it passes over the segment there, it leaves out the
/// next one, or gets one twice.
const GLIMPSE: Duration = Duration::from_millis(1200);

/// A period may begin this many milliseconds before the end of the one before, if that one was
/// dated too late. Players then leave out the end of the period before: it lasts until the next
/// begins (ISO/IEC 23009-1 5.3.2.1). Segments usually last longer, so no whole segment is left out.
const OVERLAP: u64 = 1000;

/// How long a manifest may wait for media at the place where a new player begins.
const HOLDS: Duration = Duration::from_secs(5);

/// How long such a manifest waits before it looks again. All players of a stream may wait at once, so this
/// must not cost more than their usual requests.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Serves `manifest.mpd`. If the stream has just begun, waits until its tracks are known.
pub(super) async fn manifest(
    request: &Request,
    origin: &Origin,
    relays: &Relays,
    stream: &Arc<Stream>,
) -> Response {
    if !settled(stream).await {
        return no_media();
    }
    // Until a first segment is complete, the duration of the next is not known. Nobody waits for a
    // rendition without a segment once another has one.
    let deadline = tokio::time::Instant::now() + patience(stream);
    for track in offered(&stream.state().tracks) {
        let mut windows = relays.follow(stream, &track);
        while !windows.borrow_and_update().has_listed() && !windows.borrow().ended {
            if let Err(response) = first(stream, &track, &mut windows, deadline).await {
                return response;
            }
            let others = offered(&stream.state().tracks);
            if !others.iter().any(|other| other.name == track.name) {
                break;
            }
        }
    }
    seen(stream, Delivery::Dash, request, origin);
    let deadline = tokio::time::Instant::now() + HOLDS;
    let mut asked = None;
    let (state, entrance) = loop {
        let state = stream.state();
        if state.tracks.is_empty() {
            return not_found();
        }
        // Players take a manifest without representations for a broken one.
        if listed(&state.tracks).is_empty() {
            return no_media();
        }
        let entrance = Entrance::at(stream, &state, origin.wall_clock().0 / 1000);
        let asked = asked.get_or_insert(entrance);
        let waits = entrance.is_worth_a_wait(asked) && state.status == Status::Live;
        if !waits || tokio::time::Instant::now() >= deadline {
            break (state, entrance);
        }
        // Either media come, or time passes until the new period is old enough.
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    let version = version(&state, &entrance);
    let text = stream
        .manifest(Delivery::Dash, version, || model(stream, &state, &entrance).render().into());
    let etag = format!("{:x}-{version:x}", stream.since().0);
    let cache = cache_control(update_period(stream.settings(), entrance.regular));
    answer(request, "application/dash+xml", &cache, &etag, text)
}

/// The tracks that the manifest lists: those that are offered, and audio tracks that their publisher
/// no longer sends and that silence stands in for. dash.js, up to 5.2 at least, keeps the buffer of
/// audio when a period without audio follows, and waits for audio for ever. Such a track is removed
/// once no viewer has asked for it for a while.
fn listed(tracks: &[Arc<Track>]) -> Vec<Arc<Track>> {
    let mut listed = offered(tracks);
    let gone = tracks.iter().filter(|track| is_silenced(track, tracks));
    let complete = gone.filter(|track| !track.window().segments.is_empty());
    listed.extend(complete.cloned());
    listed
}

/// Whether silence stands in for a track that its publisher no longer sends, and goes on to be made. It is
/// not made beside audio alone, nor where the video is far ahead: players would wait for it for ever.
fn is_silenced(track: &Track, tracks: &[Arc<Track>]) -> bool {
    track.is_silenced() && track.goes_on_beside(tracks)
}

/// Whether keyframes are regular: the end of each offered track's newest segment is foretold.
///
/// The end of the first segment of a period is never foretold. While this segment is the only one,
/// TARGETDURATION tells whether the publisher is regular. This matters because players keep the
/// latency of their first manifest.
fn is_regular(stream: &Stream, state: &State) -> bool {
    let publisher = stream.target_duration() == stream.settings().target_duration;
    let foretold = |track: &Arc<Track>| {
        let window = track.window();
        let mut newest = window.listed().chain(&window.open).rev();
        newest.next().is_some_and(|last| {
            let alone = newest.next().is_none_or(|before| before.period != last.period);
            last.expected_end.is_some() || publisher && alone
        })
    };
    offered(&state.tracks).iter().all(foretold)
}

/// Identifies the content of the manifest: manifests with the same number are the same. If nothing
/// is foretold, the manifest lists the segment being made and so changes with each part.
fn version(state: &State, entrance: &Entrance) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.version.hash(&mut hasher);
    (entrance.sends, entrance.regular, entrance.held, entrance.farther).hash(&mut hasher);
    for track in &state.tracks {
        let window = track.window();
        let newest = window.newest();
        (track.is_present(), is_silenced(track, &state.tracks)).hash(&mut hasher);
        newest.map(|newest| newest.msn).hash(&mut hasher);
        (window.next_msn(), window.ended).hash(&mut hasher);
        let parts = newest.filter(|newest| !is_foretold(newest)).map(|s| s.parts.len());
        let frame_rate = track.frame_rate().filter(|_| track.kind == Kind::Video);
        (parts, frame_rate).hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether the end of a segment that is being made is foretold. If it has lasted longer than that, it is not.
fn is_foretold(segment: &Segment) -> bool {
    segment.expected_end.is_some_and(|end| end >= segment.presented_end())
}

/// When the content of the manifest became what it is, in microseconds since 1970. All nodes of a cluster say the
/// same of the same content, so this is when the media came that changed it, and not when somebody asked. Media of
/// two tracks may come within a millisecond, and a manifest may be asked for between them.
fn publish_time(state: &State, entrance: &Entrance) -> u64 {
    let came = |track: &Arc<Track>| {
        let window = track.window();
        let newest = window.newest()?;
        // A foretold segment is listed with its first part.
        let is_made = window.open.is_some() && is_foretold(newest);
        let part = if is_made { newest.parts.first() } else { newest.parts.last() };
        Some(part?.published.0)
    };
    let came = state.tracks.iter().filter_map(came).max().unwrap_or(state.epoch.0);
    came + entrance.waited() * 1000
}

/// The shortest time between changes of the manifest, which the manifest states. If nothing is
/// foretold, a player learns of a segment only from the manifest.
fn update_period(settings: &live::Settings, regular: bool) -> Duration {
    if regular { settings.segment_target / 2 } else { settings.segment_target / 4 }
}

/// A manifest is valid for `minimumUpdatePeriod` (ISO/IEC 23009-1 5.3.1.2), so shared caches may
/// keep it for that many whole seconds. Otherwise the origin would serve each player's manifests
/// itself. Players request the manifest again when they need a new one.
fn cache_control(update_period: Duration) -> String {
    format!("max-age=0, s-maxage={}, must-revalidate", update_period.as_secs())
}

/// Whether the broadcast is over.
fn has_ended(state: &State) -> bool {
    state.tracks.iter().all(|track| track.window().ended)
}

/// What a manifest lists of a window.
trait Manifested {
    /// The segment being made, if it is listed.
    fn open_manifested(&self) -> Option<&Arc<Segment>>;
    /// The newest listed segment.
    fn newest_manifested(&self) -> Option<&Arc<Segment>>;
}

impl Manifested for Window {
    fn open_manifested(&self) -> Option<&Arc<Segment>> {
        self.open.as_ref().filter(|open| {
            let lasted = open.presented_end() - open.presents;
            let timescale = open.header.track.timescale;
            let least = live::rescale(GLIMPSE.as_millis() as i64, 1000, timescale);
            open.expected_end.is_some() || lasted >= least || !self.has_listed()
        })
    }

    fn newest_manifested(&self) -> Option<&Arc<Segment>> {
        self.open_manifested().or_else(|| self.listed().next_back())
    }
}

/// A presentation time of a segment's track, in milliseconds since `availabilityStartTime`. An epoch that
/// is not the stream's first moves it by the difference.
fn on_clock(state: &State, segment: &Segment, ticks: i64) -> i64 {
    let first = i64::try_from(state.epoch.0).unwrap_or(i64::MAX);
    let moved = segment.epoch().saturating_sub(first) / 1000;
    live::rescale(ticks, segment.header.track.timescale, 1000).saturating_add(moved)
}

/// The segments of one track that belong to one period.
struct Run {
    track: Arc<Track>,
    segments: Vec<Arc<Segment>>,
    /// Foretold end of the newest segment; `None` in a period that is over.
    expected_end: Option<i64>,
    /// Whether the last of `segments` is being made.
    open: bool,
}

fn model(stream: &Stream, state: &State, entrance: &Entrance) -> Manifest {
    let settings = stream.settings();
    let regular = entrance.regular;
    let ended = has_ended(state);
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let millis = |duration: Duration| micros(duration) / 1000;

    let mut periods: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    let listed = if ended { state.tracks.clone() } else { listed(&state.tracks) };
    for track in &listed {
        for (period, mut run) in runs(track) {
            run.expected_end = run.expected_end.filter(|_| entrance.sends);
            periods.entry(period).or_default().push(run);
        }
    }
    if entrance.held {
        periods.pop_last();
    }
    let latency = latency_target(settings, regular) + entrance.farther;
    let (periods, end) = self::periods(state, periods);
    let presentation = if ended {
        Presentation::Static { duration: end }
    } else {
        Presentation::Dynamic(Live {
            availability_start_time: state.epoch.0 / 1000,
            publish_time: publish_time(state, entrance),
            minimum_update_period: Some(millis(update_period(settings, regular))),
            time_shift_buffer_depth: Some(millis(stream.window())),
            suggested_presentation_delay: Some(latency),
        })
    };
    Manifest {
        presentation,
        profiles: vec![dash::PROFILE_LIVE.to_owned(), dash::PROFILE_LOW_LATENCY.to_owned()],
        min_buffer_time: millis(settings.segment_target),
        // Segments exceed the target duration by less than rounding to seconds takes away.
        max_segment_duration: Some(millis(stream.target_duration()) + 500),
        service_description: Some(ServiceDescription {
            latency_target: latency,
            latency_min: Some(latency / 2),
            latency_max: Some(latency * 4),
            playback_rate: Some(PlaybackRate { min: 96, max: 104 }),
        }),
        periods,
        utc_timing: vec![UtcTiming {
            scheme: dash::UTC_HTTP_ISO.to_owned(),
            value: "/api/v1/time".to_owned(),
        }],
    }
}

/// How far behind live a DASH player should be, in milliseconds. A player learns of a segment from
/// the manifest, so it needs a little more than parts alone would require. If it learns of a
/// segment only after its start, it must be able to wait for the next manifest.
fn latency_target(settings: &live::Settings, regular: bool) -> u64 {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let steady = (5 * millis(settings.part_target)).max(1000);
    if regular { steady } else { steady + 4 * millis(update_period(settings, false)) }
}

/// The periods, oldest first, and the end of the newest. A period starts where its media do. If its
/// epoch is not the stream's first, its start is moved by the difference, so that times computed
/// from `availabilityStartTime` agree with its dates.
fn periods(state: &State, runs: BTreeMap<u64, Vec<Run>>) -> (Vec<Period>, u64) {
    let (mut begun, mut end) = (0, 0);
    let first = i64::try_from(state.epoch.0).unwrap_or(i64::MAX);
    let mut periods = Vec::with_capacity(runs.len());
    for (number, runs) in runs {
        let media = media_start(&runs);
        let epoch = runs.iter().find_map(|run| run.segments.first()).map_or(first, |s| s.epoch());
        let dated = media.saturating_add_signed(epoch.saturating_sub(first) / 1000);
        // If the wall clock was set far back, the period is late as long as the one before is
        // listed: periods come one after the other.
        let follows = dated >= begun && dated.saturating_add(OVERLAP) >= end;
        let start = if follows { dated } else { end };
        begun = start;
        let ends = runs.iter().filter_map(|run| {
            let last = run.segments.last()?;
            Some(ticks_to_millis(last.presented_end(), last.header.track.timescale))
        });
        end = start + ends.max().unwrap_or(media).saturating_sub(media);
        periods.push(period(number, &runs, start, media));
    }
    (periods, end)
}

fn runs(track: &Arc<Track>) -> BTreeMap<u64, Run> {
    let window = track.window();
    let mut runs: BTreeMap<u64, Run> = BTreeMap::new();
    let open = window.open_manifested();
    for segment in window.listed().chain(open) {
        let run = runs.entry(segment.period).or_insert_with(|| Run {
            track: Arc::clone(track),
            segments: Vec::new(),
            expected_end: None,
            open: false,
        });
        run.segments.push(Arc::clone(segment));
    }
    if let Some(last) = runs.values_mut().next_back()
        && !window.ended
    {
        last.open = open.is_some();
        let newest = last.segments.last();
        // If the segment has lasted longer than foretold, its foretold end is void.
        last.expected_end =
            newest.filter(|newest| is_foretold(newest)).and_then(|newest| newest.expected_end);
    }
    runs
}

/// Where the media of a period start, in milliseconds of stream time. This stays the same while the
/// period lasts, although its first segments leave.
fn media_start(runs: &[Run]) -> u64 {
    let starts = runs.iter().filter_map(|run| {
        let first = run.segments.first()?;
        Some(ticks_to_millis(first.period_start, first.header.track.timescale))
    });
    starts.min().unwrap_or(0)
}

fn period(number: u64, runs: &[Run], start: u64, media: u64) -> Period {
    let of_kind = |kind| runs.iter().filter(move |run| run.track.kind == kind);
    let mut sets = Vec::new();
    // Players switch renditions within a set if segments are aligned. Renditions with keyframes at
    // other times have sets of their own.
    let mut aligned: Vec<Vec<&Run>> = Vec::new();
    for run in of_kind(Kind::Video) {
        match aligned.iter_mut().find(|set| set.iter().all(|other| is_aligned(run, other))) {
            Some(set) => set.push(run),
            None => aligned.push(vec![run]),
        }
    }
    for (index, runs) in aligned.iter().enumerate() {
        let video: Vec<_> = runs.iter().filter_map(|run| representation(run, media)).collect();
        if video.is_empty() {
            continue;
        }
        let Some(reference) = runs.first() else { continue };
        let mut set = set(reference, Content::Video, video, None, index == 0);
        set.starts_with_sap = runs.iter().all(|run| independent(&run.segments));
        sets.push(set);
    }
    for (index, run) in of_kind(Kind::Audio).enumerate() {
        let Some(audio) = representation(run, media) else { continue };
        sets.push(set(run, Content::Audio, vec![audio], language(&run.track), index == 0));
    }
    Period { id: format!("p{number}"), start, duration: None, adaptation_sets: sets }
}

/// An adaptation set. A set keeps its `id` while other sets come and go (ISO/IEC 23009-1 5.3.3.2), because a player
/// finds the set that it plays by this number. The main video has 1, whichever of its renditions are there. Other
/// sets have a number that follows from their first track.
fn set(
    first: &Run,
    content: Content,
    representations: Vec<Representation>,
    language: Option<String>,
    main: bool,
) -> AdaptationSet {
    let id = match content {
        Content::Video if main => 1,
        _ => 1 + first.track.header().track.id,
    };
    let producer_reference_time = first.segments.last().map(|newest| ProducerReferenceTime {
        id,
        wall_clock_time: newest.captured.0 / 1000,
        presentation_time: newest.presents.unsigned_abs(),
    });
    AdaptationSet {
        id,
        content,
        language,
        label: None,
        role: main.then_some(Role::Main),
        producer_reference_time,
        aligned: true,
        // Audio can be decoded from any frame on. For video, the caller decides.
        starts_with_sap: content == Content::Audio,
        representations,
    }
}

/// Whether both change segments at the same times. Only the time that both cover counts.
fn is_aligned(a: &Run, b: &Run) -> bool {
    !cuts_through(a, b) && !cuts_through(b, a)
}

/// Whether a segment of `run` ends, and the next one begins, in the midst of a segment of `other`. A segment without
/// one before it does not count: its publisher came or came back at any time, and the sets must not change for that.
fn cuts_through(run: &Run, other: &Run) -> bool {
    let millis = |s: &Segment, ticks| ticks_to_millis(ticks, s.header.track.timescale);
    let begins = |s: &Segment| millis(s, s.presents);
    let ends = |s: &Segment| millis(s, s.presented_end());
    run.segments.windows(2).any(|pair| {
        let cut = begins(&pair[1]);
        let goes_on = cut <= ends(&pair[0]) + SAME;
        let later = other.segments.partition_point(|s| begins(s) + SAME < cut);
        let beside = later.checked_sub(1).and_then(|at| other.segments.get(at));
        goes_on && beside.is_some_and(|s| cut + SAME < ends(s))
    })
}

fn representation(run: &Run, period_start: u64) -> Option<Representation> {
    let first = run.segments.first()?;
    let described = &first.header.track;
    let codec = &described.codec;
    let timescale = described.timescale;
    // A segment that was foretold stays listed when its publisher is silent: see [`GLIMPSE`].
    let glimpse = live::rescale(GLIMPSE.as_millis() as i64, 1000, timescale);
    let lasts_until = |segment: &Segment| {
        let least = segment.expected_end.filter(|_| run.open);
        let least = least.map_or(0, |foretold| foretold.min(segment.presents + glimpse));
        segment.presented_end().max(least)
    };
    // In presentation time. Each segment lasts until the first sample of the next is presented.
    let mut segments: Vec<_> = run
        .segments
        .iter()
        .enumerate()
        .map(|(index, segment)| {
            let next = run.segments.get(index + 1).map(|next| next.presents);
            let end = next.unwrap_or_else(|| lasts_until(segment));
            dash::Segment {
                start: segment.presents.unsigned_abs(),
                duration: (end - segment.presents).max(1).unsigned_abs(),
            }
        })
        .collect();
    if let (Some(end), Some(last)) = (run.expected_end, segments.last_mut()) {
        let foretold = end.unsigned_abs().saturating_sub(last.start).max(1);
        if run.open {
            last.duration = foretold;
        }
        // If a segment ended elsewhere than foretold, the next segment's duration is unknown.
        if last.duration == foretold {
            segments.push(dash::Segment { start: end.unsigned_abs(), duration: foretold });
        }
    }
    let newest = segments.last().map_or(0, |last| last.duration);
    // A segment is available as soon as its first part is: this much before it is complete.
    let offset = run
        .track
        .part_limit()
        .map(|part| newest.saturating_sub(u64::from(part)) * 1000 / u64::from(timescale));
    Some(Representation {
        id: run.track.name.clone(),
        bandwidth: run.track.bitrate().map_or(1, |(_, peak)| peak.max(1)),
        codecs: codec.rfc6381().into_owned(),
        video: codec.resolution().map(|(width, height)| Video {
            width,
            height,
            frame_rate: run.track.frame_rate(),
        }),
        audio: codec.audio().map(|(sample_rate, channels)| Audio { sample_rate, channels }),
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
mod tests;
