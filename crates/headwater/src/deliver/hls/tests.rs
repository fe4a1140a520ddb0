//! Random publishers, and a viewer who reads every playlist. No playlist may contradict an earlier
//! one.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use live::{Publisher, PublisherInfo, Registry, Settings, UnixMicros};
use media::{Codec, Sample, codec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::Tag;
use quick_m3u8::{HlsLine, Reader};

use super::*;
use crate::config::{Config, Size};

/// A segment as a playlist describes it.
#[derive(Debug, Default, Clone, PartialEq)]
struct Told {
    micros: Option<u64>,
    map: String,
    /// Program date in microseconds: from the playlist, or computed from durations since that.
    date: u64,
    discontinuities: u64,
    parts: Vec<(u64, bool)>,
}

/// Everything that a viewer has read of one track.
#[derive(Default)]
struct Memory {
    /// The publisher pauses for longer than parts can cover.
    pauses: bool,
    target_duration: u64,
    part_target: u64,
    hold_back: u64,
    sequence: u64,
    segments: HashMap<u64, Told>,
    /// Number of parts of each segment that is complete.
    whole: HashMap<u64, usize>,
    ended: bool,
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

impl Memory {
    fn read(&mut self, text: &str) {
        assert!(!self.ended, "a playlist after its end");
        let options = ParsingOptionsBuilder::new().with_parsing_for_all_tags().build();
        let mut reader = Reader::from_str(text, options);
        let mut told = Told::default();
        let (mut msn, mut listed, mut hint) = (0, Vec::new(), None);
        while let Some(line) = reader.read_line().expect("every line is well formed") {
            match line {
                HlsLine::Uri(uri) => {
                    assert_eq!(uri, format!("{msn}.m4s"));
                    listed.push((msn, std::mem::take(&mut told)));
                    let before = &listed.last().unwrap().1;
                    told.discontinuities = before.discontinuities;
                    told.map.clone_from(&before.map);
                    told.date = before.date + before.micros.unwrap();
                    msn += 1;
                }
                HlsLine::KnownTag(KnownTag::Hls(tag)) => match tag {
                    Tag::Targetduration(tag) => {
                        let now = tag.target_duration();
                        assert!([0, now].contains(&self.target_duration), "TARGETDURATION");
                        self.target_duration = now;
                    }
                    Tag::PartInf(tag) => {
                        let now = micros(tag.part_target());
                        assert!([0, now].contains(&self.part_target), "PART-TARGET");
                        self.part_target = now;
                    }
                    Tag::MediaSequence(tag) => {
                        msn = tag.media_sequence();
                        assert!(msn > 0 && msn >= self.sequence, "{msn} after {}", self.sequence);
                        self.sequence = msn;
                    }
                    Tag::DiscontinuitySequence(tag) => {
                        told.discontinuities = tag.discontinuity_sequence();
                    }
                    Tag::ServerControl(tag) => {
                        assert!(tag.can_block_reload());
                        let hold_back = micros(tag.part_hold_back().unwrap());
                        assert!([0, hold_back].contains(&self.hold_back), "PART-HOLD-BACK");
                        self.hold_back = hold_back;
                    }
                    Tag::Map(tag) => told.map = tag.uri().to_owned(),
                    Tag::ProgramDateTime(tag) => {
                        let date = tag.program_date_time();
                        let minutes = u64::from(date.time_hour) * 60 + u64::from(date.time_minute);
                        told.date = minutes * 60_000_000 + micros(date.time_second);
                    }
                    Tag::Discontinuity(_) => told.discontinuities += 1,
                    Tag::Inf(tag) => told.micros = Some(micros(tag.duration())),
                    Tag::Part(tag) => {
                        assert_eq!(tag.uri(), format!("{msn}.{}.m4s", told.parts.len()));
                        told.parts.push((micros(tag.duration()), tag.independent()));
                    }
                    Tag::PreloadHint(tag) => hint = Some(tag.uri().to_owned()),
                    Tag::Endlist(_) => self.ended = true,
                    Tag::M3u(_) | Tag::Version(_) | Tag::RenditionReport(_) => {}
                    other => panic!("unexpected {other:?}"),
                },
                other => panic!("unexpected {other:?}"),
            }
        }
        assert!(self.hold_back >= 3 * self.part_target);
        let next = format!("{}.0.m4s", msn + 1);
        if hint.as_ref() == Some(&next) {
            self.whole.insert(msn, told.parts.len());
        } else {
            let hinted = (!self.ended).then(|| format!("{msn}.{}.m4s", told.parts.len()));
            assert_eq!(hint, hinted);
        }
        listed.push((msn, told));
        for (msn, told) in listed {
            self.compare(msn, told);
        }
    }

    fn compare(&mut self, msn: u64, told: Told) {
        if let Some(duration) = told.micros {
            assert!((duration + 500_000) / 1_000_000 <= self.target_duration, "{duration} µs");
        }
        for (duration, _) in &told.parts {
            // A part with a frame after a pause lasts as long as the pause.
            assert!(*duration <= self.part_target || self.pauses, "part of {duration} µs");
        }
        if let Some(&parts) = self.whole.get(&msn) {
            assert!(told.parts.is_empty() || told.parts.len() == parts, "segment {msn} went on");
        }
        let sum: u64 = told.parts.iter().map(|(duration, _)| duration).sum();
        match told.micros {
            // A hole that the publisher left counts only in the segment's duration.
            Some(duration) if !told.parts.is_empty() => {
                assert!(sum <= duration, "{sum}, {duration}");
            }
            _ => {}
        }
        let known = self.segments.entry(msn).or_insert_with(|| told.clone());
        if told.micros.is_none() && told.parts.is_empty() {
            return; // Only the number of a segment that has not begun.
        }
        if known.parts.is_empty() && known.micros.is_none() {
            *known = told;
            return;
        }
        assert_eq!(known.map, told.map, "segment {msn}");
        // Dates are rounded at the first listed segment, which may be another one now.
        assert!(known.date.abs_diff(told.date) <= 3000, "{} and {}", known.date, told.date);
        assert_eq!(known.discontinuities, told.discontinuities, "segment {msn}");
        let common = known.parts.len().min(told.parts.len());
        assert_eq!(known.parts[..common], told.parts[..common], "segment {msn}");
        match (known.micros, told.micros) {
            (Some(before), now) => assert_eq!(Some(before), now, "segment {msn}"),
            (None, _) => {
                assert!(told.parts.len() >= known.parts.len(), "segment {msn} lost parts");
                *known = told;
            }
        }
    }
}

pub(crate) fn codecs() -> (Codec, Codec) {
    let video = codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
    let audio = codec::aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).unwrap();
    (Codec::Avc(video), Codec::Aac(audio))
}

/// Number of frames, frames between keyframes, milliseconds of silence before them, and whether the
/// publisher leaves and comes back in it.
type Run = (u32, u32, u32, bool);

fn walk(runs: &[Run], frames_a_second: f64, part_target: u64) {
    let settings =
        Settings { part_target: Duration::from_millis(part_target), ..Settings::default() };
    let registry = Registry::new(settings);
    let mut now = UnixMicros(1_700_000_000_000_000);
    let join = |now| -> Publisher {
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = registry.publish("x", info, now).unwrap();
        let (video, audio) = codecs();
        publisher.track(0, video, 1000, *b"und", now).unwrap();
        publisher.track(1, audio, 1000, *b"und", now).unwrap();
        publisher
    };
    let mut publisher = join(now);
    let stream = Arc::clone(publisher.stream());
    let mut memories: HashMap<String, Memory> = HashMap::new();
    let mut look = || {
        for track in &stream.state().tracks {
            let window = track.window();
            // Requests wait until EXT-X-TARGETDURATION is known.
            if window.newest().is_some() && stream.is_settled() {
                let text = playlist(&stream, track, &window).render(Skip::No);
                let memory = memories.entry(track.name.clone()).or_default();
                memory.pauses = runs.iter().any(|&(_, _, pause, _)| pause > 1000);
                memory.read(&text);
                let delta = playlist(&stream, track, &window).render(Skip::Yes);
                assert!(delta.len() <= text.len());
            }
        }
    };
    let (mut time, mut heard) = (0.0, 0.0);
    for &(frames, gop, pause, leaves) in runs {
        now.0 += u64::from(pause) * 1000;
        time += f64::from(pause) / 1000.0;
        if leaves {
            drop(publisher);
            look();
            publisher = join(now);
        }
        for frame in 0..frames {
            let sample = |time: f64, sync| Sample {
                dts: (time * 1000.0).round() as i64,
                cts: 0,
                duration: 0,
                sync,
                data: Bytes::from_static(&[0; 64]),
            };
            publisher.sample(0, sample(time, frame % gop == 0), now).unwrap();
            look();
            heard = f64::max(heard, time);
            while heard < time + 1.0 / frames_a_second {
                publisher.sample(1, sample(heard, true), now).unwrap();
                heard += 1024.0 / 48_000.0;
            }
            look();
            time += 1.0 / frames_a_second;
            now.0 += (1e6 / frames_a_second) as u64;
        }
    }
    drop(publisher);
    registry.sweep(now);
    registry.sweep(now.after(Duration::from_secs(60)));
    look();
    assert!(memories.values().all(|memory| memory.ended) && memories.len() == 2);
}

#[test]
fn independent_segments_are_not_promised_of_publishers_still_to_come() {
    let registry = Registry::new(Settings::default());
    let mut now = UnixMicros(1_700_000_000_000_000);
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    let mut publisher = registry.publish("x", info, now).unwrap();
    publisher.track(0, codecs().0, 1000, *b"und", now).unwrap();
    let stream = Arc::clone(publisher.stream());
    let mut dts = 0;
    let mut promised = |frames: u32, gop: u32| {
        for frame in 0..frames {
            let data = Bytes::from_static(&[0; 64]);
            let sync = frame % gop == 0;
            publisher.sample(0, Sample { dts, cts: 0, duration: 0, sync, data }, now).unwrap();
            dts += 100;
            now.0 += 100_000;
        }
        render_multivariant(&stream.state().tracks).contains("#EXT-X-INDEPENDENT-SEGMENTS\n")
    };
    assert!(!promised(100, 20), "though each begins with a keyframe: who comes next may have none");
    assert!(!promised(100, 100));
}

/// hls.js loses a segment's last part if one playlist shows both that part and the segment's end
/// for the first time.
#[test]
fn the_end_of_a_segment_is_told_with_the_first_part_of_the_next() {
    let registry = Registry::new(Settings::default());
    let now = UnixMicros(1_700_000_000_000_000);
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    let mut publisher = registry.publish("x", info, now).unwrap();
    publisher.track(0, codecs().0, 1000, *b"und", now).unwrap();
    let stream = Arc::clone(publisher.stream());
    let mut frames = 0..;
    let mut send = |count: usize| {
        for frame in frames.by_ref().take(count) {
            let data = Bytes::from_static(&[0; 64]);
            let sample =
                Sample { dts: frame * 40, cts: 0, duration: 0, sync: frame % 50 == 0, data };
            publisher.sample(0, sample, now).unwrap();
        }
        let track = stream.state().tracks[0].clone();
        let window = track.window();
        let text = playlist(&stream, &track, &window).render(Skip::No);
        let lists = move |line: String| text.contains(&format!("{line}\n"));
        (window.segments.len(), window.open.is_some(), state(&stream, &track, &window), lists)
    };
    // The end of the first segment is shown at once: players of whole segments wait for it.
    let (complete, open, told, lists) = send(51);
    let first = told.open_msn - 1;
    assert!((complete, open) == (1, false) && lists(format!("{first}.m4s")));
    let second = first + 1;
    // The second segment is complete, and the third has not begun.
    let (complete, open, told, lists) = send(50);
    assert!((complete, open) == (2, false) && !lists(format!("{second}.m4s")));
    assert!(lists(format!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{}.0.m4s\"", second + 1)));
    assert_eq!(told.open_msn, second);
    let asked = |part: &str| hls::Request::parse(&format!("_HLS_msn={second}{part}")).unwrap();
    let last = told.open_parts - 1;
    assert_eq!(asked(&format!("&_HLS_part={last}")).decide(&told), Decision::Now);
    assert!(lists(format!("URI=\"{second}.{last}.m4s\"")));
    let beyond = asked(&format!("&_HLS_part={}", last + 1));
    assert!(matches!(beyond.decide(&told), Decision::Wait { .. }));
    assert!(matches!(asked("").decide(&told), Decision::Wait { .. }));
    let (complete, open, told, lists) = send(7);
    assert!((complete, open) == (2, true) && lists(format!("{second}.m4s")));
    assert_eq!((beyond.decide(&told), asked("").decide(&told)), (Decision::Now, Decision::Now));
}

