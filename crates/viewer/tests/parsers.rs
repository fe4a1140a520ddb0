//! The viewer's parsers, compared with those of other projects, and tested with any input.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use protocol::hls::{LowLatency, MediaPlaylist, OpenSegment, Part, Rounding, Segment, Skip};
use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::Tag;
use quick_m3u8::{HlsLine, Reader};
use support::AudioClip;
use viewer::hls::{self, Playlist};
use viewer::verify::{Cmaf, Feed};
use viewer::{Verified, mpd, skim};

/// URIs and durations of segments and parts, as another parser reads them.
type Listed = Vec<(String, i64)>;

fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

fn other(text: &str) -> (Listed, Listed) {
    let options = ParsingOptionsBuilder::new().with_parsing_for_all_tags().build();
    let mut reader = Reader::from_str(text, options);
    let (mut segments, mut parts, mut duration) = (Vec::new(), Vec::new(), 0);
    while let Some(line) = reader.read_line().unwrap() {
        match line {
            HlsLine::Uri(uri) => segments.push((uri.into_owned(), duration)),
            HlsLine::KnownTag(KnownTag::Hls(Tag::Inf(tag))) => duration = micros(tag.duration()),
            HlsLine::KnownTag(KnownTag::Hls(Tag::Part(tag))) => {
                parts.push((tag.uri().to_string(), micros(tag.duration())));
            }
            _ => {}
        }
    }
    (segments, parts)
}

fn ours(text: &str) -> (Listed, Listed) {
    let Playlist::Media(media) = hls::parse(text).unwrap() else { panic!("{text}") };
    (
        media.segments.iter().map(|s| (s.place.uri.to_owned(), s.duration)).collect(),
        media.parts.iter().map(|p| (p.place.uri.to_owned(), p.duration)).collect(),
    )
}

prop_compose! {
    fn playlist()(
        timescale in prop::sample::select(vec![1000u32, 44_100, 48_000, 90_000]),
        segments in prop::collection::vec((prop::collection::vec(1u64..100_000, 1..5), any::<bool>(), any::<bool>()), 0..12),
        open in prop::collection::vec(1u64..100_000, 0..4),
        first in 0u64..1 << 40,
        ended in any::<bool>(),
        date in prop::option::of(1_000_000_000_000u64..2_000_000_000_000),
    ) -> MediaPlaylist {
        let parts = |msn: u64, durations: &[u64]| -> Vec<Part> {
            let part = |(number, &duration): (usize, &u64)| Part {
                uri: format!("{msn}.{number}.m4s?a='b,c"),
                duration,
                independent: number == 0,
                gap: false,
            };
            durations.iter().enumerate().map(part).collect()
        };
        let map: Arc<str> = "init, 0.mp4".into();
        // A date that is a minute later after each discontinuity.
        let date_at = |index: usize| {
            let before: u64 = segments[..index].iter().flat_map(|(durations, ..)| durations).sum();
            let cuts = segments.iter().take(index + 1).filter(|(_, cut, _)| *cut).count() as u64;
            date.map(|date| date + before * 1_000_000 / u64::from(timescale) + cuts * 60_000_000)
        };
        let listed: Vec<Segment> = segments.iter().zip(first..).enumerate().map(|(index, ((durations, cut, gap), msn))| Segment {
            uri: format!("{msn}.m4s"),
            duration: durations.iter().sum(),
            map: Some(map.clone()),
            date: date_at(index),
            discontinuity: *cut,
            gap: *gap,
            parts: parts(msn, durations),
        }).collect();
        let next = first + segments.len() as u64;
        MediaPlaylist {
            timescale,
            target_duration: 400,
            media_sequence: first,
            discontinuity_sequence: 0,
            kind: None,
            independent_segments: false,
            i_frames_only: false,
            low_latency: Some(LowLatency { part_target: 100_000, part_hold_back: 300_000 }),
            blocking_reload: true,
            delta_updates: true,
            date_rounding: Rounding::Down,
            open: Some(OpenSegment { map: Some(map), date: date_at(segments.len()), discontinuity: false, parts: parts(next, &open) }),
            segments: listed,
            preload_hint: (!ended).then(|| format!("{next}.{}.m4s", open.len())),
            rendition_reports: vec![],
            ended,
        }
    }
}

