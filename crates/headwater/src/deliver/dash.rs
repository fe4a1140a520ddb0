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

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use live::{Delivery, Segment, State, Stream, Track};
use media::Kind;
use protocol::dash::{
    self, AdaptationSet, Address, Audio, Content, Live, Manifest, Period, PlaybackRate,
    Presentation, ProducerReferenceTime, Representation, Role, SegmentTemplate, ServiceDescription,
    UtcTiming, Video,
};

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
/// stream's first minute that time is one second, because the timeline begins there.
const GLIMPSE: Duration = Duration::from_millis(1200);

/// A period may begin this many milliseconds before the end of the one before, if that one was
/// dated too late. Players then leave out the end of the period before: it lasts until the next
/// begins (ISO/IEC 23009-1 5.3.2.1). Segments usually last longer, so no whole segment is left out.
const OVERLAP: u64 = 1000;

/// A period without audio, or without video, waits this long for it, in time of the media. Silence
/// stands in for missing audio sooner. dash.js, up to 5.2 at least, plays a period to its end with
/// the kinds of media that it had when dash.js first read of it.
const STRAGGLES: Duration = Duration::from_secs(4);

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
        while windows.borrow_and_update().segments.is_empty() && !windows.borrow().ended {
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
    let state = stream.state();
    if state.tracks.is_empty() {
        return not_found();
    }
    let version = version(&state);
    let now = origin.wall_clock().0 / 1000;
    let text =
        stream.manifest(Delivery::Dash, version, || model(stream, &state, now).render().into());
    let etag = format!("{:x}-{version:x}", stream.since().0);
    let cache = cache_control(update_period(stream.settings(), is_regular(stream, &state)));
    answer(request, "application/dash+xml", &cache, &etag, text)
}

/// The tracks that the manifest lists: those that are offered, and audio tracks that their publisher
/// no longer sends and that silence stands in for. dash.js, up to 5.2 at least, keeps the buffer of
/// audio when a period without audio follows, and waits for audio for ever. Such a track is removed
/// once no viewer has asked for it for a while.
fn listed(tracks: &[Arc<Track>]) -> Vec<Arc<Track>> {
    let mut listed = offered(tracks);
    let gone = tracks.iter().filter(|track| track.is_silenced());
    let complete = gone.filter(|track| !track.window().segments.is_empty());
    listed.extend(complete.cloned());
    listed
}

/// Whether keyframes are regular: the end of each offered track's newest segment is foretold.
///
/// The end of a track's first segment is never foretold. While this segment is the only one,
/// TARGETDURATION tells whether the publisher is regular. This matters because players keep the
/// latency of their first manifest.
fn is_regular(stream: &Stream, state: &State) -> bool {
    let publisher = stream.target_duration() == stream.settings().target_duration;
    let foretold = |track: &Arc<Track>| {
        let window = track.window();
        let alone = window.all().nth(1).is_none();
        window.newest().is_some_and(|newest| newest.expected_end.is_some() || publisher && alone)
    };
    offered(&state.tracks).iter().all(foretold)
}

