//! Written tags are read back; and the meaning of each kind of tag.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod flv_support;

use std::process::Command;

use bytes::Bytes;
use flv_support::enhanced;
use media::codec::{Codec, aac, av1, avc, hevc, opus};
use media::flv::{
    Body, CodecId, Demuxer, Event, Message, Metadata, Packet, Packetizer, Reader, Reason, TagKind,
    TrackId, file_header, parse_audio, parse_video,
};
use media::{Error, Kind, Sample};
use proptest::prelude::*;

fn flv(name: &str) -> Vec<u8> {
    std::fs::read(testkit::clip(&format!("flv/{name}"))).unwrap()
}

/// The body of the first tag whose payload begins with `start`.
fn body(file: &[u8], start: &[u8], skip: usize) -> Bytes {
    let mut reader = Reader::new();
    reader.handle_bytes(file);
    while let Some(tag) = reader.poll_tag().unwrap() {
        if tag.payload.starts_with(start) {
            return tag.payload.slice(skip..);
        }
    }
    panic!("no such tag");
}

/// One configuration of each codec that FLV carries, as encoders write them.
fn codecs() -> [Codec; 5] {
    let (hevc, av1) = ("mp4/fragmented-hevc.mp4", "mp4/av1-aac.mp4");
    let avc = body(&flv("legacy.flv"), &[0x17, 0], 5);
    let hevc = body(&enhanced(hevc, hevc, false), b"\x90hvc1", 5);
    let av1 = body(&enhanced(av1, av1, false), b"\x90av01", 5);
    let aac = body(&flv("legacy.flv"), &[0xaf, 0], 2);
    let opus = body(&enhanced("mp4/hevc.mp4", "mp4/opus.mp4", false), b"\x90Opus", 5);
    [
        Codec::Avc(avc::Config::parse(avc).unwrap()),
        Codec::Hevc(hevc::Config::parse(hevc).unwrap()),
        Codec::Av1(av1::Config::parse(av1).unwrap()),
        Codec::Aac(aac::Config::parse(aac).unwrap()),
        Codec::Opus(opus::Config::from_opus_head(&opus).unwrap()),
    ]
}

fn events(demuxer: &mut Demuxer) -> Vec<Event> {
    std::iter::from_fn(|| demuxer.poll_event()).collect()
}

