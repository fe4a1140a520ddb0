//! Checks manifests with another parser, as text, and against the schema.

use std::collections::HashMap;

use dash_mpd_core::MPD;
use proptest::prelude::*;
use protocol::dash::{
    self, AdaptationSet, Address, Audio, Content, Live, Manifest, Period, PlaybackRate,
    Presentation, ProducerReferenceTime, Representation, Role, Segment, SegmentTemplate,
    ServiceDescription, UtcTiming, Video,
};

fn template(segments: &[(u64, u64)]) -> SegmentTemplate {
    SegmentTemplate {
        timescale: 90_000,
        initialization: "$RepresentationID$/init.0.mp4".into(),
        media: "$RepresentationID$/$Number$.m4s".into(),
        start_number: Some(7),
        presentation_time_offset: 900_000,
        availability_time_offset: Some(1750),
        segments: segments.iter().map(|&(start, duration)| Segment { start, duration }).collect(),
    }
}

fn video(id: &str, bandwidth: u64, segments: &[(u64, u64)]) -> Representation {
    Representation {
        id: id.into(),
        bandwidth,
        codecs: "avc1.64001f".into(),
        video: Some(Video { width: 1280, height: 720, frame_rate: Some((30_000, 1001)) }),
        audio: None,
        address: Address::Template(template(segments)),
    }
}

fn live() -> Manifest {
    let even = [(900_000, 180_000), (1_080_000, 180_000), (1_260_000, 180_000)];
    let uneven = [(900_000, 179_000), (1_079_000, 181_000), (1_260_000, 180_000), (1_500_000, 1)];
    Manifest {
        presentation: Presentation::Dynamic(Live {
            availability_start_time: 1_795_291_260_250,
            publish_time: 1_795_291_320_000_000,
            minimum_update_period: Some(2000),
            time_shift_buffer_depth: Some(60_000),
            suggested_presentation_delay: Some(6000),
        }),
        profiles: vec![dash::PROFILE_LIVE.into(), dash::PROFILE_CMAF.into()],
        min_buffer_time: 1500,
        max_segment_duration: Some(2012),
        service_description: Some(ServiceDescription {
            latency_target: 2500,
            latency_min: Some(1500),
            latency_max: Some(6000),
            playback_rate: Some(PlaybackRate { min: 96, max: 104 }),
        }),
        periods: vec![Period {
            id: "p1".into(),
            start: 10_000,
            duration: None,
            adaptation_sets: vec![
                AdaptationSet {
                    id: 0,
                    content: Content::Video,
                    language: None,
                    label: None,
                    role: Some(Role::Main),
                    producer_reference_time: Some(ProducerReferenceTime {
                        id: 0,
                        wall_clock_time: 1_795_291_270_250,
                        presentation_time: 900_000,
                    }),
                    aligned: false,
                    starts_with_sap: false,
                    representations: vec![
                        video("v0", 3_000_000, &even),
                        video("v1", 1_000_000, &even),
                    ],
                },
                AdaptationSet {
                    id: 1,
                    content: Content::Audio,
                    language: Some("de".into()),
                    label: Some("Ton & <Musik>".into()),
                    role: None,
                    producer_reference_time: None,
                    aligned: false,
                    starts_with_sap: true,
                    representations: vec![Representation {
                        id: "a0".into(),
                        bandwidth: 128_000,
                        codecs: "mp4a.40.2".into(),
                        video: None,
                        audio: Some(Audio { sample_rate: 48_000, channels: 2 }),
                        address: Address::Template(template(&uneven)),
                    }],
                },
            ],
        }],
        utc_timing: vec![UtcTiming {
            scheme: dash::UTC_HTTP_XSDATE.into(),
            value: "/time?a=1&b=\"2\"".into(),
        }],
    }
}

