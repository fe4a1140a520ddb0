//! Compares FLV files with ffprobe where it knows the codecs (version 5.1 does not know the
//! enhanced ones). Other files are compared by decoding their bare elementary streams.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod flv_support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;
use flv_support::enhanced_files;
use media::codec::{Codec, av1, nal};
use media::flv::{Demuxer, Event, Metadata, Reader, Reason, TagKind, TrackId};
use media::{Kind, Sample};
use serde_json::Value;
use testkit::Random;

const LEGACY: [&str; 4] = ["legacy.flv", "b-frames.flv", "vfr.flv", "sound.flv"];

const REAL_LEGACY: [&str; 5] = [
    "androidx_sample.flv",
    "membrane_bun33s.flv",
    "membrane_bun33s_audio.flv",
    "scuffle_avc_aac.flv",
    "srs_bbb_10s_360p.flv",
];
const REAL_ENHANCED: [&str; 4] =
    ["ertmp_mptestsrc.flv", "ertmp_testsrc.flv", "scuffle_av1_aac.flv", "scuffle_hevc_aac.flv"];

/// A generated clip.
fn made(name: &str) -> PathBuf {
    testkit::clip(&format!("flv/{name}"))
}

/// A file of the corpus.
fn real(name: &str) -> PathBuf {
    testkit::corpus_dir().join("flv").join(name)
}

/// Names and bytes.
type Files = Vec<(String, Vec<u8>)>;

fn read<'a>(path: fn(&str) -> PathBuf, names: impl IntoIterator<Item = &'a str>) -> Files {
    let file = |name: &str| (name.to_owned(), std::fs::read(path(name)).unwrap());
    names.into_iter().map(file).collect()
}

/// All generated files.
fn all_made() -> Files {
    [read(made, LEGACY), enhanced_files()].concat()
}

/// All files of the corpus.
fn all_real() -> Files {
    read(real, REAL_LEGACY.into_iter().chain(REAL_ENHANCED))
}

#[derive(Default)]
struct Demuxed {
    metadata: Option<Metadata>,
    codecs: BTreeMap<TrackId, Vec<Codec>>,
    samples: BTreeMap<TrackId, Vec<Sample>>,
    problems: Vec<media::flv::Problem>,
    ends: usize,
    jumps: usize,
}

impl Demuxed {
    fn take(&mut self, demuxer: &mut Demuxer) {
        while let Some(event) = demuxer.poll_event() {
            self.jumps += usize::from(event.jumped());
            match event {
                Event::Metadata(metadata) => self.metadata = Some(metadata),
                Event::Track { track, codec } => {
                    self.codecs.entry(track).or_default().push(codec);
                }
                Event::Sample { track, sample, .. } => {
                    self.samples.entry(track).or_default().push(sample);
                }
                Event::End { .. } => self.ends += 1,
                Event::Problem(problem) => self.problems.push(problem),
            }
        }
    }
}

/// Reads a whole file, given in pieces of `piece` bytes.
fn demux(file: &[u8], piece: usize) -> (Demuxed, Result<(), media::Error>) {
    let mut reader = Reader::new();
    let mut demuxer = Demuxer::new();
    let mut demuxed = Demuxed::default();
    for bytes in file.chunks(piece) {
        reader.handle_bytes(bytes);
        loop {
            match reader.poll_tag() {
                Ok(Some(tag)) => demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload),
                Ok(None) => break,
                Err(error) => return (demuxed, Err(error)),
            }
            demuxed.take(&mut demuxer);
        }
    }
    (demuxed, reader.finish())
}

const VIDEO: TrackId = TrackId { kind: Kind::Video, number: 0 };
const AUDIO: TrackId = TrackId { kind: Kind::Audio, number: 0 };