/// An access unit that follows the codec's framing, made of arbitrary bytes.
fn access_unit(codec: &Codec, bytes: &[u8]) -> Vec<u8> {
    let mut data = match codec {
        Codec::Avc(_) | Codec::Hevc(_) => (bytes.len() as u32).to_be_bytes().to_vec(),
        // A frame OBU of 16 KiB at most, its size in two bytes.
        Codec::Av1(_) => vec![0x32, 0x80 | (bytes.len() & 0x7f) as u8, (bytes.len() >> 7) as u8],
        // 20 ms in one frame.
        Codec::Opus(_) => vec![0xf8],
        _ => Vec::new(),
    };
    data.extend_from_slice(bytes);
    data
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn written_samples_are_read_back(
        start in 0i64..1 << 33,
        tracks in prop::collection::vec((0usize..5, any::<u8>()), 1..6),
        samples in prop::collection::vec(
            (any::<prop::sample::Index>(), 0i64..500, -2000i32..2000, any::<bool>(),
             prop::collection::vec(any::<u8>(), 1..300)),
            1..60,
        ),
        piece in 1usize..5000,
    ) {
        thread_local!(static CODECS: [Codec; 5] = codecs());
        let codecs = CODECS.with(Clone::clone);
        let mut file = file_header(true, true).to_vec();
        let mut expected = Vec::new();
        let mut writers = std::collections::BTreeMap::new();
        for (index, number) in tracks {
            let codec = &codecs[index];
            let id = TrackId { kind: codec.kind(), number };
            if writers.contains_key(&id) {
                continue;
            }
            let writer = Packetizer::new(number, codec, 1000).unwrap();
            let header = writer.sequence_header(start).unwrap();
            prop_assert_eq!(header.kind(), writer.kind());
            file.extend_from_slice(&header.tag());
            writers.insert(id, (writer, codec.clone(), 0));
            expected.push(Event::Track { track: id, codec: codec.clone() });
        }
        let ids: Vec<_> = writers.keys().copied().collect();
        let mut dts = start;
        // All times are read back relative to the first one's 32 bits.
        let origin = start & !0xffff_ffff;
        let mut last = std::collections::BTreeMap::new();
        for (index, delta, cts, sync, bytes) in samples {
            let id = ids[index.index(ids.len())];
            let (writer, codec, _) = &writers[&id];
            dts += delta;
            let is_video = id.kind == Kind::Video;
            let cts = if is_video && !matches!(codec, Codec::Av1(_)) { cts } else { 0 };
            let data = Bytes::from(access_unit(codec, &bytes));
            let sample = Sample { dts, cts, duration: 0, sync: sync || !is_video, data };
            let message = writer.sample(&sample).unwrap();
            // The payload is a range of the tag, and ends with the sample's own bytes.
            let (tag, payload) = (message.tag(), message.payload());
            prop_assert_eq!(&tag[11..tag.len() - 4], &payload[..]);
            prop_assert!(payload.ends_with(&sample.data));
            prop_assert_eq!(payload.as_ptr(), tag[11..].as_ptr());
            file.extend_from_slice(&tag);
            let read = Sample { dts: dts - origin, ..sample };
            let step = dts - last.insert(id, dts).unwrap_or(dts);
            expected.push(Event::Sample { track: id, sample: read, step });
        }
        let mut reader = Reader::new();
        let mut demuxer = Demuxer::new();
        let mut found = Vec::new();
        for bytes in file.chunks(piece) {
            reader.handle_bytes(bytes);
            while let Some(tag) = reader.poll_tag().unwrap() {
                demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
                found.extend(events(&mut demuxer));
            }
        }
        prop_assert_eq!(reader.finish(), Ok(()));
        prop_assert_eq!(reader.wrong_back_links(), 0);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn metadata_is_read_back(
        numbers in prop::array::uniform10(prop::option::of(-1e9f64..1e9)),
        stereo in any::<Option<bool>>(),
        encoder in prop::option::of("[ -~]{0,80}"),
    ) {
        let [duration, file_size, width, height, frame_rate, video_data_rate, audio_data_rate, video_codec,
            audio_codec, audio_sample_rate] = numbers;
        let metadata = Metadata {
            duration, file_size, width, height, frame_rate, video_data_rate, audio_data_rate, video_codec,
            audio_codec, audio_sample_rate, stereo, behind: Some(1.5),
            encoder,
        };
        let payload = metadata.payload();
        prop_assert_eq!(Metadata::parse(&payload), Ok(Some(metadata.clone())));
        // As RTMP publishers send it.
        let mut framed = b"\x02\x00\x0d@setDataFrame".to_vec();
        framed.extend_from_slice(&payload);
        prop_assert_eq!(Metadata::parse(&framed), Ok(Some(metadata)));
        for length in 0..payload.len() {
            // Without its end marker it is still read, because some writers leave the marker out.
            let _ = Metadata::parse(&payload[..length]);
        }
    }

    #[test]
    fn arbitrary_payloads_never_panic(
        first in any::<u8>(),
        rest in prop::collection::vec(any::<u8>(), 0..80),
        fourcc in prop::sample::select(vec![*b"avc1", *b"hvc1", *b"av01", *b"mp4a", *b"Opus"]),
    ) {
        let mut payload = vec![first];
        payload.extend_from_slice(&fourcc);
        payload.extend_from_slice(&rest);
        let payload = Bytes::from(payload);
        let mut demuxer = Demuxer::new();
        for kind in [TagKind::Video, TagKind::Audio, TagKind::Script] {
            demuxer.handle_tag(kind, 0, &payload);
            demuxer.handle_tag(kind, u32::MAX, &payload.slice(5..));
            demuxer.handle_tag(kind, 7, &payload.slice(1..));
        }
        for event in events(&mut demuxer) {
            if let Event::Sample { sample, .. } = event {
                prop_assert!(sample.data.len() <= payload.len());
            }
        }
    }
}

#[test]
fn ffmpeg_reads_what_is_written() {
    write_again(&flv("b-frames.flv"));
}

#[test]
#[ignore = "corpus"]
fn corpus_ffmpeg_reads_what_is_written() {
    let file = testkit::corpus_dir().join("flv/scuffle_avc_aac.flv");
    write_again(&std::fs::read(file).unwrap());
}

fn write_again(original: &[u8]) {
    let mut reader = Reader::new();
    reader.handle_bytes(original);
    let mut demuxer = Demuxer::new();
    let mut file = file_header(true, true).to_vec();
    let mut writers = Vec::new();
    let mut originals = Vec::new();
    while let Some(tag) = reader.poll_tag().unwrap() {
        demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
        for event in events(&mut demuxer) {
            match event {
                Event::Track { track, codec } => {
                    let writer = Packetizer::new(0, &codec, 90_000).unwrap();
                    file.extend_from_slice(&writer.sequence_header(0).unwrap().tag());
                    writers.push((track, writer));
                }
                Event::Sample { track, sample, .. } => {
                    let (_, writer) = writers.iter().find(|(id, _)| *id == track).unwrap();
                    // Into MPEG's clock, and back by the writer.
                    let mpeg =
                        Sample { dts: sample.dts * 90, cts: sample.cts * 90, ..sample.clone() };
                    let message = writer.sample(&mpeg).unwrap();
                    assert_eq!(message.payload(), tag.payload, "byte for byte");
                    file.extend_from_slice(&message.tag());
                    originals.push((sample.dts, sample.pts(), sample.data.len()));
                }
                _ => {}
            }
        }
    }
    let out = std::env::temp_dir().join(format!("media-flv-write-{}.flv", std::process::id()));
    std::fs::write(&out, &file).unwrap();
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-of", "csv=p=0", "-show_entries", "packet=dts,pts,size"])
        .arg(&out)
        .output()
        .unwrap();
    std::fs::remove_file(&out).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<_> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let mut fields = line.split(',').map(|field| field.parse::<i64>().unwrap());
            let (pts, dts) = (fields.next().unwrap(), fields.next().unwrap());
            (dts, pts, fields.next().unwrap() as usize)
        })
        .collect();
    assert_eq!(found, originals);
}