/// RFC 8216bis 6.2.2: parts stay listed for three target durations. The time while nobody published is in no
/// segment, and does not count.
#[test]
fn parts_of_the_last_three_target_durations_are_listed_after_an_absence() {
    let registry = Registry::new(Settings::default());
    let mut window = None;
    for (began, frames) in [(0, 600), (49_000, 100)] {
        let at = |millis: i64| UnixMicros(1_700_000_000_000_000 + millis.unsigned_abs() * 1000);
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = registry.publish("x", info, at(began)).unwrap();
        publisher.track(0, codecs().0, 1000, *b"und", at(began)).unwrap();
        for frame in 0..frames {
            let data = Bytes::from_static(&[0; 64]);
            let sync = frame % 50 == 0;
            let sample = Sample { dts: frame * 40, cts: 0, duration: 0, sync, data };
            publisher.sample(0, sample, at(began + frame * 40)).unwrap();
        }
        let stream = Arc::clone(publisher.stream());
        let track = stream.track("v0").unwrap();
        window = Some(playlist(&stream, &track, &track.window()));
    }
    let playlist = window.unwrap();
    let mut after = playlist.open.map_or(0, |open| open.parts.iter().map(|it| it.duration).sum());
    let mut before = 0;
    for segment in playlist.segments.iter().rev() {
        if after <= 3 * u64::from(playlist.target_duration) * 90_000 {
            assert!(!segment.parts.is_empty(), "{} before the end", after / 90_000);
            before += u64::from(after > 4 * 90_000);
        }
        after += segment.duration;
    }
    assert!(before >= 3 && playlist.segments.first().unwrap().parts.is_empty());
}