#[test]
fn low_latency_manifest() {
    assert_eq!(
        live().render(),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019" type="dynamic" availabilityStartTime="2026-11-21T20:01:00.250Z" publishTime="2026-11-21T20:02:00.000Z" minimumUpdatePeriod="PT2S" timeShiftBufferDepth="PT60S" suggestedPresentationDelay="PT6S" minBufferTime="PT1.5S" maxSegmentDuration="PT2.012S">
<ServiceDescription id="0">
<Latency min="1500" max="6000" target="2500"/>
<PlaybackRate min="0.96" max="1.04"/></ServiceDescription>
<Period id="p1" start="PT10S">
<AdaptationSet id="0" contentType="video" mimeType="video/mp4" maxWidth="1280" maxHeight="720">
<ProducerReferenceTime id="0" inband="true" type="captured" wallClockTime="2026-11-21T20:01:10.250Z" presentationTime="900000">
<UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-xsdate:2014" value="/time?a=1&amp;b=&quot;2&quot;"/></ProducerReferenceTime>
<Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
<SegmentTemplate timescale="90000" initialization="$RepresentationID$/init.0.mp4" media="$RepresentationID$/$Number$.m4s" startNumber="7" presentationTimeOffset="900000" availabilityTimeOffset="1.75" availabilityTimeComplete="false">
<SegmentTimeline>
<S t="900000" d="180000" r="2"/></SegmentTimeline></SegmentTemplate>
<Representation id="v0" bandwidth="3000000" codecs="avc1.64001f" width="1280" height="720" frameRate="30000/1001"/>
<Representation id="v1" bandwidth="1000000" codecs="avc1.64001f" width="1280" height="720" frameRate="30000/1001"/></AdaptationSet>
<AdaptationSet id="1" contentType="audio" lang="de" mimeType="audio/mp4" segmentAlignment="true" startWithSAP="1">
<Label>Ton &amp; &lt;Musik&gt;</Label>
<SegmentTemplate timescale="90000" initialization="$RepresentationID$/init.0.mp4" media="$RepresentationID$/$Number$.m4s" startNumber="7" presentationTimeOffset="900000" availabilityTimeOffset="1.75" availabilityTimeComplete="false">
<SegmentTimeline>
<S t="900000" d="179000"/>
<S d="181000"/>
<S d="180000"/>
<S t="1500000" d="1"/></SegmentTimeline></SegmentTemplate>
<Representation id="a0" bandwidth="128000" codecs="mp4a.40.2" audioSamplingRate="48000">
<AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/></Representation></AdaptationSet></Period>
<UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-xsdate:2014" value="/time?a=1&amp;b=&quot;2&quot;"/>
</MPD>
"#
        .replace("\n</MPD>", "</MPD>")
    );
}

#[test]
fn complete_manifest_with_subtitles() {
    let set = |id, content, role, representations| AdaptationSet {
        id,
        content,
        language: Some("en".into()),
        label: None,
        role,
        producer_reference_time: None,
        aligned: true,
        starts_with_sap: content == Content::Video,
        representations,
    };
    let segments = [(3003, 180_180), (183_183, 90_090)];
    let video = |id: &str, width| Representation {
        id: id.into(),
        bandwidth: 1_000_000,
        codecs: "avc1.64001f".into(),
        video: Some(Video { width, height: 360, frame_rate: Some((25, 1)) }),
        audio: None,
        address: Address::Template(SegmentTemplate {
            timescale: 90_000,
            initialization: "$RepresentationID$/init.mp4?v=1".into(),
            media: "$RepresentationID$/$Number$.m4s?v=1".into(),
            start_number: Some(0),
            presentation_time_offset: 3003,
            availability_time_offset: None,
            segments: segments
                .iter()
                .map(|&(start, duration)| Segment { start, duration })
                .collect(),
        }),
    };
    let text = Representation {
        id: "t0".into(),
        bandwidth: 200,
        codecs: String::new(),
        video: None,
        audio: None,
        address: Address::File("t0/all.vtt?v=1&x".into()),
    };
    let manifest = Manifest {
        presentation: Presentation::Static { duration: 3003 },
        profiles: vec![dash::PROFILE_LIVE.into()],
        min_buffer_time: 2002,
        max_segment_duration: Some(2002),
        service_description: None,
        periods: vec![Period {
            id: "0".into(),
            start: 0,
            duration: None,
            adaptation_sets: vec![
                set(0, Content::Video, None, vec![video("v0", 640), video("v1", 320)]),
                set(1, Content::Text, Some(Role::Subtitle), vec![text]),
            ],
        }],
        utc_timing: vec![],
    };
    let xml = manifest.render();
    check_sequences(&xml);
    parse(&xml);
    assert_eq!(
        xml,
        r#"<?xml version="1.0" encoding="UTF-8"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011" type="static" mediaPresentationDuration="PT3.003S" minBufferTime="PT2.002S" maxSegmentDuration="PT2.002S">
<Period id="0" start="PT0S">
<AdaptationSet id="0" contentType="video" lang="en" mimeType="video/mp4" segmentAlignment="true" startWithSAP="1" maxWidth="640" maxHeight="360">
<SegmentTemplate timescale="90000" initialization="$RepresentationID$/init.mp4?v=1" media="$RepresentationID$/$Number$.m4s?v=1" startNumber="0" presentationTimeOffset="3003">
<SegmentTimeline>
<S t="3003" d="180180"/>
<S d="90090"/></SegmentTimeline></SegmentTemplate>
<Representation id="v0" bandwidth="1000000" codecs="avc1.64001f" width="640" height="360" frameRate="25"/>
<Representation id="v1" bandwidth="1000000" codecs="avc1.64001f" width="320" height="360" frameRate="25"/></AdaptationSet>
<AdaptationSet id="1" contentType="text" lang="en" mimeType="text/vtt" segmentAlignment="true">
<Role schemeIdUri="urn:mpeg:dash:role:2011" value="subtitle"/>
<Representation id="t0" bandwidth="200">
<BaseURL>t0/all.vtt?v=1&amp;x</BaseURL></Representation></AdaptationSet></Period></MPD>
"#
    );
}