fn video(payload: &[u8]) -> Result<Vec<Packet>, Error> {
    let mut out = Vec::new();
    parse_video(&Bytes::copy_from_slice(payload), &mut out).map(|()| out)
}

fn audio(payload: &[u8]) -> Result<Vec<Packet>, Error> {
    let mut out = Vec::new();
    parse_audio(&Bytes::copy_from_slice(payload), &mut out).map(|()| out)
}

fn frame(cts: i32, keyframe: bool, data: &'static [u8]) -> Body {
    Body::Frame { cts, keyframe, data: Bytes::from_static(data) }
}

#[test]
fn enhanced_video() {
    let avc = CodecId::Fourcc(*b"avc1");
    let packet = |track, codec, body, at| Packet { track, codec, body, at, nanoseconds: 0 };
    // Coded frames with a composition time below zero, and without one.
    assert_eq!(
        video(b"\xa1avc1\xff\xff\xfeabc"),
        Ok(vec![packet(0, avc, frame(-2, false, b"abc"), 8)])
    );
    assert_eq!(video(b"\x93avc1abc"), Ok(vec![packet(0, avc, frame(0, true, b"abc"), 5)]));
    // AV1 has no composition time.
    let av1 = CodecId::Fourcc(*b"av01");
    assert_eq!(video(b"\x91av01abc"), Ok(vec![packet(0, av1, frame(0, true, b"abc"), 5)]));
    // One track of a multitrack packet: number 3, coded frames.
    assert_eq!(
        video(b"\x96\x01hvc1\x03\x00\x00\x05abc"),
        Ok(vec![packet(3, CodecId::Fourcc(*b"hvc1"), frame(5, true, b"abc"), 10)])
    );
    // Many tracks of one codec, each with its size.
    assert_eq!(
        video(b"\x96\x13avc1\x00\x00\x00\x02ab\x01\x00\x00\x01c"),
        Ok(vec![
            packet(0, avc, frame(0, true, b"ab"), 10),
            packet(1, avc, frame(0, true, b"c"), 16),
        ])
    );
    // Many tracks of many codecs, a composition time in that of AVC only.
    assert_eq!(
        video(b"\xa6\x21av01\x00\x00\x00\x02abavc1\x02\x00\x00\x04\x00\x00\x07c"),
        Ok(vec![
            packet(0, av1, frame(0, false, b"ab"), 10),
            packet(2, avc, frame(7, false, b"c"), 23),
        ])
    );
    // A ModEx of three bytes, TimestampOffsetNano, before coded frames.
    let found = video(b"\x97\x02\x00\x01\x00\x03avc1abc").unwrap();
    assert_eq!(found[0].nanoseconds, 256);
    assert_eq!(found[0].body, frame(0, true, b"abc"));
    // A ModEx of 256 bytes and an unknown kind, then another, then the frames.
    let mut long = vec![0x97, 0xff, 0x00, 0xff];
    long.extend_from_slice(&[0; 256]);
    long.extend_from_slice(b"\xf7\x00\x00\x13avc1abc");
    let found = video(&long).unwrap();
    assert_eq!((found[0].nanoseconds, &found[0].body), (0, &frame(0, true, b"abc")));
    // A command to seeking clients; metadata; the end; a configuration for MPEG-2 TS.
    assert_eq!(video(&[0xd0, 0]), Ok(vec![]));
    assert_eq!(video(b"\xd4avc1xyz").unwrap()[0].body, Body::Ignored);
    assert_eq!(video(b"\x92avc1").unwrap()[0].body, Body::SequenceEnd);
    assert_eq!(video(b"\x95av01xyz").unwrap()[0].body, Body::Ignored);
    // Cut off: in the code, the composition time, a track's size.
    let cut_off = |payload: &[u8], needed| {
        let left = payload.len() as u64;
        let what = "video tag".into();
        assert_eq!(video(payload), Err(Error::CutOff { what, at: 0, needed, left }));
    };
    cut_off(b"\x91av", 5);
    cut_off(b"\x91avc1\x00", 8);
    cut_off(b"\x96\x13avc1\x00\x00\x00\x09ab", 19);
    cut_off(b"\x97\x08ab", 11);
    // A composition time that reaches into the next track; multitrack in multitrack.
    assert!(video(b"\x96\x11avc1\x00\x00\x00\x02abcd").is_err());
    assert!(video(b"\x96\x16avc1").is_err());
    assert!(matches!(video(b"\x96\x33avc1"), Err(Error::Unsupported { at: 1, .. })));
}