/// dts, pts, size and keyframe flag of every packet of a kind, as ffprobe reports them.
fn probe(file: &Path, stream: &str) -> Vec<(i64, i64, usize, bool)> {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-of", "json", "-select_streams", stream])
        .args(["-show_entries", "packet=dts,pts,size,flags"])
        .arg(file)
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    json["packets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|packet| {
            (
                packet["dts"].as_i64().unwrap(),
                packet["pts"].as_i64().unwrap(),
                packet["size"].as_str().unwrap().parse().unwrap(),
                packet["flags"].as_str().unwrap().starts_with('K'),
            )
        })
        .collect()
}

fn summary(samples: &[Sample]) -> Vec<(i64, i64, usize, bool)> {
    samples
        .iter()
        .map(|sample| (sample.dts, sample.pts(), sample.data.len(), sample.sync))
        .collect()
}

/// Standard output of a program that reads `input`.
fn feed(program: &str, arguments: &[&str], input: &[u8]) -> String {
    use std::io::Write;
    let file = tempfile(input);
    let output =
        Command::new(program).args(arguments).arg(&file).stdin(Stdio::null()).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    std::io::stderr().write_all(&output.stderr).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn tempfile(input: &[u8]) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("media-flv-{}-{number}", std::process::id()));
    std::fs::write(&file, input).unwrap();
    file
}

/// Checks that the folder contains exactly these files.
#[track_caller]
fn assert_complete<'a>(folder: &Path, known: impl IntoIterator<Item = &'a str>) {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let mut known: Vec<_> = known.into_iter().collect();
    known.sort_unstable();
    assert_eq!(names, known);
}

#[test]
fn no_file_is_left_out() {
    assert_complete(&testkit::media_dir().join("flv"), LEGACY);
}

#[test]
#[ignore = "corpus"]
fn corpus_no_file_is_left_out() {
    let known = REAL_LEGACY.into_iter().chain(REAL_ENHANCED);
    assert_complete(&testkit::corpus_dir().join("flv"), known);
}

#[test]
fn legacy_files_equal_ffprobe() {
    equal_ffprobe(made, &LEGACY);
}

#[test]
#[ignore = "corpus"]
fn corpus_legacy_files_equal_ffprobe() {
    equal_ffprobe(real, &REAL_LEGACY);
}

fn equal_ffprobe(path: fn(&str) -> PathBuf, names: &[&str]) {
    for name in names {
        let file = std::fs::read(path(name)).unwrap();
        let (demuxed, result) = demux(&file, 4096);
        assert_eq!(result, Ok(()), "{name}");
        assert_eq!(demuxed.problems, [], "{name}");
        assert_eq!(demuxed.jumps, 0, "{name}");
        for (track, stream) in [(VIDEO, "v"), (AUDIO, "a")] {
            let expected = probe(&path(name), stream);
            let found = demuxed.samples.get(&track).map(|samples| summary(samples));
            assert_eq!(found.unwrap_or_default(), expected, "{name} {track}");
            assert_eq!(demuxed.codecs.contains_key(&track), !expected.is_empty());
        }
        // Where the tag says keyframe there is an IDR picture, and in these files nowhere else.
        if let Some([Codec::Avc(config)]) = demuxed.codecs.get(&VIDEO).map(Vec::as_slice) {
            for sample in &demuxed.samples[&VIDEO] {
                assert_eq!(config.is_random_access(&sample.data), Ok(sample.sync), "{name}");
            }
            assert_eq!(demuxed.ends, 1, "{name}");
            let metadata = demuxed.metadata.as_ref().unwrap();
            assert_eq!(metadata.width, Some(config.width.into()), "{name}");
            assert_eq!(metadata.height, Some(config.height.into()), "{name}");
            assert_eq!(metadata.video_codec, Some(7.0));
        }
    }
}

#[test]
fn size_of_pieces_makes_no_difference() {
    compare_pieces(&made("vfr.flv"));
}

#[test]
#[ignore = "corpus"]
fn corpus_size_of_pieces_makes_no_difference() {
    compare_pieces(&real("androidx_sample.flv"));
}