/// A stream in which the video has a complete segment and the audio is still in its first.
fn ahead_of_its_audio(now: UnixMicros) -> Publisher {
    let registry = Registry::new(Settings::default());
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    let mut publisher = registry.publish("x", info, now).unwrap();
    let (video, audio) = codecs();
    publisher.track(0, video, 1000, *b"und", now).unwrap();
    publisher.track(1, audio, 1000, *b"und", now).unwrap();
    // A gap stands in for audio that is further behind.
    send_audio(&mut publisher, 0..1700, now);
    for frame in 0..52 {
        let data = Bytes::from_static(&[0; 64]);
        let sample = Sample { dts: frame * 40, cts: 0, duration: 0, sync: frame % 50 == 0, data };
        publisher.sample(0, sample, now).unwrap();
    }
    let tracks = &publisher.stream().state().tracks;
    let complete = |track: usize| !tracks[track].window().segments.is_empty();
    assert_eq!((complete(0), complete(1)), (true, false));
    publisher
}

fn request(query: &str) -> Request {
    request_with(query, "")
}

fn request_with(query: &str, field: &str) -> Request {
    let head = format!("GET /{query} HTTP/1.1\r\nHost: x\r\n{field}\r\n");
    let mut head = BytesMut::from(&*head);
    Request::parse(&mut head, (Ipv4Addr::LOCALHOST, 1).into(), 100).unwrap().unwrap()
}