#[test]
fn enhanced_audio() {
    let opus = CodecId::Fourcc(*b"Opus");
    let found = audio(b"\x91Opusabc").unwrap();
    assert_eq!((found[0].codec, &found[0].body), (opus, &frame(0, true, b"abc")));
    let found = audio(b"\x95\x11mp4a\x00\x00\x00\x01a\x07\x00\x00\x02bc").unwrap();
    assert_eq!((found[0].track, &found[0].body), (0, &frame(0, true, b"a")));
    assert_eq!((found[1].track, &found[1].body), (7, &frame(0, true, b"bc")));
    assert_eq!(found[1].codec, CodecId::Fourcc(*b"mp4a"));
    let found = audio(b"\x97\x02\x0f\x42\x3f\x01Opusabc").unwrap();
    assert_eq!((found[0].nanoseconds, &found[0].body), (999_999, &frame(0, true, b"abc")));
    assert_eq!(audio(b"\x94Opus\x01\x02").unwrap()[0].body, Body::Ignored);
    assert_eq!(audio(b""), Ok(vec![]));
    assert_eq!(
        audio(b"\xaf").unwrap_err().to_string(),
        "audio tag at byte 0 is cut off: 2 bytes announced, 1 present"
    );
}

#[test]
fn refused_tracks_do_not_disturb_the_others() {
    let [avc, .., aac, _] = codecs();
    let mut demuxer = Demuxer::new();
    let video = Packetizer::new(0, &avc, 1000).unwrap();
    let audio = Packetizer::new(4, &aac, 1000).unwrap();
    let mut handle = |message: &Message| {
        demuxer.handle_tag(message.kind(), message.timestamp(), &message.payload());
        events(&mut demuxer)
    };
    let raw = |kind, payload: &[u8]| Message::new(kind, 0, &[payload]).unwrap();
    let sample = |dts, data: &'static [u8]| Sample {
        dts,
        cts: 0,
        duration: 0,
        sync: true,
        data: Bytes::from_static(data),
    };
    let reasons = |events: &[Event]| -> Vec<String> {
        events
            .iter()
            .map(|event| match event {
                Event::Problem(problem) => problem.to_string(),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    let unit = b"\x00\x00\x00\x02\x65\x01";

    // Pictures before any sequence header are reported once.
    assert_eq!(
        reasons(&handle(&video.sample(&sample(0, unit)).unwrap())),
        ["tag 0, video track 0: samples dropped that came before a sequence header"]
    );
    assert_eq!(handle(&video.sample(&sample(20, unit)).unwrap()), []);
    // Each refused track is reported once, whatever it sends later.
    for fourcc in [b"ac-3", b"ec-3", b"fLaC", b".mp3"] {
        let track = fourcc[0];
        let mut payload = b"\x95\x01".to_vec();
        payload.extend_from_slice(fourcc);
        payload.push(track);
        payload.extend_from_slice(b"abc");
        let name = String::from_utf8_lossy(fourcc);
        let found = reasons(&handle(&raw(TagKind::Audio, &payload)));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].ends_with(&format!(
                "audio track {track}: codec '{name}' at byte 0 is not supported"
            ))
        );
        assert_eq!(handle(&raw(TagKind::Audio, &payload)), []);
    }
    // After that, everything valid comes through.
    assert!(matches!(
        handle(&video.sequence_header(0).unwrap())[..],
        [Event::Track { track: TrackId { kind: Kind::Video, number: 0 }, codec: Codec::Avc(_) }]
    ));
    assert!(matches!(
        handle(&audio.sequence_header(0).unwrap())[..],
        [Event::Track { track: TrackId { kind: Kind::Audio, number: 4 }, codec: Codec::Aac(_) }]
    ));
    // A repeated sequence header causes no event.
    assert_eq!(handle(&video.sequence_header(30).unwrap()), []);
    let [Event::Sample { step: 0, .. }] = handle(&video.sample(&sample(40, unit)).unwrap())[..]
    else {
        panic!()
    };
    // A broken sample is left out and its position reported; the next sample is not affected.
    assert_eq!(
        reasons(&handle(
            &video.sample(&sample(60, b"\x00\x00\x00\x01\x09\x00\x00\x00\x09\x65")).unwrap()
        )),
        [
            "tag 14, video track 0: sample dropped: NAL unit at byte 10 is cut off: 13 bytes announced, 5 present"
        ]
    );
    // Times that run back or jump are passed on and marked.
    for (dts, by, jumped) in
        [(80, 40, false), (50, -30, true), (10_050, 10_000, false), (20_051, 10_001, true)]
    {
        let found = handle(&video.sample(&sample(dts, unit)).unwrap());
        let [Event::Sample { step, sample, .. }] = &found[..] else { panic!("{found:?}") };
        assert_eq!((sample.dts, *step, found[0].jumped()), (dts, by, jumped));
    }
    // A sequence header that cannot be read stops its track until a good one comes.
    let found = handle(&raw(TagKind::Video, b"\x17\x00\x00\x00\x00\x02abcdefg"));
    assert!(matches!(&found[..], [Event::Problem(problem)]
        if matches!(&problem.reason, Reason::Configuration(Error::Unsupported { at: 5, .. }))));
    assert_eq!(handle(&video.sample(&sample(0, unit)).unwrap()), []);
    assert!(matches!(
        handle(&audio.sample(&sample(0, b"abc")).unwrap())[..],
        [Event::Sample { .. }]
    ));
    assert_eq!(handle(&video.sequence_header(0).unwrap()), []);
    assert_eq!(handle(&video.sample(&sample(90, unit)).unwrap()).len(), 1);
    // The other codecs of legacy FLV, each by its name.
    let found = reasons(&handle(&raw(TagKind::Audio, &[0x2f, 1, 2, 3])));
    assert!(found[0].contains("MP3"), "{found:?}");
    let found = reasons(&handle(&raw(TagKind::Video, &[0x12, 1, 2, 3])));
    assert!(found[0].contains("Sorenson H.263"), "{found:?}");
}