/// The sequences of elements in the schema of ISO/IEC 23009-1, for the elements that we write.
const SEQUENCES: &[(&str, &[&str])] = &[
    ("MPD", &["ServiceDescription", "Period", "UTCTiming"]),
    ("ServiceDescription", &["Latency", "PlaybackRate"]),
    ("Period", &["AdaptationSet"]),
    (
        "AdaptationSet",
        &["Label", "ProducerReferenceTime", "Role", "SegmentTemplate", "Representation"],
    ),
    ("ProducerReferenceTime", &["UTCTiming"]),
    ("Representation", &["AudioChannelConfiguration", "BaseURL", "SegmentTemplate"]),
    ("SegmentTemplate", &["SegmentTimeline"]),
    ("SegmentTimeline", &["S"]),
];

/// Checks all tags: every child must be allowed in its parent, in the schema's order.
fn check_sequences(xml: &str) {
    let sequences: HashMap<_, _> = SEQUENCES.iter().copied().collect();
    let mut open: Vec<(&str, usize)> = Vec::new();
    for tag in xml.split('<').skip(2) {
        let (tag, _text) = tag.split_once('>').expect("tags end");
        if let Some(name) = tag.strip_prefix('/') {
            let (opened, _) = open.pop().expect("was opened");
            assert_eq!(name, opened);
            continue;
        }
        let name = tag.split([' ', '/']).next().expect("has a name");
        if let Some((parent, reached)) = open.last_mut() {
            let sequence = sequences.get(parent).copied().unwrap_or_default();
            let at = sequence.iter().position(|child| *child == name);
            let at = at.unwrap_or_else(|| panic!("{name} in {parent}"));
            assert!(at >= *reached, "{name} in {parent} after {}", sequence[*reached]);
            *reached = at;
        } else {
            assert_eq!(name, "MPD");
        }
        if !tag.ends_with('/') {
            open.push((name, 0));
        }
    }
    assert!(open.is_empty());
}

#[test]
fn different_timelines_stay_with_their_representations() {
    let mut manifest = live();
    let representations = &mut manifest.periods[0].adaptation_sets[0].representations;
    let Address::Template(template) = &mut representations[1].address else { panic!("segments") };
    template.segments.pop();
    let read = parse(&manifest.render());
    let set = &read.periods[0].adaptations[0];
    assert!(set.SegmentTemplate.is_none());
    let repeats = |n: usize| {
        let template = set.representations[n].SegmentTemplate.as_ref().expect("has its own");
        template.SegmentTimeline.as_ref().expect("has one").segments[0].r
    };
    assert_eq!((repeats(0), repeats(1)), (Some(2), Some(1)));
}

fn parse(xml: &str) -> MPD {
    dash_mpd_core::parse(xml).unwrap_or_else(|error| panic!("{error}: {xml}"))
}

fn millis(duration: Option<std::time::Duration>) -> Option<u64> {
    duration.map(|duration| duration.as_millis() as u64)
}

prop_compose! {
    fn segment_template()(
        timescale in 1..u32::MAX,
        start_number in prop::option::of(0..1u64 << 53),
        presentation_time_offset in 0..1u64 << 53,
        availability_time_offset in prop::option::of(0..100_000u64),
        first in 0..1u64 << 53,
        segments in prop::collection::vec(
            (prop_oneof![Just(180_000), Just(90_000), 1..1_000_000u64], prop_oneof![9 => Just(0), 1 => 1..9u64]),
            0..12,
        ),
    ) -> SegmentTemplate {
        let mut start = first;
        SegmentTemplate {
            timescale, start_number, presentation_time_offset, availability_time_offset,
            segments: segments.into_iter().map(|(duration, gap)| {
                let segment = Segment { start: start + gap, duration };
                start = segment.start + duration;
                segment
            }).collect(),
            ..template(&[])
        }
    }
}

