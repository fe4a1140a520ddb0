//! Playlists as another parser reads them.

use std::sync::Arc;

use proptest::prelude::*;
use protocol::hls::{
    Audio, IFrames, LowLatency, MediaPlaylist, MultivariantPlaylist, OpenSegment, Part,
    RenditionReport, Rounding, Segment, Skip, Subtitles, Variant,
};
use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::{self as tag, Tag};
use quick_m3u8::{HlsLine, Reader};

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