#[test]
fn directives_may_be_encoded() {
    let asked = |query: &str| directives(&request(query));
    let plain = asked("?_HLS_msn=12&_HLS_part=3&_HLS_skip=YES").unwrap();
    assert_eq!((plain.msn, plain.part, plain.skip), (Some(12), Some(3), Skip::Yes));
    for query in [
        "?_HLS_msn=%312&_HLS_part=%33&_HLS_skip=Y%45S",
        "?%5FHLS_msn=12&_HLS%5Fpart=3&_HLS_skip=YES",
        "?CMCD=a%3D1&_HLS_msn=12&_HLS_part=3&_HLS_skip=YES",
        "?x=%26_HLS_msn=1&_HLS_msn=1%32&_HLS_part=3&_HLS_skip=YES",
    ] {
        assert_eq!(asked(query), Ok(plain), "{query}");
    }
    let wrong = Err(hls::RequestError::Number("_HLS_msn"));
    for query in ["?_HLS_msn=%31x", "?_HLS_msn=1%26_HLS_part=2", "?_HLS_msn=%2B1"] {
        assert_eq!(asked(query), wrong, "{query}");
    }
    assert_eq!(asked("?x=%26_HLS_msn=%31"), Ok(hls::Request::default()));
}

#[test]
fn of_a_failed_precondition_nothing_is_kept() {
    for (field, status, cache_control) in [
        ("", 200, "max-age=1"),
        ("If-None-Match: \"1\"\r\n", 304, "max-age=1"),
        ("If-Match: \"0\"\r\n", 412, "no-store"),
    ] {
        let request = request_with("", field);
        let answer = answer(&request, CONTENT_TYPE, "max-age=1", "1", Bytes::new());
        let found = answer.headers().find(|(name, _)| *name == "Cache-Control");
        let found = found.map(|(_, value)| value);
        assert_eq!((answer.status(), found), (status, Some(cache_control)), "{field}");
    }
}

