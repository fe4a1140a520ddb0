//! Capture stamps: an inserted stamp is found, removing it restores the access unit, and ffmpeg
//! reads stamps correctly and decodes exactly the same pictures.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use media::cmaf::{self, ChunkInfo, SegmentStart};
use media::codec::{avc, nal};
use media::{Codec, Kind, Sample, Track, stamp};
use proptest::prelude::*;
use testkit::Program;

/// Time limit for a program.
const LIMIT: Duration = Duration::from_secs(180);

/// H.264 with NAL unit lengths of `length_size` bytes.
fn avc(length_size: u8) -> Codec {
    let mut record = testkit::avc_record(31);
    record[4] = 0xfc | (length_size - 1);
    Codec::Avc(avc::Config::parse(record.into()).expect("a record"))
}

/// An access unit of these NAL units.
fn access_unit(length_size: u8, units: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for unit in units {
        let length = (unit.len() as u32).to_be_bytes();
        out.extend_from_slice(&length[4 - usize::from(length_size)..]);
        out.extend_from_slice(unit);
    }
    out
}

fn units(access_unit: &[u8], length_size: u8) -> Vec<&[u8]> {
    nal::units(access_unit, length_size).map(|unit| unit.expect("whole")).collect()
}

#[test]
fn stands_before_the_first_slice_and_behind_what_must_come_first() {
    let (delimiter, sps, pps, other) = ([9, 0xf0], [0x67, 1], [0x68, 2], [6, 0, 1, 7, 0x80]);
    let (prefix, slice) = ([0x6e, 1, 2, 3], [0x65, 3]);
    let whole = access_unit(4, &[&delimiter, &sps, &pps, &other, &prefix, &slice, &slice]);
    let stamped = stamp::insert(&avc(4), &whole, 1_795_291_260_000_000).expect("stamps");
    let stamped = units(&stamped, 4);
    assert_eq!(stamped[..4], [&delimiter[..], &sps, &pps, &other]);
    assert_eq!(stamped[4][..3], [6, 5, 24]);
    assert_eq!(stamped[5..], [&prefix[..], &slice, &slice]);
}

#[test]
fn frames_without_a_place_for_a_stamp_are_refused() {
    let no_slice = access_unit(4, &[&[9, 0xf0]]);
    assert!(stamp::insert(&avc(4), &no_slice, 1).unwrap_err().to_string().contains("slice"));
    assert!(stamp::insert(&avc(4), &[0, 0, 0, 9, 0x65], 1).is_err());
    let other = media::codec::Other { kind: Kind::Video, fourcc: *b"vp09" };
    let error = stamp::insert(&Codec::Other(other), &[0x65], 1).unwrap_err();
    assert!(error.to_string().contains("vp09"), "{error}");
}

proptest! {
    #[test]
    fn round_trip_with_emulation_prevention(
        // Small bytes, so that emulation prevention is needed.
        time in prop_oneof![
            any::<u64>(),
            prop::array::uniform8(0u8..5).prop_map(u64::from_be_bytes),
        ],
        again in any::<u64>(),
        length_size in prop::sample::select(vec![1u8, 2, 4]),
        before in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..3),
        slice in prop::collection::vec(any::<u8>(), 1..100),
    ) {
        let codec = avc(length_size);
        let mut parts: Vec<Vec<u8>> = before.into_iter().map(|rest| [vec![0x67], rest].concat()).collect();
        parts.push([vec![0x65], slice].concat());
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let plain = access_unit(length_size, &parts);
        prop_assert_eq!(stamp::find(&plain), None);
        let stamped = stamp::insert(&codec, &plain, time).expect("stamps");
        prop_assert_eq!(stamp::find(&stamped), Some(time));
        prop_assert_eq!(&*stamp::without(&codec, &stamped), &plain[..]);

        let unit = units(&stamped, length_size)[parts.len() - 1];
        // H.264 7.4.1: no start code, nor what looks like one, and no zero at the end.
        prop_assert!(!unit.windows(3).any(|w| w[..2] == [0, 0] && w[2] < 3), "{:02x?}", unit);
        prop_assert!(!unit.windows(4).any(|w| w[..3] == [0, 0, 3] && w[3] > 3), "{:02x?}", unit);
        prop_assert_eq!(unit.last(), Some(&0x80));

        let anew = stamp::insert(&codec, &stamped, again).expect("stamps");
        prop_assert_eq!(stamp::find(&anew), Some(again));
        prop_assert_eq!(anew, stamp::insert(&codec, &plain, again).expect("stamps"));
    }

    #[test]
    fn nothing_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        at in 0usize..60,
        length_size in prop::sample::select(vec![1u8, 2, 4]),
    ) {
        let mut bytes = bytes;
        bytes.splice(at.min(bytes.len())..at.min(bytes.len()), stamp::UUID);
        let _ = stamp::find(&bytes);
        for codec in [avc(length_size), Codec::Av1(av1())] {
            let _ = stamp::insert(&codec, &bytes, 7);
            let _ = stamp::without(&codec, &bytes);
        }
    }
}