#[test]
fn legacy_hevc_is_read() {
    let [_, hevc, ..] = codecs();
    let mut demuxer = Demuxer::new();
    let mut payload = vec![0x1c, 0, 0, 0, 0];
    payload.extend_from_slice(&hevc.record());
    demuxer.handle_tag(TagKind::Video, 0, &payload.into());
    let unit = Bytes::from_static(b"\x1c\x01\xff\xff\xf6\x00\x00\x00\x03\x26\x01\x02");
    demuxer.handle_tag(TagKind::Video, 40, &unit);
    let track = TrackId { kind: Kind::Video, number: 0 };
    let sample = Sample { dts: 40, cts: -10, duration: 0, sync: true, data: unit.slice(5..) };
    assert_eq!(
        events(&mut demuxer),
        [Event::Track { track, codec: hevc }, Event::Sample { track, sample, step: 0 }]
    );
}

#[test]
fn one_clock_for_all_tracks_across_the_wrap() {
    let [avc, .., aac, _] = codecs();
    let mut demuxer = Demuxer::new();
    let writers =
        [Packetizer::new(0, &avc, 1000).unwrap(), Packetizer::new(0, &aac, 1000).unwrap()];
    let wrap = 1i64 << 32;
    for writer in &writers {
        let header = writer.sequence_header(wrap - 100).unwrap();
        demuxer.handle_tag(header.kind(), header.timestamp(), &header.payload());
    }
    let mut times = Vec::new();
    for (index, dts) in [(0, wrap - 40), (1, wrap - 20), (0, wrap), (1, wrap - 1), (0, wrap + 40)] {
        let data = Bytes::from_static(b"\x00\x00\x00\x02\x65\x01");
        let sample = Sample { dts, cts: 0, duration: 0, sync: true, data };
        let message = writers[index].sample(&sample).unwrap();
        demuxer.handle_tag(message.kind(), message.timestamp(), &message.payload());
        for event in events(&mut demuxer) {
            assert!(!event.jumped());
            if let Event::Sample { sample, .. } = event {
                times.push(sample.dts - wrap);
            }
        }
    }
    assert_eq!(times, [-40, -20, 0, -1, 40]);
}