fn send_audio(publisher: &mut Publisher, millis: std::ops::Range<i64>, now: UnixMicros) {
    for dts in millis.step_by(20) {
        let data = Bytes::from_static(&[0; 64]);
        publisher.sample(1, Sample { dts, cts: 0, duration: 0, sync: true, data }, now).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn first_playlists_wait_for_audio_that_is_a_little_behind() {
    let now = UnixMicros(1_700_000_000_000_000);
    let mut publisher = ahead_of_its_audio(now);
    let stream = Arc::clone(publisher.stream());
    let began = tokio::time::Instant::now();
    tokio::join!(others_begun(&stream), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        send_audio(&mut publisher, 1700..3000, now);
    });
    assert_eq!(began.elapsed(), Duration::from_millis(300));
    assert!(stream.state().tracks.iter().all(|track| !track.window().segments.is_empty()));
    others_begun(&stream).await;
    assert_eq!(began.elapsed(), Duration::from_millis(300));
}

#[tokio::test(start_paused = true)]
async fn first_playlists_wait_a_second_for_audio_that_does_not_come() {
    let now = UnixMicros(1_700_000_000_000_000);
    let publisher = ahead_of_its_audio(now);
    let began = tokio::time::Instant::now();
    others_begun(publisher.stream()).await;
    assert_eq!(began.elapsed().as_secs(), STRAGGLER.as_secs());
}

#[tokio::test(start_paused = true)]
async fn playlists_and_manifests_that_name_no_track_are_not_served() {
    let origin = Origin::new(Config::default());
    let mut publisher = ahead_of_its_audio(origin.now());
    send_audio(&mut publisher, 1700..3000, origin.now());
    let (stream, relays, plain) = (publisher.stream(), Relays::default(), request(""));
    let local = tokio::task::LocalSet::new();
    let statuses = async || {
        let manifest = super::super::dash::manifest(&plain, &origin, &relays, stream);
        let manifest = local.run_until(manifest).await;
        [multivariant(&plain, stream).await.status(), manifest.status()]
    };
    assert_eq!(statuses().await, [200; 2]);
    for track in &stream.state().tracks {
        stream.offer(track, false);
    }
    assert_eq!(statuses().await, [503; 2]);
    stream.offer(&stream.state().tracks[0], true);
    assert_eq!(statuses().await, [200; 2]);
}

/// Playlists begin with the video (docs/player.md, "Audio that begins before video"). Answers wait
/// until they have something to tell.
#[tokio::test(start_paused = true)]
async fn first_playlists_and_manifests_wait_for_a_video_that_begins_late() {
    let origin = Origin::new(Config::default());
    let began = origin.now();
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    let mut publisher = origin.registry.publish("x", info, began).unwrap();
    let (video, audio) = codecs();
    publisher.track(0, video, 1000, *b"und", began).unwrap();
    publisher.track(1, audio, 1000, *b"und", began).unwrap();
    let at = |millis: i64| UnixMicros(began.0 + millis.unsigned_abs() * 1000);
    let send_audio = |publisher: &mut Publisher, millis: std::ops::Range<i64>| {
        millis.step_by(20).for_each(|dts| send_audio(publisher, dts..dts + 1, at(dts)));
    };
    let send_video = |publisher: &mut Publisher, dts: i64| {
        let data = Bytes::from_static(&[0; 64]);
        let sample = Sample { dts, cts: 0, duration: 0, sync: dts % 2000 == 1000, data };
        publisher.sample(0, sample, at(dts)).unwrap();
    };
    send_audio(&mut publisher, 0..3000);
    send_video(&mut publisher, 3000);
    let stream = Arc::clone(publisher.stream());
    let audio = stream.track("a0").unwrap();
    let first = audio.window().all().next().unwrap().msn;
    assert!(!audio.window().has_listed());

    let plain = request("");
    let relays = Relays::default();
    let local = tokio::task::LocalSet::new();
    let answers = local.run_until(async {
        tokio::join!(
            async {
                let answer = media(&plain, &origin, &relays, &stream, "a0").await;
                (answer.status(), audio.window().has_listed())
            },
            async {
                let answer = super::super::dash::manifest(&plain, &origin, &relays, &stream).await;
                (answer.status(), audio.window().has_listed())
            },
            async {
                for dts in (3040..8000).step_by(40) {
                    tokio::task::yield_now().await;
                    send_audio(&mut publisher, dts - 40..dts);
                    send_video(&mut publisher, dts);
                }
            }
        )
    });
    let (of_audio, manifest, ()) = answers.await;
    assert_eq!([of_audio, manifest], [(200, true); 2]);
    let listed = audio.window().listed().next().unwrap().clone();
    assert!(
        listed.msn > first && listed.presents >= 2_750,
        "{} at {}",
        listed.msn,
        listed.presents
    );
    let told = playlist(&stream, &audio, &audio.window()).render(Skip::No);
    assert!(told.contains(&format!("#EXT-X-MEDIA-SEQUENCE:{}\n", listed.msn)), "{told}");
}

/// A stream without a publisher has no playlist once others have taken its memory, even for
/// requests that wait.
#[tokio::test(start_paused = true)]
async fn nothing_is_told_of_a_stream_that_had_to_give_way() {
    let mut config = Config::default();
    config.live.memory = Size::from_mib(16);
    let origin = Origin::new(config);
    let now = origin.now();
    let begin = |name| {
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = origin.registry.publish(name, info, now).unwrap();
        publisher.track(0, codecs().0, 1000, *b"und", now).unwrap();
        publisher
    };
    let send = |publisher: &mut Publisher, frame: i64, size: usize| {
        let data = vec![0; size].into();
        let sample = Sample { dts: frame * 40, cts: 0, duration: 0, sync: frame % 50 == 0, data };
        publisher.sample(0, sample, now)
    };
    let mut gone = begin("gone");
    (0..300).for_each(|frame| send(&mut gone, frame, 64).unwrap());
    let stream = Arc::clone(gone.stream());
    let next = stream.track("v0").unwrap().window().next_msn().unwrap() + 1;
    drop(gone);

    let relays = Relays::default();
    let plain = request("");
    let local = tokio::task::LocalSet::new();
    let statuses = local.run_until(async {
        assert_eq!(multivariant(&plain, &stream).await.status(), 200);
        let waits = request(&format!("?_HLS_msn={next}"));
        let (waited, ()) = tokio::join!(media(&waits, &origin, &relays, &stream, "v0"), async {
            tokio::task::yield_now().await;
            let mut large = begin("large");
            let refused = (0..1000).find(|_| send(&mut large, 0, 1 << 20).is_err());
            assert!(refused.is_some());
        });
        [
            waited.status(),
            multivariant(&plain, &stream).await.status(),
            media(&plain, &origin, &relays, &stream, "v0").await.status(),
            super::super::dash::manifest(&plain, &origin, &relays, &stream).await.status(),
        ]
    });
    assert_eq!(statuses.await, [404; 4]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default()
    })]

    #[test]
    fn no_playlist_contradicts_an_earlier_one(
        runs in prop::collection::vec(
            (1u32..150, 1u32..200, prop_oneof![4 => Just(0u32), 1 => 1u32..9000], prop::bool::weighted(0.2)),
            1..8,
        ),
        rate in prop_oneof![Just(30.0), Just(24.0), Just(25.0), Just(29.97), Just(60.0), Just(10.0), Just(2.0)],
        part_target in prop_oneof![Just(200u64), Just(33), Just(1000)],
    ) {
        walk(&runs, rate, part_target);
    }
}