fn compare_pieces(path: &Path) {
    let file = std::fs::read(path).unwrap();
    let (whole, _) = demux(&file, file.len());
    for piece in [1, 7, 1000] {
        let (demuxed, result) = demux(&file, piece);
        assert_eq!(result, Ok(()));
        assert_eq!(demuxed.samples, whole.samples);
    }
}

/// Walks over a file's tags by their lengths alone: type, time, first bytes, length.
fn walk(file: &[u8]) -> Vec<(u8, i64, Vec<u8>, usize)> {
    let mut tags = Vec::new();
    let mut at = 13;
    while at < file.len() {
        let size = usize::from(file[at + 1]) << 16
            | usize::from(file[at + 2]) << 8
            | usize::from(file[at + 3]);
        let time = i64::from(file[at + 7]) << 24
            | i64::from(file[at + 4]) << 16
            | i64::from(file[at + 5]) << 8
            | i64::from(file[at + 6]);
        let payload = &file[at + 11..at + 11 + size];
        tags.push((file[at], time, payload[..size.min(12)].to_vec(), size));
        at += 11 + size + 4;
    }
    tags
}

/// Sample times and sizes of the enhanced files follow a simple rule on their bytes: the frame's
/// first byte and fourcc, and how many bytes come before the data.
fn equal_a_walk_over_their_tags(files: Files) {
    for (name, file) in files {
        let mut video = Vec::new();
        let mut audio = Vec::new();
        for (kind, time, head, size) in walk(&file) {
            let is_frame = |low: u8| head[0] & 0x8f == 0x80 | low;
            match (kind, &head[..]) {
                // AV1: one byte and the fourcc, then perhaps a temporal delimiter, 12 00.
                (9, [_, b'a', b'v', b'0', b'1', rest @ ..]) if is_frame(1) => {
                    let delimiter = if rest.starts_with(&[0x12, 0]) { 2 } else { 0 };
                    video.push((time, time, size - 5 - delimiter, head[0] >> 4 == 9));
                }
                // HEVC: with composition time, and without.
                (9, [_, b'h', b'v', b'c', b'1', a, b, c, ..]) if is_frame(1) => {
                    let cts = i64::from(i32::from_be_bytes([*a, *b, *c, 0]) >> 8);
                    video.push((time, time + cts, size - 8, head[0] >> 4 == 9));
                }
                (9, [_, b'h', b'v', b'c', b'1', ..]) if is_frame(3) => {
                    video.push((time, time, size - 5, head[0] >> 4 == 9));
                }
                (8, [0x91, b'O', b'p', b'u', b's', ..]) => {
                    audio.push((time, time, size - 5, true));
                }
                (8, [0xaf, 1, ..]) => audio.push((time, time, size - 2, true)),
                _ => {}
            }
        }
        let (demuxed, result) = demux(&file, 4096);
        assert_eq!(result, Ok(()), "{name}");
        assert_eq!(demuxed.problems, [], "{name}");
        assert!(video.len() > 50 && audio.len() > 50, "{name}");
        assert_eq!(summary(&demuxed.samples[&VIDEO]), video, "{name}");
        assert_eq!(summary(&demuxed.samples[&AUDIO]), audio, "{name}");
        assert_eq!(demuxed.codecs[&VIDEO].len(), 1, "{name}: {:?}", demuxed.codecs);
        assert_eq!(demuxed.codecs[&AUDIO].len(), 1, "{name}");
    }
}

#[test]
fn enhanced_files_equal_a_walk_over_their_tags() {
    equal_a_walk_over_their_tags(enhanced_files());
}

#[test]
#[ignore = "corpus"]
fn corpus_enhanced_files_equal_a_walk_over_their_tags() {
    equal_a_walk_over_their_tags(read(real, REAL_ENHANCED));
}

#[test]
fn enhanced_samples_decode() {
    decode_samples(enhanced_files());
}

#[test]
#[ignore = "corpus"]
fn corpus_enhanced_samples_decode() {
    decode_samples(read(real, REAL_ENHANCED));
}