#[test]
fn files_that_are_none() {
    let read = |bytes: &[u8]| {
        let mut reader = Reader::new();
        reader.handle_bytes(bytes);
        while reader.poll_tag()?.is_some() {}
        // It keeps returning its error.
        reader.finish()
    };
    let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(message(b"GIF89a"), "no FLV signature at byte 0");
    assert_eq!(message(b"FLV\x02\x05\x00\x00\x00\x09"), "FLV version 2 at byte 3 is not supported");
    assert_eq!(
        message(b"FLV\x01\x05\x00\x00\xff\x09"),
        "FLV header length at byte 5: 65289 exceeds the limit of 1024"
    );
    assert_eq!(
        message(b"FLV\x01\x05\x00\x00\x00\x08"),
        "FLV header length of less than 9 at byte 5"
    );
    let mut file = file_header(true, false).to_vec();
    assert_eq!(read(&file), Ok(()));
    file.extend_from_slice(&Message::new(TagKind::Audio, 0, &[b"abc"]).unwrap().tag());
    assert_eq!(read(&file), Ok(()));
    // The last tag's length may be missing, or wrong.
    assert_eq!(read(&file[..file.len() - 4]), Ok(()));
    assert_eq!(
        message(&file[..file.len() - 5]),
        "FLV tag at byte 13 is cut off: 14 bytes announced, 13 present"
    );
    let end = file.len();
    file[end - 1] = 99;
    let mut reader = Reader::new();
    reader.handle_bytes(&file);
    assert_eq!(reader.poll_tag().unwrap().unwrap().position, 13);
    assert_eq!(reader.poll_tag(), Ok(None));
    assert_eq!((reader.finish(), reader.wrong_back_links()), (Ok(()), 1));
    file.extend_from_slice(&[77; 20]);
    assert_eq!(message(&file), "FLV tag of type 77 at byte 31");
    file[31] = 0x28;
    assert_eq!(message(&file), "encrypted FLV tag at byte 31 is not supported");
}

