//! Checks playlists with another parser and as text, and when requests are answered.

use std::sync::Arc;

use proptest::prelude::*;
use protocol::hls::{
    Audio, Decision, IFrames, LowLatency, MediaPlaylist, MultivariantPlaylist, OpenSegment, Part,
    PlaylistType, RenditionReport, Request, RequestError, Rounding, Segment, Skip, State,
    Subtitles, Variant,
};
use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::{self as tag, Tag};
use quick_m3u8::{HlsLine, Reader};

fn part(uri: &str, duration: u64, independent: bool) -> Part {
    Part { uri: uri.into(), duration, independent, gap: false }
}

/// A low-latency playlist: segments of two seconds in parts of half a second, at 90 kHz.
fn live(segments: u64) -> MediaPlaylist {
    let segment = |msn: u64| Segment {
        uri: format!("{msn}.m4s"),
        duration: 180_000,
        map: Some("init.0.mp4".into()),
        date: Some(1_795_291_260_250_000 + msn * 2_000_000),
        discontinuity: false,
        gap: false,
        parts: (0..4).map(|n| part(&format!("{msn}.{n}.m4s"), 45_000, n == 0)).collect(),
    };
    MediaPlaylist {
        timescale: 90_000,
        target_duration: 2,
        media_sequence: 10,
        discontinuity_sequence: 0,
        kind: None,
        independent_segments: false,
        i_frames_only: false,
        low_latency: Some(LowLatency { part_target: 45_000, part_hold_back: 135_000 }),
        blocking_reload: true,
        delta_updates: true,
        date_rounding: Rounding::Down,
        segments: (10..10 + segments).map(segment).collect(),
        open: Some(OpenSegment {
            map: Some("init.0.mp4".into()),
            date: Some(1_795_291_260_250_000 + (10 + segments) * 2_000_000),
            discontinuity: false,
            parts: vec![part(&format!("{}.0.m4s", 10 + segments), 45_000, true)],
        }),
        preload_hint: Some(format!("{}.1.m4s", 10 + segments)),
        rendition_reports: vec![RenditionReport {
            uri: "../a0/media.m3u8".into(),
            last_msn: 10 + segments,
            last_part: Some(0),
        }],
        ended: false,
    }
}

#[test]
fn low_latency_playlist() {
    let mut playlist = live(4);
    playlist.segments[2].discontinuity = true;
    playlist.segments[2].map = Some("init.1.mp4".into());
    playlist.segments[3].map = Some("init.1.mp4".into());
    playlist.segments[3].gap = true;
    playlist.segments[3].parts.clear();
    playlist.open.as_mut().expect("is open").map = Some("init.1.mp4".into());
    playlist.discontinuity_sequence = 3;
    assert_eq!(
        playlist.render(Skip::No),
        "#EXTM3U\n\
         #EXT-X-VERSION:9\n\
         #EXT-X-TARGETDURATION:2\n\
         #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.500000,HOLD-BACK=6,\
         CAN-SKIP-UNTIL=12\n\
         #EXT-X-PART-INF:PART-TARGET=0.500000\n\
         #EXT-X-MEDIA-SEQUENCE:10\n\
         #EXT-X-DISCONTINUITY-SEQUENCE:3\n\
         #EXT-X-MAP:URI=\"init.0.mp4\"\n\
         #EXT-X-PROGRAM-DATE-TIME:2026-11-21T20:01:20.250Z\n\
         #EXTINF:2.000000,\n\
         10.m4s\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"11.0.m4s\",INDEPENDENT=YES\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"11.1.m4s\"\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"11.2.m4s\"\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"11.3.m4s\"\n\
         #EXTINF:2.000000,\n\
         11.m4s\n\
         #EXT-X-DISCONTINUITY\n\
         #EXT-X-MAP:URI=\"init.1.mp4\"\n\
         #EXT-X-PROGRAM-DATE-TIME:2026-11-21T20:01:24.250Z\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"12.0.m4s\",INDEPENDENT=YES\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"12.1.m4s\"\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"12.2.m4s\"\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"12.3.m4s\"\n\
         #EXTINF:2.000000,\n\
         12.m4s\n\
         #EXT-X-GAP\n\
         #EXTINF:2.000000,\n\
         13.m4s\n\
         #EXT-X-PART:DURATION=0.500000,URI=\"14.0.m4s\",INDEPENDENT=YES\n\
         #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"14.1.m4s\"\n\
         #EXT-X-RENDITION-REPORT:URI=\"../a0/media.m3u8\",LAST-MSN=14,LAST-PART=0\n"
    );
}