/// ffprobe knows HEVC and AV1, but not in FLV. So it is given the samples alone.
fn decode_samples(files: Files) {
    for (name, file) in files {
        let (demuxed, _) = demux(&file, 1 << 20);
        let codec = &demuxed.codecs[&VIDEO][0];
        let samples = &demuxed.samples[&VIDEO];
        let mut stream = Vec::new();
        let format = match codec {
            Codec::Hevc(config) => {
                for unit in &config.nal_units {
                    stream.extend_from_slice(&[0, 0, 0, 1]);
                    stream.extend_from_slice(unit);
                }
                for sample in samples {
                    assert_eq!(config.is_random_access(&sample.data), Ok(sample.sync));
                    for unit in nal::units(&sample.data, config.nal_length_size) {
                        stream.extend_from_slice(&[0, 0, 0, 1]);
                        stream.extend_from_slice(unit.unwrap());
                    }
                }
                "hevc"
            }
            Codec::Av1(_) => {
                for sample in samples {
                    assert_eq!(av1::is_keyframe(&sample.data), Ok(sample.sync), "{name}");
                    assert_eq!(av1::temporal_delimiter(&sample.data), 0);
                    stream.extend_from_slice(&[0x12, 0]);
                    stream.extend_from_slice(&sample.data);
                }
                "obu"
            }
            other => panic!("{name}: {other:?}"),
        };
        let entries = "stream=width,height,nb_read_packets,level";
        let output = feed(
            "ffprobe",
            &[
                "-v",
                "error",
                "-f",
                format,
                "-count_packets",
                "-show_entries",
                entries,
                "-of",
                "json",
            ],
            &stream,
        );
        let json: Value = serde_json::from_str(&output).unwrap();
        let stream = &json["streams"][0];
        let (width, height) = codec.resolution().unwrap();
        assert_eq!(stream["width"], width, "{name}");
        assert_eq!(stream["height"], height, "{name}");
        let packets: usize = stream["nb_read_packets"].as_str().unwrap().parse().unwrap();
        assert_eq!(packets, samples.len(), "{name}");
        let metadata = demuxed.metadata.as_ref().unwrap();
        assert_eq!(metadata.width, Some(width.into()), "{name}");
        let level = match codec {
            Codec::Av1(config) => config.level,
            Codec::Hevc(config) => config.profile_tier_level.level,
            _ => continue,
        };
        assert_eq!(stream["level"], level, "{name}");
    }
}