/// A damaged playlist.
fn damaged_playlist() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("#EXTM3U".to_owned()),
        Just("#EXT-X-ENDLIST".to_owned()),
        "#EXTINF:[0-9.,-]{0,12}",
        "#EXT-X-(PART|MAP|STREAM-INF|SKIP|BYTERANGE|PRELOAD-HINT|MEDIA|SERVER-CONTROL|MEDIA-SEQUENCE|TARGETDURATION|PROGRAM-DATE-TIME):[A-Z=\",0-9@é.x-]{0,30}",
        "[a-z/.?]{0,8}",
    ];
    prop::collection::vec(line, 0..30).prop_map(|lines| format!("#EXTM3U\n{}", lines.join("\n")))
}

proptest! {
    #[test]
    fn playlists_are_read_as_another_parser_reads_them(playlist in playlist(), skip in any::<bool>()) {
        let text = playlist.render(if skip { Skip::Yes } else { Skip::No });
        prop_assert_eq!(ours(&text), other(&text));
        let Playlist::Media(media) = hls::parse(&text).unwrap() else { panic!() };
        prop_assert_eq!(media.open_number(), playlist.media_sequence + playlist.segments.len() as u64);
        prop_assert_eq!(media.ended, playlist.ended);
        prop_assert_eq!(media.hint.is_some(), playlist.preload_hint.is_some());
        for (read, written) in media.segments.iter().rev().zip(playlist.segments.iter().rev()) {
            // Exact to the millisecond; durations are exact to the microsecond.
            let near = |(read, written): (i64, u64)| read.abs_diff(written as i64) < 1100;
            prop_assert!(read.date.is_some() == written.date.is_some());
            prop_assert!(read.date.zip(written.date).is_none_or(near), "{read:?} {written:?}");
            prop_assert_eq!((read.discontinuity, read.gap), (written.discontinuity, written.gap));
        }
    }

    #[test]
    fn damaged_playlists_do_no_harm(text in damaged_playlist()) {
        if let Ok(Playlist::Media(media)) = hls::parse(&text) {
            for segment in media.segments.iter().chain([&media.open]) {
                prop_assert!(media.parts.get(segment.parts.clone()).is_some());
            }
        }
    }

    #[test]
    fn damaged_manifests_do_no_harm(
        text in "(<MPD type=\"(dynamic|static)\" availabilityStartTime=\"1970-01-01T00:00:00Z\">)?(<(Period|AdaptationSet|Representation|SegmentTemplate|SegmentTimeline|S|BaseURL|/S|/Period|/MPD)( (t|d|r|duration|timescale|media|startNumber|start|id)=\"[-0-9PTS$a-zA-Z%]{0,12}\"){0,3}/?>){0,20}",
    ) {
        let _ = mpd::parse(&text);
    }

    #[test]
    fn damaged_media_do_no_harm(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        split in 1usize..300,
    ) {
        let clip = AudioClip::new(2);
        let mut mp4 = [&clip.header()[..], &clip.fragment(0), &clip.fragment(1)].concat();
        let mut flv = clip.flv();
        for file in [&mut mp4, &mut flv] {
            let index = at.index(file.len());
            file[index] = byte;
            file.truncate(cut.index(file.len()) + 1);
        }
        let mut skimmer = skim::Mp4::default();
        let mut feed = Feed::new(None);
        let mut counts = Verified::default();
        for piece in mp4.chunks(split) {
            let _ = feed.read(piece, &mut counts, &mut |_| {});
            if skimmer.read(piece, &mut |_| {}).is_err() {
                break;
            }
        }
        let _ = feed.finish();
        let mut skimmer = skim::Flv::default();
        for piece in flv.chunks(split) {
            if skimmer.read(piece, &mut |_| {}).is_err() {
                break;
            }
        }
        let mut cmaf = Cmaf::new(None);
        let _ = cmaf.header(&mp4, &mut counts);
        let _ = cmaf.media(&Bytes::from(mp4), &mut counts, &mut |_| {});
    }

    #[test]
    fn skimmers_see_what_the_readers_see_in_any_pieces(split in 1usize..5000) {
        let clip = AudioClip::new(3);
        let mut tags = Vec::new();
        let mut skimmer = skim::Flv::default();
        for piece in clip.flv().chunks(split) {
            skimmer.read(piece, &mut |event| match event {
                skim::FlvEvent::Tag(tag) => tags.push(tag),
                skim::FlvEvent::Metadata(metadata) => panic!("{metadata:?}"),
            }).unwrap();
        }
        let mut reader = media::flv::Reader::new();
        reader.handle_bytes(&clip.flv());
        let mut expected = Vec::new();
        while let Some(tag) = reader.poll_tag().unwrap() {
            expected.push((tag.timestamp, [tag.payload[0], tag.payload[1]]));
        }
        let found: Vec<_> = tags.iter().map(|tag| (tag.timestamp, tag.start)).collect();
        prop_assert_eq!(found, expected);

        let file = [&clip.header()[..], &clip.fragment(0), &clip.stamped(1, 5_000_000), &clip.fragment(2)].concat();
        let mut fragments = Vec::new();
        let mut skimmer = skim::Mp4::default();
        for piece in file.chunks(split) {
            skimmer.read(piece, &mut |event| if let skim::Mp4Event::Fragment(fragment) = event {
                fragments.push(fragment);
            }).unwrap();
        }
        let of = |number: u64, captured| skim::Fragment {
            track_id: 2,
            decode_time: number * 24 * 1024,
            duration: 24 * 1024,
            captured,
            stamps: None,
        };
        prop_assert_eq!(fragments.len(), 3);
        prop_assert_eq!(fragments[0], of(0, None));
        prop_assert_eq!(fragments[2], of(2, None));
        let (unix, media) = fragments[1].captured.unwrap();
        prop_assert_eq!(media, 24 * 1024);
        // NTP counts in parts of 2^32, so a microsecond may be lost.
        prop_assert!((unix - 5_000_000).abs() <= 1);
    }
}