fn av1() -> media::codec::av1::Config {
    media::codec::av1::Config::parse(Bytes::from_static(&[0x81, 0x04, 0x0c, 0])).expect("a record")
}

/// Standard output and standard error of a program.
fn run(program: &str, arguments: &[&str]) -> (Vec<u8>, String) {
    let finished = Program::spawn(Command::new(program).args(arguments)).wait(LIMIT);
    assert!(finished.status.success(), "{program} {arguments:?}: {}", finished.stderr);
    (finished.stdout, finished.stderr)
}

/// A time near today's whose bytes need emulation prevention: 00 06 00 00 01 00 00 00 and on.
fn time_of(number: u64) -> u64 {
    0x0006_0000_0100_0000 + number
}

/// The first track of `file` as fragmented MP4, with a stamp in each access unit, and without.
fn stamped_and_plain(file: &Bytes) -> (Vec<u8>, Vec<u8>, usize) {
    let header = cmaf::read_header(file).expect("reads ffmpeg's header");
    let track: &Track = &header.tracks[0];
    let samples: Vec<Sample> = cmaf::chunks(file, Some(&header))
        .flat_map(|chunk| chunk.expect("reads chunks").samples)
        .collect();
    let stamped: Vec<Sample> = (0..)
        .zip(&samples)
        .map(|(number, sample)| {
            let data = stamp::insert(&track.codec, &sample.data, time_of(number)).expect("stamps");
            assert_eq!(stamp::find(&data), Some(time_of(number)));
            assert_eq!(*stamp::without(&track.codec, &data), sample.data[..]);
            Sample { data: data.into(), ..sample.clone() }
        })
        .collect();
    let file = |samples: &[Sample]| {
        let mut out = cmaf::header(&[track]).expect("writes").to_vec();
        let info = ChunkInfo {
            track_id: track.id,
            sequence_number: 1,
            segment_start: Some(SegmentStart { reference: None }),
        };
        cmaf::write_chunk(&mut out, &info, samples).expect("writes");
        out
    };
    (file(&stamped), file(&samples), samples.len())
}

/// Output and messages of ffmpeg for `input`.
fn ffmpeg(input: &[u8], arguments: &[&str]) -> (String, String) {
    let mut file = tempfile::NamedTempFile::new().expect("creates");
    file.write_all(input).expect("writes");
    let path = file.path().to_str().expect("is UTF-8");
    let (out, error) = run("ffmpeg", &[&["-nostdin", "-i", path], arguments].concat());
    (String::from_utf8(out).expect("is text"), error)
}

/// Encodes two seconds of test pattern with the given arguments. ffmpeg must see the same pictures
/// with stamps as without, complain of nothing, and read the metadata's units.
fn check(encoder: &[&str], unit: &[&str]) {
    let mut arguments = vec!["-v", "error", "-nostdin", "-f", "lavfi"];
    arguments.extend(["-i", "testsrc2=s=320x180:r=25:d=2", "-pix_fmt", "yuv420p", "-g", "25"]);
    arguments.extend(encoder);
    arguments.extend(["-f", "mp4", "-movflags", "delay_moov+default_base_moof+frag_keyframe"]);
    arguments.push("pipe:1");
    let (original, _) = run("ffmpeg", &arguments);
    let (stamped, plain, count) = stamped_and_plain(&original.into());
    assert!(count >= 45, "{count} pictures");
    let frames = |file: &[u8]| {
        let (frames, error) = ffmpeg(file, &["-v", "error", "-f", "framemd5", "pipe:1"]);
        assert_eq!(error.lines().filter(|line| line.contains("[error]")).count(), 0, "{error}");
        frames
    };
    assert_eq!(frames(&stamped), frames(&plain));
    let arguments = ["-v", "trace", "-c", "copy", "-bsf:v", "trace_headers", "-f", "null", "-"];
    let (_, trace) = ffmpeg(&stamped, &arguments);
    let (_, before) = ffmpeg(&plain, &arguments);
    assert!(!trace.contains("Error applying"), "{trace}");
    let count_of = |text: &str| {
        text.lines().filter(|line| unit.iter().all(|word| line.contains(word))).count()
    };
    assert_eq!(count_of(&trace), count_of(&before) + count, "{unit:?}");
}

#[test]
fn ffmpeg_sees_the_same_pictures_in_h264() {
    check(&["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2"], &["User Data Unregistered"]);
}

#[test]
fn ffmpeg_sees_the_same_pictures_in_hevc() {
    let params = "log-level=none:temporal-layers=1";
    let encoder = ["-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1"];
    check(&[&encoder[..], &["-x265-params", params]].concat(), &["User Data Unregistered"]);
}

#[test]
fn ffmpeg_sees_the_same_pictures_in_av1() {
    check(&["-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime"], &["obu_type", "= 5"]);
}
