//! ffmpeg checks the output of the CMAF writer. It encodes a clip as fragmented MP4; the samples
//! are read and packaged again; ffmpeg must then decode exactly the same video and audio.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use media::cmaf::{self, Chunk, ChunkInfo, ReferenceTime, SegmentStart};
use media::{Codec, Kind, Sample, Track};
use testkit::Program;

/// Time limit for a program.
const LIMIT: Duration = Duration::from_secs(180);

/// Standard output of a program, which must not complain.
fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
    let finished = Program::spawn(Command::new(program).args(arguments)).wait(LIMIT);
    assert!(finished.status.success(), "{program} {arguments:?}: {}", finished.stderr);
    assert_eq!(finished.stderr, "", "{program} {arguments:?}");
    finished.stdout
}

/// Like [`run`], with `input` in a file whose name stands between the arguments.
fn run_on(program: &str, before: &[&str], input: &[u8], after: &[&str]) -> Vec<u8> {
    let mut file = tempfile::NamedTempFile::new().expect("creates");
    file.write_all(input).expect("writes");
    let path = file.path().to_str().expect("is UTF-8");
    run(program, &[before, &[path], after].concat())
}

/// Two seconds of test pattern and tone as fragmented MP4.
fn encode(video: &[&str], audio: &[&str]) -> Bytes {
    let mut arguments = vec!["-v", "error", "-nostdin"];
    arguments.extend(["-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=2"]);
    arguments.extend(["-f", "lavfi", "-i", "sine=f=440:r=48000:d=2"]);
    arguments.extend(["-map", "0:v", "-map", "1:a", "-pix_fmt", "yuv420p", "-g", "25"]);
    arguments.extend(video);
    arguments.extend(audio);
    arguments.extend(["-metadata:s:a:0", "language=fra", "-f", "mp4"]);
    arguments.extend(["-movflags", "delay_moov+default_base_moof+frag_keyframe", "pipe:1"]);
    run("ffmpeg", &arguments).into()
}

/// Writes header and chunks again, of all tracks, with `per_chunk` samples per chunk, in the order
/// of time.
fn repackage(tracks: &[Track], read: &[Chunk], per_chunk: usize) -> Vec<u8> {
    let mut out = cmaf::header(&tracks.iter().collect::<Vec<_>>()).expect("writes").to_vec();
    let mut chunks: Vec<(f64, Vec<u8>)> = Vec::new();
    for track in tracks {
        let samples: Vec<Sample> = read
            .iter()
            .filter(|chunk| chunk.track_id == track.id)
            .flat_map(|chunk| chunk.samples.clone())
            .collect();
        assert!(!samples.is_empty(), "track {} has samples", track.id);
        for (number, samples) in samples.chunks(per_chunk).enumerate() {
            let mut bytes = Vec::new();
            let reference = Some(ReferenceTime {
                unix_micros: 1_795_291_260_000_000,
                media_time: samples[0].dts as u64,
            });
            let info = ChunkInfo {
                track_id: track.id,
                sequence_number: number as u32 + 1,
                segment_start: (number % 4 == 0).then_some(SegmentStart { reference }),
            };
            cmaf::write_chunk(&mut bytes, &info, samples).expect("writes");
            chunks.push((samples[0].dts as f64 / f64::from(track.timescale), bytes));
        }
    }
    chunks.sort_by(|a, b| a.0.total_cmp(&b.0));
    chunks.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
    out
}

/// Hash and time of every decoded frame of a stream.
fn frames(data: &[u8], stream: &str) -> Vec<String> {
    let before = ["-v", "error", "-ignore_editlist", "1", "-i"];
    let after = ["-map", stream, "-copyts", "-f", "framemd5", "pipe:1"];
    let out = run_on("ffmpeg", &before, data, &after);
    let text = String::from_utf8(out).expect("is text");
    let frames: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).map(String::from).collect();
    assert!(frames.len() >= 40, "{} frames decoded", frames.len());
    frames
}

fn check(video: &[&str], audio: &[&str]) {
    let original = encode(video, audio);
    let header = cmaf::read_header(&original).expect("reads ffmpeg's header");
    let read: Vec<_> =
        cmaf::chunks(&original, Some(&header)).collect::<Result<_, _>>().expect("reads chunks");
    assert_eq!(header.tracks.len(), 2);
    for per_chunk in [1, 6, 1000] {
        let ours = repackage(&header.tracks, &read, per_chunk);
        for stream in ["0:v", "0:a"] {
            assert_eq!(frames(&ours, stream), frames(&original, stream), "{video:?} {audio:?}");
        }
    }

    // One track's chunks under its own header are the same bytes and play on their own.
    for track in &header.tracks {
        let alone = repackage(std::slice::from_ref(track), &read, 6);
        let stream = if track.kind() == Kind::Video { "0:v" } else { "0:a" };
        assert_eq!(frames(&alone, stream), frames(&original, stream));
    }

    let ours = repackage(&header.tracks, &read, 6);
    let before = ["-v", "error", "-show_streams", "-show_format", "-of", "json"];
    let probe = run_on("ffprobe", &before, &ours, &[]);
    let probe: serde_json::Value = serde_json::from_slice(&probe).expect("is JSON");
    let streams = probe["streams"].as_array().expect("lists streams");
    for (stream, track) in streams.iter().zip(&header.tracks) {
        let name = match &track.codec {
            Codec::Avc(_) => "h264",
            Codec::Hevc(_) => "hevc",
            Codec::Av1(_) => "av1",
            Codec::Aac(_) => "aac",
            Codec::Opus(_) => "opus",
            other => panic!("{other:?}"),
        };
        assert_eq!(stream["codec_name"], name);
        if let Some((width, height)) = track.codec.resolution() {
            assert_eq!((&stream["width"], &stream["height"]), (&width.into(), &height.into()));
            assert_eq!((width, height), (320, 180));
        } else {
            assert_eq!(stream["sample_rate"], "48000");
            assert_eq!(stream["tags"]["language"], "fra");
            assert_eq!(track.language, *b"fra");
        }
    }
    assert_eq!(probe["format"]["tags"]["compatible_brands"], "iso6cmfccmf2");
}

#[test]
fn h264_and_aac() {
    check(&["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2"], &["-c:a", "aac"]);
}

#[test]
fn hevc_and_opus() {
    check(
        &[
            "-c:v",
            "libx265",
            "-preset",
            "ultrafast",
            "-x265-params",
            "log-level=none",
            "-tag:v",
            "hvc1",
        ],
        &["-c:a", "libopus"],
    );
}

#[test]
fn av1_and_stereo_aac() {
    check(
        &["-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime"],
        &["-c:a", "aac", "-ac", "2"],
    );
}