#[test]
fn a_manifest_is_read_as_another_parser_reads_it() {
    let text = r#"<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" profiles="p"
          minBufferTime="PT1S" mediaPresentationDuration="PT1H2M3.5S">
        <Period id="p"><AdaptationSet id="1" contentType="video" mimeType="video/mp4">
        <SegmentTemplate timescale="30000" startNumber="3" initialization="$RepresentationID$.mp4"
          media="$RepresentationID$/$Time$.m4s" presentationTimeOffset="15">
        <SegmentTimeline><S t="15" d="60000" r="4"/><S d="1"/></SegmentTimeline></SegmentTemplate>
        <Representation id="v0" bandwidth="1000" codecs="avc1.64001f"/>
        <Representation id="v1" bandwidth="2000" codecs="avc1.64001f"/>
        </AdaptationSet></Period></MPD>"#;
    let (ours, other) = (mpd::parse(text).unwrap(), dash_mpd_core::parse(text).unwrap());
    let set = &other.periods[0].adaptations[0];
    let template = set.SegmentTemplate.as_ref().unwrap();
    let read = ours.periods[0].representations[1].template.as_ref().unwrap();
    assert_eq!(Some(u64::from(read.timescale)), template.timescale);
    assert_eq!(Some(read.start_number), template.startNumber);
    assert_eq!(read.media, template.media);
    assert_eq!(read.initialization, template.initialization);
    let mut start = 0;
    let runs: Vec<_> = template
        .SegmentTimeline
        .as_ref()
        .unwrap()
        .segments
        .iter()
        .map(|s| {
            start = s.t.unwrap_or(start);
            let count = u64::try_from(s.r.unwrap_or_default()).unwrap() + 1;
            let run = (start, s.d, Some(count));
            start += s.d * count;
            run
        })
        .collect();
    let found: Vec<_> =
        read.timeline.iter().flatten().map(|run| (run.start, run.duration, run.count)).collect();
    assert_eq!(found, runs);
    let duration = other.mediaPresentationDuration.unwrap();
    assert_eq!(ours.duration.map(i128::from), Some(duration.as_micros() as i128));
    assert_eq!(
        ours.periods[0]
            .representations
            .iter()
            .map(|r| (r.id.as_str(), Some(r.bandwidth)))
            .collect::<Vec<_>>(),
        set.representations
            .iter()
            .map(|r| (r.id.as_deref().unwrap(), r.bandwidth))
            .collect::<Vec<_>>()
    );
}

/// All seeds of the fuzz target can be read.
#[test]
fn examples_of_the_fuzz_target_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/viewer_playlists");
    let mut read = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|ending| ending == "mpd") {
            assert!(!mpd::parse(&text).unwrap().periods.is_empty(), "{path:?}");
            read.push("manifest");
            continue;
        }
        read.push(match hls::parse(&text).unwrap() {
            Playlist::Multivariant(multivariant) => {
                assert_eq!((multivariant.variants.len(), multivariant.audio.len()), (1, 1));
                "multivariant"
            }
            Playlist::Media(media) => {
                assert_eq!((media.first(), media.segments.len()), (1_700_000_003, 2));
                assert!(media.hint.is_some() && media.parts.len() == 2);
                "media"
            }
        });
    }
    read.sort_unstable();
    assert_eq!(read, ["manifest", "media", "multivariant"]);
}