/// Identifies the content of the manifest: manifests with the same number are the same. If nothing
/// is foretold, the manifest lists the segment being made and so changes with each part.
fn version(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.version.hash(&mut hasher);
    for track in &state.tracks {
        let window = track.window();
        let newest = window.newest();
        (track.is_present(), track.is_silenced()).hash(&mut hasher);
        newest.map(|newest| newest.msn).hash(&mut hasher);
        (window.next_msn(), window.ended).hash(&mut hasher);
        let parts = newest.filter(|newest| newest.expected_end.is_none()).map(|s| s.parts.len());
        parts.hash(&mut hasher);
    }
    hasher.finish()
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

/// The segments of one track that belong to one period.
struct Run {
    track: Arc<Track>,
    segments: Vec<Arc<Segment>>,
    /// Foretold end of the newest segment; `None` in a period that is over.
    expected_end: Option<i64>,
    /// Whether the last of `segments` is being made.
    open: bool,
}

fn model(stream: &Stream, state: &State, now: u64) -> Manifest {
    let settings = stream.settings();
    let regular = is_regular(stream, state);
    let ended = state.tracks.iter().all(|track| track.window().ended);
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let millis = |duration: Duration| micros(duration) / 1000;

    let mut periods: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    let listed = if ended { state.tracks.clone() } else { listed(&state.tracks) };
    for track in &listed {
        for (period, run) in runs(track) {
            periods.entry(period).or_default().push(run);
        }
    }
    if !ended && is_incomplete(&periods, &listed) {
        periods.pop_last();
    }
    let latency = latency_target(settings, regular);
    let (periods, end) = self::periods(state, periods);
    let presentation = if ended {
        Presentation::Static { duration: end }
    } else {
        Presentation::Dynamic(Live {
            availability_start_time: state.epoch.0 / 1000,
            publish_time: now,
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

/// Whether the newest period, which is not the first, has just begun and still waits for one kind
/// of the listed media.
fn is_incomplete(periods: &BTreeMap<u64, Vec<Run>>, listed: &[Arc<Track>]) -> bool {
    let Some((_, runs)) = periods.last_key_value().filter(|_| periods.len() > 1) else {
        return false;
    };
    let waits = |kind| {
        let has = runs.iter().any(|run| run.track.kind == kind);
        !has && listed.iter().any(|track| track.kind == kind)
    };
    let lasts = |run: &Run| {
        let (Some(first), Some(last)) = (run.segments.first(), run.segments.last()) else {
            return 0;
        };
        ticks_to_millis(last.presented_end() - first.presents, last.header.track.timescale)
    };
    let longest = runs.iter().map(lasts).max().unwrap_or(0);
    (waits(Kind::Audio) || waits(Kind::Video)) && u128::from(longest) < STRAGGLES.as_millis()
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
    let open = window.open.as_ref().filter(|open| {
        let lasted = open.presented_end() - open.presents;
        let least = live::rescale(GLIMPSE.as_millis() as i64, 1000, open.header.track.timescale);
        open.expected_end.is_some() || lasted >= least || window.segments.is_empty()
    });
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
        last.expected_end = newest
            .and_then(|newest| newest.expected_end.filter(|&end| end >= newest.presented_end()));
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
    let mut id = 0;
    let mut next_id = || {
        id += 1;
        id
    };
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
        let reference = runs.first().copied();
        let mut set = set(next_id(), Content::Video, video, None, index == 0, reference);
        set.starts_with_sap = runs.iter().all(|run| independent(&run.segments));
        sets.push(set);
    }
    for (index, run) in of_kind(Kind::Audio).enumerate() {
        let Some(audio) = representation(run, media) else { continue };
        let id = next_id();
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

/// Whether the segments of both start within a frame of each other.
fn is_aligned(a: &Run, b: &Run) -> bool {
    let starts = |run: &Run| -> Vec<u64> {
        let start = |s: &Arc<Segment>| ticks_to_millis(s.presents, s.header.track.timescale);
        run.segments.iter().map(start).collect()
    };
    let (a, b) = (starts(a), starts(b));
    // Only the time that both cover is compared.
    let (Some(from), Some(to)) = (a.first().max(b.first()), a.last().min(b.last())) else {
        return false;
    };
    let within = |starts: &[u64]| -> Vec<u64> {
        let near = |&&at: &&u64| at + SAME >= *from && at <= *to + SAME;
        starts.iter().filter(near).copied().collect()
    };
    let (a, b) = (within(&a), within(&b));
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.abs_diff(*b) <= SAME)
}

fn representation(run: &Run, period_start: u64) -> Option<Representation> {
    let first = run.segments.first()?;
    let described = &first.header.track;
    let codec = &described.codec;
    let timescale = described.timescale;
    // In presentation time. Each segment lasts until the first sample of the next is presented.
    let mut segments: Vec<_> = run
        .segments
        .iter()
        .enumerate()
        .map(|(index, segment)| {
            let next = run.segments.get(index + 1).map(|next| next.presents);
            let end = next.unwrap_or_else(|| segment.presented_end());
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
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Renditions of one stream, one video each, with a keyframe every so many frames. 0 is a
    /// rendition that is announced and sends nothing.
    struct Renditions {
        registry: live::Registry,
        publishers: Vec<(live::Publisher, u32)>,
        frame: u32,
        /// Frames per second.
        rate: u32,
        /// By how many millionths the publishers' clock is too slow.
        drift: i64,
        /// Whether the first publisher sends audio, too.
        sound: bool,
    }

    impl Renditions {
        fn new(distances: &[u32]) -> Self {
            let registry = live::Registry::new(live::Settings::default());
            let mut publishers = Vec::new();
            for (number, &distance) in distances.iter().enumerate() {
                let rendition = (number > 0).then(|| format!("r{number}"));
                let info = live::PublisherInfo { peer: None, protocol: "test", rendition };
                let mut publisher = registry.publish("x", info, Self::at(0)).unwrap();
                let (video, _) = super::super::hls::tests::codecs();
                publisher.track(0, video, 1000, *b"und", Self::at(0)).unwrap();
                publishers.push((publisher, distance));
            }
            Self { registry, publishers, frame: 0, rate: 30, drift: 0, sound: false }
        }

        /// Adds audio to the first publisher's video. `drift` is by how many millionths its clock
        /// is too slow.
        fn with_sound(rate: u32, drift: i64) -> Self {
            let mut renditions = Self { rate, drift, sound: true, ..Self::new(&[2 * rate; 2]) };
            let (_, audio) = super::super::hls::tests::codecs();
            renditions.publishers[0].0.track(1, audio, 48_000, *b"und", Self::at(0)).unwrap();
            renditions
        }

        /// When something is captured, by the publishers' clock in microseconds.
        fn at(micros: u64) -> live::UnixMicros {
            live::UnixMicros(1_700_000_000_000_000 + micros)
        }

        fn publish(&mut self, frames: u32) {
            for _ in 0..frames {
                let dts = i64::from(self.frame) * 1000 / i64::from(self.rate);
                let micros = u64::from(self.frame) * 1_000_000 / u64::from(self.rate);
                let drifted = micros as i64 / 1_000_000 * self.drift;
                let now = Self::at(micros.saturating_add_signed(drifted));
                for (publisher, distance) in self.publishers.iter_mut().filter(|(_, d)| *d > 0) {
                    let sync = self.frame.is_multiple_of(*distance);
                    let data = bytes::Bytes::from_static(&[0; 64]);
                    let sample = media::Sample { dts, cts: 0, duration: 0, sync, data };
                    publisher.sample(0, sample, now).unwrap();
                }
                let units = |frame: u32| i64::from(frame) * 48_000 / i64::from(self.rate) / 1024;
                for unit in units(self.frame)..units(self.frame + 1) * i64::from(self.sound) {
                    let data = bytes::Bytes::from_static(&[0; 64]);
                    let sample =
                        media::Sample { dts: unit * 1024, cts: 0, duration: 0, sync: true, data };
                    self.publishers[0].0.sample(1, sample, now).unwrap();
                }
                self.frame += 1;
                if self.frame.is_multiple_of(30) {
                    self.registry.sweep(now);
                }
            }
        }

        /// The renditions of each listed adaptation set.
        fn sets(&self) -> Vec<Vec<String>> {
            let stream = self.registry.stream("x").unwrap();
            let text = model(&stream, &stream.state(), 0).render();
            let sets = text.split("<AdaptationSet ").skip(1).map(|set| {
                assert!(set.contains("segmentAlignment=\"true\""), "{set}");
                let named = set.split("<Representation id=\"").skip(1);
                named.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
            });
            sets.collect()
        }
    }

    #[test]
    fn who_is_present_and_has_a_segment_is_listed_and_nobody_waits_for_others() {
        let mut renditions = Renditions::new(&[60, 60, 0, 45]);
        renditions.publish(300);
        // v2 sends nothing, and v3 is cut at other places.
        assert_eq!(renditions.sets(), [vec!["v0", "v1"], vec!["v3"]]);
        renditions.publishers.remove(1);
        renditions.publish(330);
        assert_eq!(renditions.sets(), [vec!["v0"], vec!["v3"]]);
    }

    /// The dates that a playlist of HLS gives its segments, by file name, in milliseconds of their
    /// day.
    fn dated_by_hls(playlist: &str) -> HashMap<String, f64> {
        let (mut dated, mut date, mut lasts) = (HashMap::new(), f64::NAN, 0.0);
        for line in playlist.lines() {
            if let Some(told) = line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:") {
                let time = told.split('T').next_back().unwrap().trim_end_matches('Z');
                let fields = time.split(':').map(|field| field.parse::<f64>().unwrap());
                date = fields.fold(0.0, |sum, field| sum * 60.0 + field) * 1000.0;
            } else if let Some(told) = line.strip_prefix("#EXTINF:") {
                lasts = told.trim_end_matches(',').parse::<f64>().unwrap() * 1000.0;
            } else if !line.starts_with('#') {
                dated.insert(line.to_owned(), date);
                date += lasts;
            }
        }
        dated
    }

    /// The dates that a manifest gives, in milliseconds of their day.
    #[derive(Default)]
    struct Dated {
        /// By track, period and media time: the sum of availabilityStartTime, the start of the
        /// period and the media time in the period.
        segments: HashMap<(String, String, u64), f64>,
        /// Media time and wall-clock time of each reference, with its kind and its period.
        references: Vec<(Kind, String, u64, f64)>,
    }

    fn dated_by_dash(manifest: &str) -> Dated {
        let mpd = dash_mpd_core::parse(manifest).unwrap();
        let of_day = |millis: i64| millis.rem_euclid(86_400_000) as f64;
        let epoch = mpd.availabilityStartTime.unwrap().timestamp_millis();
        assert!(mpd.periods.is_sorted_by_key(|period| period.start.unwrap()));
        let mut dated = Dated::default();
        for period in &mpd.periods {
            let id = period.id.clone().unwrap();
            let start = of_day(epoch) + period.start.unwrap().as_secs_f64() * 1000.0;
            for set in &period.adaptations {
                for reference in &set.ProducerReferenceTime {
                    let time = reference.wallClockTime.unwrap().timestamp_millis();
                    let media = reference.presentationTime.unwrap();
                    let audio = set.contentType.as_deref() == Some("audio");
                    let kind = if audio { Kind::Audio } else { Kind::Video };
                    dated.references.push((kind, id.clone(), media, of_day(time)));
                }
                for representation in &set.representations {
                    let template = representation.SegmentTemplate.as_ref();
                    let template = template.or(set.SegmentTemplate.as_ref()).unwrap();
                    let offset = template.presentationTimeOffset.unwrap_or(0) as f64;
                    let mut at = 0;
                    for run in &template.SegmentTimeline.as_ref().unwrap().segments {
                        at = run.t.unwrap_or(at);
                        for _ in 0..=run.r.unwrap_or(0) {
                            let ticks = template.timescale.unwrap() as f64 / 1000.0;
                            let date = start + (at as f64 - offset) / ticks;
                            let name = representation.id.clone().unwrap();
                            dated.segments.insert((name, id.clone(), at), date);
                            at += run.d;
                        }
                    }
                }
            }
        }
        dated
    }

    /// DASH gives the wall clock in three places. They must agree with the dates in HLS, also after
    /// somebody has set the wall clock, and where the publisher's clock drifts. One exception: if
    /// the clock was set far back, the times of segments are too late by as much as long as the
    /// manifest lists the period before. The references tell the date.
    #[test]
    fn manifests_and_playlists_date_the_same_media_alike() {
        const HOUR: i64 = 3_600_000_000;
        for (ahead, drift) in [(0, 0), (HOUR, 0), (-HOUR, 0), (0, 150), (0, -150)] {
            let mut renditions = Renditions::with_sound(10, drift);
            renditions.publish(210);
            renditions.registry.follow_wall_clock(ahead);
            let stream = renditions.registry.stream("x").unwrap();
            let newest = || stream.track("v0").unwrap().window().newest().unwrap().period;
            while drift != 0 && newest() == 0 {
                renditions.publish(1);
            }
            renditions.publish(210);
            let state = stream.state();
            let dash = dated_by_dash(&model(&stream, &state, 0).render());
            let (mut compared, mut referenced) = (0, 0);
            let mut epochs: BTreeMap<u64, i64> = BTreeMap::new();
            for track in &state.tracks {
                let window = track.window();
                let timescale = track.header().track.timescale;
                let playlist = super::super::hls::playlist(&stream, track, &window);
                let hls = dated_by_hls(&playlist.render(protocol::hls::Skip::No));
                for segment in window.listed() {
                    let told = *epochs.entry(segment.period).or_insert(segment.epoch());
                    assert!(told == segment.epoch() && told % 1000 == 0, "{told}");
                    // The playlist lists a segment's end with the first part of the next.
                    let Some(date) = hls.get(&format!("{}.m4s", segment.msn)) else { continue };
                    let (period, media) = (format!("p{}", segment.period), segment.presents);
                    let media = media.unsigned_abs();
                    let told = dash.segments[&(track.name.clone(), period.clone(), media)];
                    // A period that is set back begins where the last track ended, a little late.
                    let set_back = segment.period > 0 && ahead < 0;
                    let (late, most) = if set_back { (3_600_000.0, 25.0) } else { (0.0, 1.0) };
                    let off = (told - date - late).abs();
                    assert!(off <= most, "{ahead}, {drift}: {told}, {date}");
                    compared += 1;
                }
                let newest = window.listed().last().unwrap();
                let date = hls[&format!("{}.m4s", newest.msn)];
                let periods = if (ahead, drift) == (0, 0) { 1 } else { 2 };
                assert_eq!(dash.references.len(), 2 * periods);
                for (kind, period, media, told) in &dash.references {
                    // What both give is the difference of date and media time.
                    if *kind == track.kind && *period == format!("p{}", newest.period) {
                        let ticks = f64::from(timescale) / 1000.0;
                        let apart = (*media as f64 - newest.presents as f64) / ticks;
                        assert!((told - apart - date).abs() <= 1.0, "{ahead}: {told}, {date}");
                        referenced += 1;
                    }
                }
            }
            assert!(compared >= 30 && referenced == 3, "{compared} and {referenced}");
            let apart: Vec<_> = epochs.values().map(|epoch| epoch - epochs[&0]).collect();
            match (ahead, drift) {
                (0, 0) => assert_eq!(apart, [0]),
                (_, 0) => assert_eq!(apart, [0, ahead]),
                _ => assert!(apart.len() == 2 && apart[1].signum() == drift.signum(), "{apart:?}"),
            }
        }
    }

    #[test]
    fn the_next_segment_is_foretold_where_keyframes_are_regular() {
        let listed = |distances: &[u32]| {
            let mut renditions = Renditions::new(distances);
            renditions.publish(630);
            let stream = renditions.registry.stream("x").unwrap();
            let window = stream.track("v0").unwrap().window();
            let run = runs(&stream.track("v0").unwrap()).into_values().next_back().unwrap();
            let listed = representation(&run, 0).unwrap();
            let Address::Template(template) = listed.address else { panic!() };
            (window, template.segments)
        };
        let (window, segments) = listed(&[60]);
        let open = window.open.as_ref().unwrap();
        assert_eq!(segments.len(), window.listed().count() + 2);
        let [.., last, next] = &segments[..] else { panic!() };
        assert_eq!((last.start, last.duration), (open.presents.unsigned_abs(), 180_000));
        assert_eq!(next.start, last.start + 180_000);
        // Keyframes further apart than a regular publisher's count as regular only once their
        // distances are alike.
        let mut odd = Renditions::new(&[130]);
        odd.publish(300);
        let stream = odd.registry.stream("x").unwrap();
        assert!(!is_regular(&stream, &stream.state()));
        odd.publish(400);
        assert!(is_regular(&stream, &stream.state()));
    }

    #[test]
    fn latency_is_told_when_one_segment_is_there_and_none_is_foretold() {
        for (distance, is_known_to_be_regular) in [(60, true), (130, false)] {
            let mut renditions = Renditions::new(&[distance]);
            let stream = renditions.registry.stream("x").unwrap();
            let track = stream.track("v0").unwrap();
            while track.window().segments.is_empty() {
                renditions.publish(1);
            }
            assert!(track.window().open.is_none(), "the next segment has no part yet");
            assert_eq!(is_regular(&stream, &stream.state()), is_known_to_be_regular);
        }
    }

    #[test]
    fn a_segment_whose_end_is_unknown_is_listed_once_it_has_lasted_a_while() {
        let mut renditions = Renditions::new(&[130]);
        let stream = renditions.registry.stream("x").unwrap();
        let track = stream.track("v0").unwrap();
        let mut listed = Vec::new();
        while listed.last().is_none_or(|&(count, _)| count < 2) {
            renditions.publish(1);
            if let Some(open) = &track.window().open {
                let count = runs(&track).into_values().map(|run| run.segments.len()).sum::<usize>();
                listed.push((count, open.presented_end() - open.presents));
            }
        }
        let least = 90 * 1200;
        let second = &listed[listed.len() - 8..];
        assert!(
            second.iter().all(|&(count, lasted)| (count == 2) == (lasted >= least)),
            "{second:?}"
        );
    }

    #[test]
    fn caches_share_a_manifest_for_no_longer_than_it_says_that_it_holds() {
        let of = |segment_target| {
            let settings = live::Settings { segment_target, ..live::Settings::default() };
            cache_control(update_period(&settings, true))
        };
        assert_eq!(of(Duration::from_secs(2)), "max-age=0, s-maxage=1, must-revalidate");
        assert_eq!(of(Duration::from_secs(6)), "max-age=0, s-maxage=3, must-revalidate");
        assert_eq!(of(Duration::from_secs(1)), "max-age=0, s-maxage=0, must-revalidate");
    }
}