prop_compose! {
    fn adaptation_set(id: u32)(
        templates in prop::collection::vec(segment_template(), 1..3),
        count in 1..3usize,
        content in prop_oneof![Just(Content::Video), Just(Content::Audio), Just(Content::Text)],
        language in prop::option::of("[a-z]{2}"),
        label in prop::option::of("[!-~\u{e4}][ -~\u{e4}]{0,8}[!-~\u{e4}]"),
        role in prop_oneof![
            Just(None), Just(Some(Role::Main)), Just(Some(Role::Alternate)), Just(Some(Role::Subtitle)),
        ],
        aligned in any::<bool>(),
        reference in prop::option::of((0..1u64 << 41, 0..1u64 << 53)),
        video in (1..9999u32, 1..9999u32, prop::option::of((1..99_999u32, 1..1002u32))),
        audio in (1..192_000u32, 1..10u16),
        bandwidth in 1..1u64 << 40,
        starts_with_sap in any::<bool>(),
    ) -> AdaptationSet {
        AdaptationSet {
            id,
            content,
            language,
            label,
            role,
            aligned,
            producer_reference_time: reference.map(|(wall_clock_time, presentation_time)| {
                ProducerReferenceTime { id, wall_clock_time, presentation_time }
            }),
            starts_with_sap,
            representations: (0..count).map(|n| Representation {
                id: format!("r{n}"),
                bandwidth,
                codecs: if content == Content::Text { "" } else { "av01.0.04M.08" }.into(),
                video: (content == Content::Video).then_some(Video {
                    width: video.0, height: video.1, frame_rate: video.2,
                }),
                audio: (content == Content::Audio).then_some(Audio { sample_rate: audio.0, channels: audio.1 }),
                address: if content == Content::Text {
                    Address::File(format!("t{n}/all.vtt?v=1&w=<>"))
                } else {
                    Address::Template(templates[n % templates.len()].clone())
                },
            }).collect(),
        }
    }
}

prop_compose! {
    fn manifest()(
        sets in prop::collection::vec((adaptation_set(0), adaptation_set(1)), 1..3),
        live in prop::option::of((
            0..1u64 << 42, 0..1u64 << 52, prop::option::of(0..99_999u64),
            prop::option::of(1..9_999_999u64), prop::option::of(1..99_999u64),
        )),
        duration in 0..1u64 << 40,
        min_buffer_time in 0..100_000u64,
        max_segment_duration in prop::option::of(1..100_000u64),
        latency in prop::option::of((
            0..99_999u64, prop::option::of(0..99_999u64), prop::option::of(0..99_999u64),
            prop::option::of((1..100u32, 100..200u32)),
        )),
        utc_timing in prop::collection::vec(("[a-z:]{1,9}", "[ -~]{0,9}"), 0..3),
    ) -> Manifest {
        let sets = sets.into_iter().enumerate();
        Manifest {
            presentation: match live {
                None => Presentation::Static { duration },
                Some((start, publish, update, depth, delay)) => Presentation::Dynamic(Live {
                    availability_start_time: start,
                    publish_time: publish,
                    minimum_update_period: update,
                    time_shift_buffer_depth: depth,
                    suggested_presentation_delay: delay,
                }),
            },
            profiles: vec![dash::PROFILE_LIVE.into(), dash::PROFILE_LOW_LATENCY.into()],
            min_buffer_time,
            max_segment_duration,
            service_description: latency.map(|(target, min, max, rate)| ServiceDescription {
                latency_target: target,
                latency_min: min,
                latency_max: max,
                playback_rate: rate.map(|(min, max)| PlaybackRate { min, max }),
            }),
            periods: sets.map(|(n, (a, b))| Period {
                id: n.to_string(),
                start: n as u64 * 12_345,
                duration: (n > 0).then_some(777),
                adaptation_sets: vec![a, b],
            }).collect(),
            utc_timing: utc_timing.into_iter().map(|(scheme, value)| UtcTiming { scheme, value }).collect(),
        }
    }
}