/// An unsupported codec is reported once, while the other track continues.
#[test]
fn unsupported_codecs_are_named_once() {
    let dir = std::env::temp_dir().join(format!("media-flv-mp3-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let out = dir.join("x.flv");
    let source = testkit::clip("mp4/film.mp4");
    for (codec, rate, name) in
        [("libmp3lame", "44100", "MP3"), ("speex", "16000", "Speex"), ("flv", "", "Sorenson H.263")]
    {
        let is_video = codec == "flv";
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-y", "-t", "1", "-i"]).arg(&source);
        if is_video {
            command.args(["-c:v", "flv", "-s", "320x180", "-c:a", "copy"]);
        } else {
            command.args(["-c:v", "copy", "-c:a", codec, "-ar", rate, "-ac", "1"]);
        }
        let output = command.arg(&out).output().unwrap();
        // Not every build of ffmpeg has a Speex encoder.
        if codec == "speex" && !output.status.success() {
            continue;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (demuxed, result) = demux(&std::fs::read(&out).unwrap(), 4096);
        assert_eq!(result, Ok(()));
        let (bad, good) = if is_video { (VIDEO, AUDIO) } else { (AUDIO, VIDEO) };
        let [problem] = &demuxed.problems[..] else { panic!("{:?}", demuxed.problems) };
        assert_eq!(problem.track, Some(bad));
        assert!(matches!(problem.reason, Reason::Unsupported(_)), "{problem}");
        assert!(problem.to_string().contains(name), "{problem}");
        assert!(demuxed.samples[&good].len() >= 30);
        assert!(!demuxed.samples.contains_key(&bad));
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Damaged input must give errors with a position inside the file, never a panic.
fn survive(file: &[u8]) -> Result<(), media::Error> {
    let (demuxed, result) = demux(file, 1 << 16);
    for samples in demuxed.samples.values() {
        for sample in samples {
            assert!(sample.data.len() < file.len());
        }
    }
    for problem in &demuxed.problems {
        assert!(!problem.to_string().is_empty());
    }
    result
}

/// The start of a file, long enough to hold every kind of tag in it.
fn start(mut file: Vec<u8>) -> Vec<u8> {
    file.truncate(120_000);
    file
}

#[test]
fn truncations_never_panic() {
    cut_off(all_made());
}

#[test]
#[ignore = "corpus"]
fn corpus_truncations_never_panic() {
    cut_off(all_real());
}

fn cut_off(files: Files) {
    for (name, file) in files {
        let file = start(file);
        let mut random = Random::new(1);
        for length in (0..600.min(file.len())).chain((0..60).map(|_| random.index(file.len()))) {
            match survive(&file[..length]) {
                // Cut between two tags, or before the length behind one.
                Ok(()) => {}
                Err(media::Error::CutOff { at, needed, left, .. }) => {
                    assert!(at + left == length as u64 && needed > left, "{name} {length}");
                }
                Err(other) => panic!("{name} cut at {length}: {other}"),
            }
        }
    }
}

#[test]
fn bit_flips_never_panic() {
    flip_bits(all_made());
}

#[test]
#[ignore = "corpus"]
fn corpus_bit_flips_never_panic() {
    flip_bits(all_real());
}

fn flip_bits(files: Files) {
    let mut errors = 0;
    for (_, file) in files {
        let file = start(file);
        let mut random = Random::new(2);
        for round in 0..80 {
            let mut bytes = file.clone();
            // Half the rounds near the start, where the headers and configurations are.
            let reach = if round % 2 == 0 { 1500.min(bytes.len()) } else { bytes.len() };
            for _ in 0..1 + random.index(8) {
                let at = random.index(reach);
                bytes[at] ^= 1 << random.index(8);
            }
            errors += usize::from(survive(&bytes).is_err());
        }
    }
    assert!(errors > 10, "{errors}");
}

#[test]
fn damaged_payloads_leave_the_rest_alone() {
    damage_payloads(all_made());
}

#[test]
#[ignore = "corpus"]
fn corpus_damaged_payloads_leave_the_rest_alone() {
    damage_payloads(all_real());
}

/// The same damage, but the tags themselves stay whole, as RTMP's framing keeps them.
fn damage_payloads(files: Files) {
    for (name, file) in files {
        let file = start(file);
        let mut reader = Reader::new();
        reader.handle_bytes(&file);
        let mut tags = Vec::new();
        while let Some(tag) = reader.poll_tag().unwrap() {
            tags.push(tag);
        }
        let mut random = Random::new(3);
        let mut demuxer = Demuxer::new();
        let mut demuxed = Demuxed::default();
        let mut frames = 0;
        for (index, tag) in tags.iter().enumerate() {
            let mut payload = tag.payload.to_vec();
            // The script and the configurations at the start stay whole.
            if index > 6 && random.index(3) == 0 && !payload.is_empty() {
                if random.index(2) == 0 {
                    payload.truncate(random.index(payload.len()));
                } else {
                    // Not in the first bytes, which mark the tag as a frame: a broken configuration
                    // may stop a track.
                    let at = 2 + random.index(payload.len().min(16));
                    if let Some(byte) = payload.get_mut(at) {
                        *byte ^= 1 << random.index(8);
                    }
                }
            } else if index > 6 && tag.kind != TagKind::Script {
                frames += 1;
            }
            demuxer.handle_tag(tag.kind, tag.timestamp, &Bytes::from(payload));
            demuxed.take(&mut demuxer);
        }
        let samples: usize = demuxed.samples.values().map(Vec::len).sum();
        assert!(samples > frames / 2, "{name}: {samples} of {frames}");
    }
}