#[test]
fn delta_update_leaves_out_what_ends_before_the_skip_boundary() {
    // 9 segments and an open part: 18.5 s. The first three end 12.5 s or more before the end.
    let text = live(9).render(Skip::Yes);
    assert!(text.contains("#EXT-X-MEDIA-SEQUENCE:10\n#EXT-X-SKIP:SKIPPED-SEGMENTS=3\n"), "{text}");
    assert!(!text.contains("\n12.m4s") && text.contains("\n13.m4s"), "{text}");
    assert!(!text.contains("EXT-X-MAP"), "the player has the header: {text}");
    assert_eq!(live(9).render(Skip::V2), text);

    let mut changed = live(9);
    for segment in &mut changed.segments[3..] {
        segment.map = Some("init.1.mp4".into());
    }
    let text = changed.render(Skip::Yes);
    assert!(text.contains("#EXT-X-MAP:URI=\"init.1.mp4\"\n"), "{text}");

    // Nothing to skip, or delta updates not offered: the whole playlist.
    assert_eq!(live(6).render(Skip::Yes), live(6).render(Skip::No));
    let not_offered = MediaPlaylist { delta_updates: false, ..live(9) };
    assert_eq!(not_offered.render(Skip::Yes), not_offered.render(Skip::No));
}

/// Audio segments begin at fractions of a millisecond, but players read dates in whole
/// milliseconds.
#[test]
fn a_date_is_written_once_and_in_an_update_where_rounding_costs_least() {
    let mut playlist = live(9);
    playlist.open.as_mut().expect("is open").date = None;
    for (n, segment) in playlist.segments.iter_mut().enumerate() {
        segment.date = Some(1_795_291_260_250_600 + n as u64 * 1_999_400);
        segment.duration = 179_946;
    }
    let dates = |text: &str| -> Vec<String> {
        let lines = text.lines();
        lines
            .filter_map(|line| line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(dates(&playlist.render(Skip::No)), ["2026-11-21T20:01:00.250Z"]);
    // The segments of an update begin 800, 200, 600, 0, 400 and 800 µs after milliseconds.
    let update = playlist.render(Skip::Yes);
    assert_eq!(dates(&update), ["2026-11-21T20:01:12.247Z"]);
    assert!(update.contains("12.247Z\n#EXT-X-PART:DURATION=0.500000,URI=\"16.0.m4s\""), "{update}");
    playlist.date_rounding = Rounding::Up;
    assert_eq!(dates(&playlist.render(Skip::No)), ["2026-11-21T20:01:00.251Z"]);
    // Where durations lead to another date, the date is written again.
    for (n, segment) in playlist.segments.iter_mut().enumerate() {
        segment.date = segment.date.map(|date| date + n as u64 / 4 * 9000);
    }
    let written =
        ["2026-11-21T20:01:00.251Z", "2026-11-21T20:01:08.258Z", "2026-11-21T20:01:16.264Z"];
    assert_eq!(dates(&playlist.render(Skip::No)), written);
}

#[test]
fn vod_playlist() {
    let segment = |msn: u64, duration| Segment {
        uri: format!("{msn}.m4s"),
        duration,
        map: Some("init.mp4".into()),
        date: None,
        discontinuity: false,
        gap: false,
        parts: vec![],
    };
    let playlist = MediaPlaylist {
        timescale: 30_000,
        target_duration: 4,
        media_sequence: 0,
        kind: Some(PlaylistType::Vod),
        independent_segments: true,
        i_frames_only: false,
        low_latency: None,
        blocking_reload: false,
        delta_updates: false,
        segments: vec![segment(0, 120_120), segment(1, 1001)],
        open: None,
        preload_hint: None,
        rendition_reports: vec![],
        ended: true,
        ..live(0)
    };
    assert_eq!(
        playlist.render(Skip::No),
        "#EXTM3U\n\
         #EXT-X-VERSION:6\n\
         #EXT-X-TARGETDURATION:4\n\
         #EXT-X-MEDIA-SEQUENCE:0\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n\
         #EXT-X-PLAYLIST-TYPE:VOD\n\
         #EXT-X-MAP:URI=\"init.mp4\"\n\
         #EXTINF:4.004000,\n\
         0.m4s\n\
         #EXTINF:0.033367,\n\
         1.m4s\n\
         #EXT-X-ENDLIST\n"
    );
    let mut i_frames = MediaPlaylist { i_frames_only: true, ..playlist };
    i_frames.segments.truncate(1);
    assert_eq!(
        i_frames.render(Skip::No),
        "#EXTM3U\n\
         #EXT-X-VERSION:6\n\
         #EXT-X-TARGETDURATION:4\n\
         #EXT-X-MEDIA-SEQUENCE:0\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n\
         #EXT-X-PLAYLIST-TYPE:VOD\n\
         #EXT-X-I-FRAMES-ONLY\n\
         #EXT-X-MAP:URI=\"init.mp4\"\n\
         #EXTINF:4.004000,\n\
         0.m4s\n\
         #EXT-X-ENDLIST\n"
    );
}

#[test]
fn multivariant_playlist() {
    let variant = |uri: &str, bandwidth| Variant {
        uri: uri.into(),
        bandwidth,
        average_bandwidth: Some(bandwidth / 2),
        codecs: vec!["avc1.64001f".into(), "mp4a.40.2".into()],
        resolution: Some((1280, 720)),
        frame_rate: Some((30_000, 1001)),
        audio: Some("audio".into()),
        subtitles: Some("text".into()),
    };
    let only_audio = Variant {
        uri: "a0/media.m3u8".into(),
        bandwidth: 130_000,
        codecs: vec!["mp4a.40.2".into()],
        ..Variant::default()
    };
    let mut playlist = MultivariantPlaylist {
        independent_segments: true,
        audio: vec![Audio {
            group: "audio".into(),
            name: "Director's \"cut\"".into(),
            language: Some("en".into()),
            default: true,
            channels: Some(2),
            uri: Some("a0/media.m3u8".into()),
        }],
        subtitles: vec![
            Subtitles {
                group: "text".into(),
                name: "Deutsch".into(),
                language: Some("de".into()),
                default: false,
                forced: true,
                uri: "t0/media.m3u8".into(),
            },
            Subtitles {
                group: "text".into(),
                name: "t1".into(),
                uri: "t1/media.m3u8".into(),
                ..Subtitles::default()
            },
        ],
        variants: vec![
            only_audio,
            variant("v1/media.m3u8", 1_000_000),
            variant("v0/media.m3u8", 3_000_000),
        ],
        i_frames: [("v1/iframes.m3u8", 90_000), ("v0/iframes.m3u8", 300_000)]
            .map(|(uri, bandwidth)| IFrames {
                uri: uri.into(),
                bandwidth,
                average_bandwidth: Some(bandwidth / 3),
                codecs: "avc1.64001f".into(),
                resolution: Some((1280, 720)),
            })
            .into(),
    };
    assert_eq!(
        playlist.render(),
        "#EXTM3U\n\
         #EXT-X-VERSION:6\n\
         #EXT-X-INDEPENDENT-SEGMENTS\n\
         #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"Director's 'cut'\",LANGUAGE=\"en\",\
         DEFAULT=YES,AUTOSELECT=YES,CHANNELS=\"2\",URI=\"a0/media.m3u8\"\n\
         #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"text\",NAME=\"Deutsch\",LANGUAGE=\"de\",\
         DEFAULT=NO,AUTOSELECT=YES,FORCED=YES,URI=\"t0/media.m3u8\"\n\
         #EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"text\",NAME=\"t1\",DEFAULT=NO,AUTOSELECT=YES,\
         URI=\"t1/media.m3u8\"\n\
         #EXT-X-STREAM-INF:BANDWIDTH=3000000,AVERAGE-BANDWIDTH=1500000,\
         CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=1280x720,FRAME-RATE=29.970,AUDIO=\"audio\",\
         SUBTITLES=\"text\"\n\
         v0/media.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH=1000000,AVERAGE-BANDWIDTH=500000,\
         CODECS=\"avc1.64001f,mp4a.40.2\",RESOLUTION=1280x720,FRAME-RATE=29.970,AUDIO=\"audio\",\
         SUBTITLES=\"text\"\n\
         v1/media.m3u8\n\
         #EXT-X-STREAM-INF:BANDWIDTH=130000,CODECS=\"mp4a.40.2\"\n\
         a0/media.m3u8\n\
         #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=300000,AVERAGE-BANDWIDTH=100000,\
         CODECS=\"avc1.64001f\",RESOLUTION=1280x720,URI=\"v0/iframes.m3u8\"\n\
         #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=90000,AVERAGE-BANDWIDTH=30000,\
         CODECS=\"avc1.64001f\",RESOLUTION=1280x720,URI=\"v1/iframes.m3u8\"\n"
    );
    let promised = playlist.render();
    playlist.independent_segments = false;
    assert_eq!(playlist.render(), promised.replace("#EXT-X-INDEPENDENT-SEGMENTS\n", ""));
}

#[test]
fn queries() {
    let request = |msn, part, skip| Ok(Request { msn, part, skip });
    for (query, expected) in [
        ("", request(None, None, Skip::No)),
        ("token=abc&x", request(None, None, Skip::No)),
        ("_HLS_msn=12", request(Some(12), None, Skip::No)),
        ("_HLS_msn=12&_HLS_part=3", request(Some(12), Some(3), Skip::No)),
        ("_HLS_part=3&a=b&_HLS_msn=12", request(Some(12), Some(3), Skip::No)),
        ("_HLS_skip=YES", request(None, None, Skip::Yes)),
        ("_HLS_msn=1&_HLS_skip=v2", request(Some(1), None, Skip::V2)),
        ("_HLS_msn=18446744073709551615", request(Some(u64::MAX), None, Skip::No)),
        ("_HLS_msn=18446744073709551616", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn=", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn=+1", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn=-1", Err(RequestError::Number("_HLS_msn"))),
        ("_HLS_msn=1&_HLS_part=x", Err(RequestError::Number("_HLS_part"))),
        ("_HLS_msn=1&_HLS_msn=2", Err(RequestError::Twice("_HLS_msn"))),
        ("_HLS_part=1", Err(RequestError::PartWithoutSegment)),
        ("_HLS_skip=NO", Err(RequestError::Skip)),
        ("_HLS_skip=yes", Err(RequestError::Skip)),
    ] {
        assert_eq!(Request::parse(query), expected, "{query}");
    }
}

#[test]
fn decisions() {
    // Segments 10 to 13, four parts each; segment 14 has one part so far. Parts of half a
    // second: at most six parts ahead.
    let state = live(4).state();
    assert_eq!(
        state,
        State {
            open_msn: 14,
            open_parts: 1,
            last_segment_parts: 4,
            part_target_micros: Some(500_000),
            ended: false,
        }
    );
    let wait = |msn, part| Decision::Wait { msn, part };
    for (msn, part, expected) in [
        (None, None, Decision::Now),
        // Gone long ago, and complete.
        (Some(0), None, Decision::Now),
        (Some(0), Some(99), Decision::Now),
        (Some(13), None, Decision::Now),
        (Some(13), Some(3), Decision::Now),
        (Some(12), Some(4), Decision::Now),
        // A part behind the end of 13 means part 0 of 14, which exists.
        (Some(13), Some(4), Decision::Now),
        (Some(13), Some(99), Decision::Now),
        // The open segment.
        (Some(14), Some(0), Decision::Now),
        (Some(14), Some(1), wait(14, Some(1))),
        (Some(14), Some(6), wait(14, Some(6))),
        (Some(14), Some(7), Decision::TooFar),
        (Some(14), Some(u64::MAX), Decision::TooFar),
        (Some(14), None, wait(14, None)),
        // The segment after the open one: two more than the last complete segment.
        (Some(15), Some(0), wait(15, Some(0))),
        (Some(15), Some(5), wait(15, Some(5))),
        (Some(15), Some(6), Decision::TooFar),
        (Some(15), None, wait(15, None)),
        (Some(16), None, Decision::TooFar),
        (Some(16), Some(0), Decision::TooFar),
        (Some(u64::MAX), Some(u64::MAX), Decision::TooFar),
    ] {
        let request = Request { msn, part, skip: Skip::No };
        assert_eq!(request.decide(&state), expected, "{request:?}");
        let ended = State { ended: true, ..state };
        assert_eq!(request.decide(&ended), Decision::Now, "{request:?}");
    }

    // Segment 14 complete with two parts, 15 not begun.
    let state = State { open_msn: 15, open_parts: 0, last_segment_parts: 2, ..state };
    for (msn, part, expected) in [
        (14, None, Decision::Now),
        (14, Some(1), Decision::Now),
        // A player that expected four parts waits for part 0 of 15.
        (14, Some(2), wait(15, Some(0))),
        (14, Some(99), wait(15, Some(0))),
        (15, Some(0), wait(15, Some(0))),
        (16, None, wait(16, None)),
        (17, None, Decision::TooFar),
    ] {
        let request = Request { msn: Some(msn), part, skip: Skip::No };
        assert_eq!(request.decide(&state), expected, "{request:?}");
    }

    // Parts of a second or more: at most three ahead.
    let slow = State { part_target_micros: Some(1_000_000), ..state };
    let request = |part| Request { msn: Some(15), part: Some(part), skip: Skip::No };
    assert_eq!(request(2).decide(&slow), wait(15, Some(2)));
    assert_eq!(request(3).decide(&slow), Decision::TooFar);

    // In a playlist without parts, the player waits for the segment itself. The stream has just
    // begun.
    let plain = State { part_target_micros: None, open_msn: 0, last_segment_parts: 0, ..state };
    let request = |msn| Request { msn: Some(msn), part: Some(0), skip: Skip::No };
    assert_eq!(request(0).decide(&plain), wait(0, None));
    assert_eq!(request(1).decide(&plain), wait(1, None));
    assert_eq!(request(2).decide(&plain), Decision::TooFar);
}

/// Contents of a media playlist, as another parser reads it.
#[derive(Debug, Default)]
struct Read {
    tags: Vec<String>,
    version: u64,
    target_duration: u64,
    media_sequence: u64,
    discontinuity_sequence: u64,
    part_target: Option<f64>,
    control: Control,
    skipped: u64,
    segments: Vec<ReadSegment>,
    /// Parts behind the last segment.
    open: ReadSegment,
    hint: Option<String>,
    reports: Vec<(String, u64, Option<u64>)>,
    ended: bool,
    independent_segments: bool,
    i_frames_only: bool,
}

/// EXT-X-SERVER-CONTROL.
#[derive(Debug, Default)]
struct Control {
    blocks: bool,
    part_hold_back: Option<f64>,
    hold_back: Option<f64>,
    can_skip_until: Option<f64>,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct ReadSegment {
    uri: String,
    micros: u64,
    map: Option<String>,
    second: Option<f64>,
    discontinuity: bool,
    gap: bool,
    parts: Vec<(String, u64, bool, bool)>,
}

/// Microseconds from six printed decimals.
fn printed_micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

fn read(text: &str) -> Read {
    let options = ParsingOptionsBuilder::new().with_parsing_for_all_tags().build();
    let mut reader = Reader::from_str(text, options);
    let mut read = Read::default();
    let mut segment = ReadSegment::default();
    while let Some(line) = reader.read_line().expect("every line is well formed") {
        let tag = match line {
            HlsLine::Uri(uri) => {
                segment.uri = uri.into_owned();
                read.segments.push(std::mem::take(&mut segment));
                continue;
            }
            HlsLine::KnownTag(KnownTag::Hls(tag)) => tag,
            other => panic!("unexpected {other:?}"),
        };
        match tag {
            Tag::Version(tag) => read.version = tag.version(),
            Tag::Targetduration(tag) => read.target_duration = tag.target_duration(),
            Tag::MediaSequence(tag) => read.media_sequence = tag.media_sequence(),
            Tag::DiscontinuitySequence(tag) => {
                read.discontinuity_sequence = tag.discontinuity_sequence();
            }
            Tag::PartInf(tag) => read.part_target = Some(tag.part_target()),
            Tag::ServerControl(tag) => {
                read.control = Control {
                    blocks: tag.can_block_reload(),
                    part_hold_back: tag.part_hold_back(),
                    hold_back: tag.hold_back(),
                    can_skip_until: tag.can_skip_until(),
                };
            }
            Tag::Skip(tag) => read.skipped = tag.skipped_segments(),
            Tag::Inf(tag) => segment.micros = printed_micros(tag.duration()),
            Tag::Map(tag) => segment.map = Some(tag.uri().into()),
            Tag::ProgramDateTime(tag) => {
                segment.second = Some(tag.program_date_time().time_second);
            }
            Tag::Discontinuity(_) => segment.discontinuity = true,
            Tag::Gap(_) => segment.gap = true,
            Tag::Part(tag) => segment.parts.push((
                tag.uri().into(),
                printed_micros(tag.duration()),
                tag.independent(),
                tag.gap(),
            )),
            Tag::PreloadHint(tag) => read.hint = Some(tag.uri().into()),
            Tag::RenditionReport(tag) => {
                read.reports.push((tag.uri().into(), tag.last_msn(), tag.last_part()));
            }
            Tag::Endlist(_) => read.ended = true,
            Tag::IndependentSegments(_) => read.independent_segments = true,
            Tag::IFramesOnly(_) => read.i_frames_only = true,
            Tag::M3u(_) | Tag::PlaylistType(_) => read.tags.push(format!("{tag:?}")),
            other => panic!("unexpected {other:?}"),
        }
    }
    read.open = segment;
    read
}

prop_compose! {
    fn parts()(parts in prop::collection::vec((1..90_000u64, any::<bool>(), any::<bool>()), 0..6))
        -> Vec<Part> {
        let named = parts.into_iter().enumerate();
        named.map(|(n, (duration, independent, gap))| Part {
            uri: format!("p{n}.m4s?a=\u{e9},b"), duration, independent, gap,
        }).collect()
    }
}

prop_compose! {
    fn playlist()(
        timescale in prop_oneof![Just(1u32), Just(44_100), Just(90_000), Just(30_000), 1..u32::MAX],
        target_duration in 1..10u32,
        media_sequence in 0..1u64 << 60,
        discontinuity_sequence in 0..9u64,
        low_latency in prop::option::of((1..200_000u64, 1..400_000u64)),
        switches in any::<[bool; 6]>(),
        segments in prop::collection::vec(
            (parts(), 0..2u8, prop::option::of(0..1u64 << 42), any::<bool>(), any::<bool>(), 1..900_000u64),
            0..20,
        ),
        open in prop::option::of((parts(), 0..2u8, any::<bool>())),
        hint in prop::option::of("[a-z.\" ]{1,9}"),
        reports in prop::collection::vec(("[a-z/.]{1,9}", any::<u64>(), prop::option::of(0..9u64)), 0..3),
    ) -> MediaPlaylist {
        let map = |n: u8| Some(Arc::from(format!("init.{n}.mp4")));
        let mut segments: Vec<_> = segments.into_iter().enumerate().map(|(n, (parts, m, date, discontinuity, gap, alone))| Segment {
            uri: format!("{n}.m4s"),
            duration: if parts.is_empty() {
                alone
            } else {
                parts.iter().map(|part| part.duration).sum()
            },
            map: map(m),
            date,
            discontinuity,
            gap,
            parts,
        }).collect();
        // Dates up to 3 ms off those that follow from the durations.
        let mut clock = 1_700_000_000_000_000;
        for segment in &mut segments {
            segment.date = segment.date.map(|random| clock + random % 3000);
            clock += segment.duration * 1_000_000 / u64::from(timescale);
        }
        MediaPlaylist {
            timescale,
            target_duration,
            media_sequence,
            discontinuity_sequence,
            kind: None,
            independent_segments: switches[4],
            i_frames_only: switches[5],
            low_latency: low_latency.map(|(part_target, part_hold_back)| LowLatency {
                part_target, part_hold_back,
            }),
            blocking_reload: switches[0],
            delta_updates: switches[1],
            date_rounding: if switches[2] { Rounding::Down } else { Rounding::Up },
            segments,
            open: open.map(|(parts, m, discontinuity)| OpenSegment {
                map: map(m), date: None, discontinuity, parts,
            }),
            preload_hint: hint,
            rendition_reports: reports.into_iter().map(|(uri, last_msn, last_part)| {
                RenditionReport { uri, last_msn, last_part }
            }).collect(),
            ended: switches[3],
        }
    }
}

proptest! {
    #[test]
    fn another_parser_reads_the_same(model in playlist(), skip in any::<bool>()) {
        let text = model.render(if skip { Skip::Yes } else { Skip::No });
        let read = read(&text);
        prop_assert_eq!(read.tags.len(), 1, "EXTM3U and nothing else");
        prop_assert_eq!(read.version, if model.delta_updates { 9 } else { 6 });
        prop_assert_eq!(read.target_duration, u64::from(model.target_duration));
        prop_assert_eq!(read.media_sequence, model.media_sequence);
        prop_assert_eq!(read.discontinuity_sequence, model.discontinuity_sequence);
        prop_assert_eq!(read.part_target.is_some(), model.low_latency.is_some());
        prop_assert_eq!(read.ended, model.ended);
        prop_assert_eq!(read.independent_segments, model.independent_segments);
        prop_assert_eq!(read.i_frames_only, model.i_frames_only);
        let hint = model.preload_hint.as_ref().filter(|_| !model.ended);
        prop_assert_eq!(read.hint, hint.map(|hint| hint.replace('"', "'")));
        let reports = model.rendition_reports.iter();
        let reports: Vec<_> = reports.map(|r| (r.uri.clone(), r.last_msn, r.last_part)).collect();
        prop_assert_eq!(read.reports, reports);

        let seconds = |ticks: u64| ticks as f64 / f64::from(model.timescale);
        let control = &read.control;
        prop_assert_eq!(control.blocks, model.blocking_reload);
        let target = f64::from(model.target_duration);
        prop_assert_eq!(control.can_skip_until, model.delta_updates.then_some(6.0 * target));
        prop_assert_eq!(control.hold_back, model.low_latency.map(|_| 3.0 * target));
        if let (Some(read), Some(model)) = (control.part_hold_back, model.low_latency) {
            prop_assert!((read - seconds(model.part_hold_back)).abs() <= 1e-6);
        }

        // Segments are skipped only with at least six target durations behind them.
        let skipped = read.skipped as usize;
        prop_assert!(skipped == 0 || (skip && model.delta_updates));
        prop_assert_eq!(read.segments.len() + skipped, model.segments.len());
        let open = model.open.clone().unwrap_or_default();
        let after = |index: usize| -> f64 {
            let segments: u64 = model.segments[index..].iter().map(|s| s.duration).sum();
            let open: u64 = open.parts.iter().map(|p| p.duration).sum();
            seconds(segments + open)
        };
        prop_assert!(skipped == 0 || after(skipped) >= 6.0 * target);

        let mut map = model.segments[..skipped].iter().rev().find_map(|s| s.map.as_deref());
        // The date that players compute.
        let mut told = None;
        for (index, (read, segment)) in
            read.segments.iter().zip(&model.segments[skipped..]).enumerate()
        {
            prop_assert_eq!(&read.uri, &segment.uri);
            prop_assert!((read.micros as f64 - seconds(segment.duration) * 1e6).abs() <= 0.51 + read.micros as f64 * 1e-9);
            prop_assert_eq!(read.discontinuity, segment.discontinuity);
            prop_assert_eq!(read.gap, segment.gap);
            prop_assert_eq!(read.map.as_deref(), segment.map.as_deref().filter(|&m| map != Some(m)));
            map = segment.map.as_deref();
            if let (Some(second), Some(date)) = (read.second, segment.date) {
                let round = |date: u64| match model.date_rounding {
                    Rounding::Down => date / 1000,
                    Rounding::Up => date.div_ceil(1000),
                };
                prop_assert_eq!(printed_micros(second), round(date) * 1000 % 60_000_000);
                told = Some(round(date) * 1000);
            }
            // Where durations lead to another date, the date is written.
            if let (Some(told), Some(date)) = (told, segment.date) {
                prop_assert!(told.abs_diff(date) <= 1500);
            }
            prop_assert!(read.second.is_some() || !segment.discontinuity || segment.date.is_none());
            told = told.map(|told| told + read.micros);
            // Either all parts of a segment are listed or none, and only near the end.
            let near = model.low_latency.is_some() && after(skipped + index + 1) < 3.0 * target;
            prop_assert_eq!(read.parts.len(), if near { segment.parts.len() } else { 0 });
            if !read.parts.is_empty() {
                let sum: u64 = read.parts.iter().map(|part| part.1).sum();
                prop_assert_eq!(sum, read.micros, "parts add up to the printed digit");
            }
            same_parts(&read.parts, &segment.parts, read.parts.len(), model.timescale)?;
        }
        if model.low_latency.is_some() {
            same_parts(&read.open.parts, &open.parts, open.parts.len(), model.timescale)?;
            prop_assert_eq!(read.open.discontinuity, open.discontinuity);
        } else {
            prop_assert_eq!(read.open, ReadSegment::default());
        }
        if let (Some(target), Some(low_latency)) = (read.part_target, model.low_latency) {
            let parts = read.segments.iter().flat_map(|s| &s.parts);
            let within = model.segments.iter().flat_map(|s| &s.parts).all(|p| p.duration <= low_latency.part_target);
            if within {
                for part in parts {
                    prop_assert!(part.1 <= printed_micros(target), "{part:?} {target}");
                }
            }
        }
    }

    #[test]
    fn parsing_and_deciding_never_panic(
        query in "(_HLS_msn|_HLS_part|_HLS_skip|&|=|[0-9]{1,21}|YES|v2|\\PC){0,12}",
        open_msn in any::<u64>(),
        open_parts in any::<u64>(),
        last_segment_parts in any::<u64>(),
        part_target_micros in any::<Option<u64>>(),
        ended in any::<bool>(),
    ) {
        let state = State { open_msn, open_parts, last_segment_parts, part_target_micros, ended };
        if let Ok(request) = Request::parse(&query) {
            match request.decide(&state) {
                // The awaited segment or part does not exist yet, but is near.
                Decision::Wait { msn, .. } => {
                    prop_assert!(msn >= open_msn && msn - open_msn <= 1 && !ended);
                }
                Decision::TooFar => prop_assert!(request.msn.is_some() && !ended),
                Decision::Now => {}
            }
        }
    }

    #[test]
    fn another_parser_reads_the_same_variants(
        audio in prop::collection::vec(
            (".{0,8}", prop::option::of("[a-z]{2,3}"), any::<bool>(), prop::option::of(1..9u16)),
            0..3,
        ),
        variants in prop::collection::vec(
            (
                1..u64::MAX, prop::option::of(1..u64::MAX), prop::option::of((1..9999u32, 1..9999u32)),
                prop::option::of((1..1_000_000u32, 1..2000u32)), any::<bool>(),
            ),
            0..5,
        ),
        subtitles in prop::collection::vec(
            (".{0,8}", prop::option::of("[a-z]{2,3}"), any::<bool>(), any::<bool>()),
            0..3,
        ),
        i_frames in prop::collection::vec(
            (
                1..u64::MAX, prop::option::of(1..u64::MAX), "[a-z0-9.]{1,9}",
                prop::option::of((1..9999u32, 1..9999u32)),
            ),
            0..3,
        ),
    ) {
        let model = MultivariantPlaylist {
            independent_segments: true,
            audio: audio.into_iter().enumerate().map(|(n, (name, language, default, channels))| Audio {
                group: "a".into(),
                name,
                language,
                default,
                channels,
                uri: Some(format!("a{n}/media.m3u8")),
            }).collect(),
            variants: variants.into_iter().enumerate().map(
                |(n, (bandwidth, average_bandwidth, resolution, frame_rate, audio))| Variant {
                    uri: format!("v{n}/media.m3u8"),
                    bandwidth,
                    average_bandwidth,
                    codecs: vec!["hvc1.1.6.L93.B0".into(), "opus".into()],
                    resolution,
                    frame_rate,
                    audio: audio.then(|| "a".into()),
                    subtitles: (!audio).then(|| "t".into()),
                },
            ).collect(),
            subtitles: subtitles.into_iter().enumerate().map(
                |(n, (name, language, default, forced))| Subtitles {
                    group: "t".into(), name, language, default, forced,
                    uri: format!("t{n}/media.m3u8"),
                },
            ).collect(),
            i_frames: i_frames.into_iter().enumerate().map(
                |(n, (bandwidth, average_bandwidth, codecs, resolution))| IFrames {
                    uri: format!("v{n}/iframes.m3u8"),
                    bandwidth, average_bandwidth, codecs, resolution,
                },
            ).collect(),
        };
        let text = model.render();
        let options = ParsingOptionsBuilder::new().with_parsing_for_all_tags().build();
        let mut reader = Reader::from_str(&text, options);
        let printed = |name: &str| -> String {
            let held = |c: char| if c == '"' { '\'' } else if c.is_control() { ' ' } else { c };
            name.chars().map(held).collect()
        };
        let mut media = model.audio.iter();
        let mut subtitles = model.subtitles.iter();
        let mut i_frames: Vec<_> = model.i_frames.iter().collect();
        i_frames.sort_by_key(|i| std::cmp::Reverse(i.bandwidth));
        let mut i_frames = i_frames.into_iter();
        let mut sorted: Vec<_> = model.variants.iter().collect();
        sorted.sort_by_key(|v| std::cmp::Reverse(v.bandwidth));
        let mut variants = sorted.iter();
        let mut uris = sorted.iter();
        while let Some(line) = reader.read_line().expect("every line is well formed") {
            match line {
                HlsLine::KnownTag(KnownTag::Hls(Tag::Media(read)))
                    if read.media_type() == tag::EnumeratedString::Known(tag::MediaType::Subtitles) =>
                {
                    let text = subtitles.next().expect("is in the model");
                    prop_assert_eq!(read.name(), printed(&text.name));
                    prop_assert_eq!(read.group_id(), &text.group);
                    prop_assert_eq!(read.language(), text.language.as_deref());
                    prop_assert_eq!(read.default(), text.default);
                    prop_assert_eq!(read.forced(), text.forced);
                    prop_assert_eq!(read.uri(), Some(text.uri.as_str()));
                }
                HlsLine::KnownTag(KnownTag::Hls(Tag::IFrameStreamInf(read))) => {
                    let model = i_frames.next().expect("is in the model");
                    prop_assert_eq!(read.uri(), &model.uri);
                    prop_assert_eq!(read.bandwidth(), model.bandwidth);
                    prop_assert_eq!(read.average_bandwidth(), model.average_bandwidth);
                    prop_assert_eq!(read.codecs(), Some(model.codecs.as_str()));
                    let size = read.resolution().map(|r| (r.width as u32, r.height as u32));
                    prop_assert_eq!(size, model.resolution);
                }
                HlsLine::KnownTag(KnownTag::Hls(Tag::Media(read))) => {
                    let audio = media.next().expect("is in the model");
                    prop_assert_eq!(read.name(), printed(&audio.name));
                    prop_assert_eq!(read.language(), audio.language.as_deref());
                    prop_assert_eq!(read.default(), audio.default);
                    prop_assert_eq!(read.uri(), audio.uri.as_deref());
                    let count = read.channels().and_then(|c| c.valid().map(|c| c.count()));
                    prop_assert_eq!(count, audio.channels.map(u32::from));
                }
                HlsLine::KnownTag(KnownTag::Hls(Tag::StreamInf(read))) => {
                    let variant = variants.next().expect("is in the model");
                    prop_assert_eq!(read.bandwidth(), variant.bandwidth);
                    prop_assert_eq!(read.average_bandwidth(), variant.average_bandwidth);
                    prop_assert_eq!(read.codecs(), Some("hvc1.1.6.L93.B0,opus"));
                    prop_assert_eq!(read.audio(), variant.audio.as_deref());
                    prop_assert_eq!(read.subtitles(), variant.subtitles.as_deref());
                    let size = read.resolution().map(|r| (r.width as u32, r.height as u32));
                    prop_assert_eq!(size, variant.resolution);
                    prop_assert_eq!(read.frame_rate().is_some(), variant.frame_rate.is_some());
                    if let (Some(read), Some((frames, seconds))) = (read.frame_rate(), variant.frame_rate) {
                        let rate = f64::from(frames) / f64::from(seconds);
                        prop_assert!((read - rate).abs() <= 0.000_501, "{read} {rate}");
                    }
                }
                HlsLine::Uri(uri) => {
                    prop_assert_eq!(&uri, &uris.next().expect("is in the model").uri);
                }
                HlsLine::KnownTag(KnownTag::Hls(
                    Tag::M3u(tag::M3u) | Tag::Version(_) | Tag::IndependentSegments(_),
                )) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        prop_assert!(media.next().is_none() && variants.next().is_none() && uris.next().is_none());
        prop_assert!(subtitles.next().is_none() && i_frames.next().is_none());
    }
}

fn same_parts(
    read: &[(String, u64, bool, bool)],
    model: &[Part],
    count: usize,
    timescale: u32,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(read.len(), count);
    for (read, part) in read.iter().zip(model) {
        prop_assert_eq!(&read.0, &part.uri);
        let micros = part.duration as f64 * 1e6 / f64::from(timescale);
        prop_assert!((read.1 as f64 - micros).abs() <= 1.001 + micros * 1e-9, "{read:?} {micros}");
        prop_assert_eq!((read.2, read.3), (part.independent, part.gap));
    }
    Ok(())
}