proptest! {
    #[test]
    fn another_parser_reads_the_same(model in manifest()) {
        let xml = model.render();
        check_sequences(&xml);
        let read = parse(&xml);
        prop_assert_eq!(read.profiles, Some(model.profiles.join(",")));
        prop_assert_eq!(millis(read.minBufferTime), Some(model.min_buffer_time));
        prop_assert_eq!(millis(read.maxSegmentDuration), model.max_segment_duration);
        match &model.presentation {
            Presentation::Static { duration } => {
                prop_assert_eq!(read.mpdtype.as_deref(), Some("static"));
                prop_assert_eq!(millis(read.mediaPresentationDuration), Some(*duration));
                prop_assert!(read.availabilityStartTime.is_none());
            }
            Presentation::Dynamic(live) => {
                prop_assert_eq!(read.mpdtype.as_deref(), Some("dynamic"));
                let start = read.availabilityStartTime.map(|time| time.timestamp_millis() as u64);
                prop_assert_eq!(start, Some(live.availability_start_time));
                let publish = read.publishTime.map(|time| time.timestamp_micros() as u64);
                prop_assert_eq!(publish, Some(live.publish_time));
                prop_assert_eq!(millis(read.minimumUpdatePeriod), live.minimum_update_period);
                prop_assert_eq!(millis(read.timeShiftBufferDepth), live.time_shift_buffer_depth);
                let delay = millis(read.suggestedPresentationDelay);
                prop_assert_eq!(delay, live.suggested_presentation_delay);
            }
        }
        prop_assert_eq!(read.ServiceDescription.len(), usize::from(model.service_description.is_some()));
        if let Some(model) = &model.service_description {
            let latency = &read.ServiceDescription[0].Latency[0];
            prop_assert_eq!(latency.target, Some(model.latency_target as f64));
            prop_assert_eq!(latency.min, model.latency_min.map(|min| min as f64));
            prop_assert_eq!(latency.max, model.latency_max.map(|max| max as f64));
            let rate = read.ServiceDescription[0].PlaybackRate.first();
            let rate = rate.map(|r| (r.min, r.max));
            let factor = |percent: u32| Some(f64::from(percent) / 100.0);
            prop_assert_eq!(rate, model.playback_rate.map(|r| (factor(r.min), factor(r.max))));
        }
        let clocks: Vec<_> = read.UTCTiming.iter().map(|t| (&t.schemeIdUri, t.value.as_ref())).collect();
        let expected: Vec<_> = model.utc_timing.iter().map(|t| (&t.scheme, Some(&t.value))).collect();
        prop_assert_eq!(clocks, expected);

        prop_assert_eq!(read.periods.len(), model.periods.len());
        for (read, model) in read.periods.iter().zip(&model.periods) {
            prop_assert_eq!(read.id.as_ref(), Some(&model.id));
            prop_assert_eq!(millis(read.start), Some(model.start));
            prop_assert_eq!(millis(read.duration), model.duration);
            // Sets and representations without segments are left out.
            let mut sets = model.adaptation_sets.clone();
            for set in &mut sets {
                set.representations.retain(|r| match &r.address {
                    Address::Template(template) => !template.segments.is_empty(),
                    Address::File(_) => true,
                });
            }
            sets.retain(|set| !set.representations.is_empty());
            prop_assert_eq!(read.adaptations.len(), sets.len());
            for (read, model) in read.adaptations.iter().zip(&sets) {
                same_set(read, model)?;
            }
        }
    }

    #[test]
    fn any_text_stays_inside_its_attribute(text in "\\PC{0,9}|.{0,9}|[\\x00-\\x7f]{0,9}") {
        let mut manifest = live();
        manifest.utc_timing[0].value = text.clone();
        manifest.periods[0].id = text.clone();
        manifest.periods[0].adaptation_sets[0].label = Some(text.clone());
        let xml = manifest.render();
        check_sequences(&xml);
        let held: String = text
            .chars()
            .map(|c| match c {
                '\t' | '\n' | '\r' => c,
                '\0'..=' ' if c != ' ' => '\u{FFFD}',
                '\u{FFFE}' | '\u{FFFF}' => '\u{FFFD}',
                c => c,
            })
            .collect();
        let read = parse(&xml);
        prop_assert_eq!(read.periods[0].id.as_ref(), Some(&held));
    }
}