#[test]
fn samples_that_do_not_fit_are_refused() {
    let [avc, ..] = codecs();
    let writer = Packetizer::new(0, &avc, 1000).unwrap();
    let data = Bytes::from(vec![0; media::flv::MAX_PAYLOAD]);
    let sample = Sample { dts: 0, cts: 0, duration: 0, sync: true, data };
    assert!(matches!(writer.sample(&sample), Err(Error::Limit { .. })));
    let sample = Sample { cts: 1 << 23, data: Bytes::from_static(b"a"), ..sample };
    assert!(matches!(writer.sample(&sample), Err(Error::Limit { .. })));
    let other = media::codec::Other { kind: Kind::Audio, fourcc: *b"ac-4" };
    let error = Packetizer::new(0, &Codec::Other(other), 1000).unwrap_err();
    assert_eq!(error.to_string(), "codec 'ac-4' in FLV at byte 0 is not supported");
}

#[test]
fn metadata_describes_tracks() {
    let [avc, _, av1, aac, opus] = codecs();
    let metadata = Metadata::describe([&avc, &aac]);
    assert_eq!((metadata.width, metadata.height), (Some(320.0), Some(180.0)));
    assert_eq!((metadata.video_codec, metadata.audio_codec), (Some(7.0), Some(10.0)));
    assert_eq!(metadata.audio_sample_rate, Some(44_100.0));
    let metadata = Metadata::describe([&opus, &av1]);
    assert_eq!(metadata.video_codec, Some(f64::from(u32::from_be_bytes(*b"av01"))));
    assert_eq!(metadata.audio_codec, Some(f64::from(u32::from_be_bytes(*b"Opus"))));
}

#[test]
fn hostile_metadata_is_bounded() {
    // Nested arrays, deeper than any stack.
    let mut payload = b"\x02\x00\x0aonMetaData".to_vec();
    for _ in 0..100_000 {
        payload.extend_from_slice(&[10, 0, 0, 0, 1]);
    }
    assert!(matches!(Metadata::parse(&payload), Err(Error::Limit { .. })));
    // An array of four thousand million values, and a string as long.
    for tail in [&[10, 0xff, 0xff, 0xff, 0xff, 5][..], &[12, 0xff, 0xff, 0xff, 0xff, 5]] {
        let mut payload = b"\x02\x00\x0aonMetaData".to_vec();
        payload.extend_from_slice(tail);
        assert!(matches!(Metadata::parse(&payload), Err(Error::CutOff { .. })));
    }
    assert_eq!(Metadata::parse(b"\x02\x00\x0aonCuePoint\x05"), Ok(None));
    assert!(Metadata::parse(&[]).is_err());
}