fn same_set(
    read: &dash_mpd_core::AdaptationSet,
    model: &AdaptationSet,
) -> Result<(), TestCaseError> {
    let (content, mime) = match model.content {
        Content::Video => ("video", "video/mp4"),
        Content::Audio => ("audio", "audio/mp4"),
        Content::Text => ("text", "text/vtt"),
    };
    prop_assert_eq!(read.contentType.as_deref(), Some(content));
    prop_assert_eq!(read.mimeType.as_deref(), Some(mime));
    prop_assert_eq!(&read.lang, &model.language);
    let role = read.Role.first().and_then(|role| role.value.as_deref());
    let expected = model.role.map(|role| match role {
        Role::Main => "main",
        Role::Alternate => "alternate",
        Role::Subtitle => "subtitle",
    });
    prop_assert_eq!(role, expected);
    prop_assert_eq!(read.Label.len(), usize::from(model.label.is_some()));
    if let Some(label) = &model.label {
        prop_assert_eq!(&read.Label[0].content, label);
    }
    let reference = read.ProducerReferenceTime.first().map(|p| {
        (p.wallClockTime.map(|time| time.timestamp_millis() as u64), p.presentationTime, p.inband)
    });
    let expected = model
        .producer_reference_time
        .map(|p| (Some(p.wall_clock_time), Some(p.presentation_time), Some(true)));
    prop_assert_eq!(reference, expected);
    prop_assert_eq!(read.startWithSAP, model.starts_with_sap.then_some(1));
    let aligned = (model.aligned || model.representations.len() == 1).then_some(true);
    prop_assert_eq!(read.segmentAlignment, aligned);
    prop_assert_eq!(read.representations.len(), model.representations.len());
    for (inner, model) in read.representations.iter().zip(&model.representations) {
        prop_assert_eq!(inner.id.as_ref(), Some(&model.id));
        prop_assert_eq!(inner.bandwidth, Some(model.bandwidth));
        prop_assert_eq!(inner.codecs.as_deref().unwrap_or(""), &model.codecs);
        let size = model.video.map(|v| (u64::from(v.width), u64::from(v.height)));
        prop_assert_eq!(inner.width.zip(inner.height), size);
        let rate = model.video.and_then(|v| v.frame_rate).map(|(n, d)| f64::from(n) / f64::from(d));
        let read_rate = inner.frameRate.as_ref().map(|rate| match rate.split_once('/') {
            Some((n, d)) => n.parse::<f64>().expect("number") / d.parse::<f64>().expect("number"),
            None => rate.parse().expect("number"),
        });
        prop_assert_eq!(read_rate, rate);
        let sampling = model.audio.map(|audio| audio.sample_rate.to_string());
        prop_assert_eq!(&inner.audioSamplingRate, &sampling);
        let layout = inner.AudioChannelConfiguration.first().and_then(|c| c.value.clone());
        let channels = model.audio.map(|audio| audio.channels).filter(|&count| count <= 8);
        prop_assert_eq!(layout.is_some(), channels.is_some());

        // A template of the set applies to all its representations.
        let template = inner.SegmentTemplate.as_ref().or(read.SegmentTemplate.as_ref());
        let file = inner.BaseURL.first().map(|url| &url.base);
        match &model.address {
            Address::Template(expected) => {
                same_template(template.expect("there is one"), expected)?;
                prop_assert_eq!(file, None);
            }
            Address::File(url) => {
                prop_assert!(template.is_none());
                prop_assert_eq!(file, Some(url));
            }
        }
    }
    Ok(())
}

fn same_template(
    read: &dash_mpd_core::SegmentTemplate,
    model: &SegmentTemplate,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(read.timescale, Some(u64::from(model.timescale)));
    prop_assert_eq!(read.media.as_ref(), Some(&model.media));
    prop_assert_eq!(read.initialization.as_ref(), Some(&model.initialization));
    prop_assert_eq!(read.startNumber, model.start_number);
    let offset = read.presentationTimeOffset.unwrap_or(0);
    prop_assert_eq!(offset, model.presentation_time_offset);
    let early = model.availability_time_offset.map(|millis| millis as f64 / 1000.0);
    prop_assert_eq!(read.availabilityTimeOffset, early);
    prop_assert_eq!(read.availabilityTimeComplete, early.map(|_| false));
    // The timeline as a player unrolls it, ISO/IEC 23009-1 5.3.9.6.
    let mut segments = Vec::new();
    let mut time = 0;
    for s in &read.SegmentTimeline.as_ref().expect("has a timeline").segments {
        time = s.t.unwrap_or(time);
        for _ in 0..=s.r.unwrap_or(0) {
            segments.push(Segment { start: time, duration: s.d });
            time += s.d;
        }
    }
    prop_assert_eq!(&segments, &model.segments);
    Ok(())
}
