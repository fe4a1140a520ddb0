//! Compares configuration records with what ffprobe and ffmpeg's own muxers report about them.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use media::codec::{Codec, aac, av1, avc, hevc, nal, opus};
use media::{Error, Kind};
use proptest::prelude::*;
use serde_json::Value;

/// Every file of a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// ffprobe's report on the streams of a file; `None` where it cannot read the file.
fn probe(file: &Path) -> Option<Vec<Value>> {
    let output = Command::new("ffprobe")
        .args(["-v", "quiet", "-of", "json", "-show_streams"])
        .arg(file)
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).ok()?;
    json["streams"].as_array().cloned()
}

/// The payloads of all boxes of that type. They are found by searching for the name, without our
/// parsers.
fn boxes(file: &[u8], name: &[u8; 4]) -> Vec<Bytes> {
    let mut found = Vec::new();
    for at in 4..file.len().saturating_sub(4) {
        if &file[at..at + 4] != name {
            continue;
        }
        let size = u32::from_be_bytes(file[at - 4..at].try_into().unwrap()) as usize;
        if (8..1 << 16).contains(&size) && at - 4 + size <= file.len() {
            found.push(Bytes::copy_from_slice(&file[at + 4..at - 4 + size]));
        }
    }
    found
}

/// Width, height and level that ffprobe reports for the streams of a codec.
fn pictures(streams: &[Value], codec: &str) -> Vec<(u64, u64, i64)> {
    streams
        .iter()
        .filter(|stream| stream["codec_name"] == codec)
        .map(|stream| {
            let number = |key: &str| stream[key].as_u64().unwrap_or_default();
            (number("width"), number("height"), stream["level"].as_i64().unwrap_or_default())
        })
        .collect()
}

#[test]
fn records_of_every_mp4_agree_with_ffprobe() {
    let [avc, hevc, av1, opus] = check_records(files(&testkit::media_dir().join("mp4")));
    assert!(avc > 25 && hevc >= 3 && av1 >= 2 && opus >= 3, "{avc} {hevc} {av1} {opus}");
}

#[test]
#[ignore = "corpus"]
fn corpus_records_of_every_mp4_agree_with_ffprobe() {
    let folders = ["mp4", "bbb", "film"].map(|folder| testkit::corpus_dir().join(folder));
    let all = folders.iter().flat_map(|folder| files(folder)).collect();
    let [avc, hevc, av1, opus] = check_records(all);
    assert!(avc > 50 && hevc > 5 && av1 > 0 && opus > 0, "{avc} {hevc} {av1} {opus}");
}

/// How many records were compared: AVC, HEVC, AV1, Opus.
fn check_records(files: Vec<PathBuf>) -> [usize; 4] {
    let mut checked = [0; 4];
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let Some(streams) = probe(&file) else { continue };
        let mut check = |index: usize, codec: &str, found: (u32, u32, u8)| {
            let expected = pictures(&streams, codec);
            // ffprobe does not open every sample description of a file.
            if expected.is_empty() {
                return;
            }
            let (width, height, level) = found;
            // FFmpeg reports level 1b as 9, and -99 where it could not open the stream.
            assert!(
                expected.iter().any(|&(w, h, l)| (w, h) == (width.into(), height.into())
                    && (l == i64::from(level) || l == 9 || l == -99)),
                "{name}: {codec} {width}x{height} level {level}, ffprobe {expected:?}"
            );
            checked[index] += 1;
        };
        for record in boxes(&bytes, b"avcC") {
            let config = avc::Config::parse(record).unwrap_or_else(|e| panic!("{name}: {e}"));
            check(0, "h264", (config.width, config.height, config.level));
        }
        for record in boxes(&bytes, b"hvcC") {
            let config = hevc::Config::parse(record).unwrap_or_else(|e| panic!("{name}: {e}"));
            check(1, "hevc", (config.width, config.height, config.profile_tier_level.level));
        }
        for record in boxes(&bytes, b"av1C") {
            let config = av1::Config::parse(record).unwrap_or_else(|e| panic!("{name}: {e}"));
            if config.width > 0 {
                check(2, "av1", (config.width, config.height, config.level));
            }
        }
        for record in boxes(&bytes, b"dOps") {
            let config = opus::Config::parse(record).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(
                streams.iter().filter(|stream| stream["codec_name"] == "opus").any(|stream| {
                    stream["channels"] == u64::from(config.channels)
                        && stream["initial_padding"].as_u64().is_none_or(|padding| {
                            padding == 0 || padding == u64::from(config.pre_skip)
                        })
                }),
                "{name}: {config:?}"
            );
            // Converting to OpusHead and back gives the same record.
            assert_eq!(opus::Config::from_opus_head(&config.opus_head()), Ok(config));
            checked[3] += 1;
        }
    }
    checked
}

/// Encodes a synthetic clip and muxes it to DASH. Returns ffmpeg's codec string and its header
/// file.
fn dash(arguments: &[&str]) -> (String, Vec<u8>) {
    let dir = tempfile();
    let mpd = dir.join("x.mpd");
    let mut all = vec!["-v", "error", "-y", "-f", "lavfi"];
    all.extend_from_slice(arguments);
    all.extend_from_slice(&["-strict", "-2", "-f", "dash", "-init_seg_name", "init.mp4"]);
    all.extend_from_slice(&["-dash_segment_type", "mp4", mpd.to_str().unwrap()]);
    run("ffmpeg", &all);
    let manifest = std::fs::read_to_string(&mpd).unwrap();
    let codecs = manifest.split("codecs=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let init = std::fs::read(dir.join("init.mp4")).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    (codecs, init)
}

/// A fresh folder.
fn tempfile() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("media-codec-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn avc_agrees_with_the_encoder() {
    for (size, rate, profile, pixels, options) in [
        ((426, 240), (30, 1), "baseline", "yuv420p", ""),
        ((1280, 718), (30000, 1001), "main", "yuv420p", ""),
        ((640, 360), (25, 1), "high", "yuv420p", ""),
        ((322, 182), (60, 1), "high422", "yuv422p", ""),
        // Fields, scaling lists, more bits, and other numbers of planes.
        ((322, 180), (25, 1), "high", "yuv420p", "interlaced=1:cqm=jvt"),
        ((322, 180), (25, 1), "high422", "yuv422p10le", "interlaced=1"),
        ((321, 181), (25, 1), "high444", "yuv444p", "cqm=jvt"),
        ((321, 181), (25, 1), "high", "gray", ""),
    ] {
        let source = format!("testsrc=s={}x{}:r={}/{}:d=0.3", size.0, size.1, rate.0, rate.1);
        let encoder = ["-c:v", "libx264", "-profile:v", profile, "-x264-params", options];
        let arguments = [&["-i", &source], &encoder[..], &["-pix_fmt", pixels]].concat();
        let (codecs, init) = dash(&arguments);
        let record = boxes(&init, b"avcC").remove(0);
        let config = avc::Config::parse(record.clone()).unwrap();
        assert_eq!((config.width, config.height), size);
        assert_eq!(config.frame_rate, Some(rate));
        assert_eq!(config.nal_length_size, 4);
        assert_eq!((config.sps.len(), config.pps.len()), (1, 1));
        assert_eq!(config.rfc6381(), codecs);
        // The same record, made from its parameter sets instead.
        assert_eq!(avc::record(&config.sps, &config.pps).unwrap(), record, "{profile} {pixels}");
    }
}

#[test]
fn av1_agrees_with_the_encoder() {
    let source = "testsrc=s=200x120:r=24:d=0.2";
    for pixels in ["yuv420p", "yuv420p10le", "yuv444p", "gray"] {
        let (codecs, init) =
            dash(&["-i", source, "-c:v", "libaom-av1", "-cpu-used", "8", "-pix_fmt", pixels]);
        let config = av1::Config::parse(boxes(&init, b"av1C").remove(0)).unwrap();
        assert_eq!((config.width, config.height), (200, 120), "{pixels}");
        // The muxer may add the optional fields where they have default values, or leave them out
        // where they do not.
        let ours = config.rfc6381();
        assert!(ours.starts_with(&codecs) || codecs.starts_with(&ours), "{ours} {codecs}");
        assert_eq!(config.monochrome, pixels == "gray");
        assert_eq!(config.bit_depth, if pixels == "yuv420p10le" { 10 } else { 8 });

        // The same configuration, made from the record's sequence header instead.
        let learnt = av1::Config::from_temporal_unit(&config.record[4..]).unwrap().unwrap();
        assert_eq!(learnt, config);
    }
    let simple = Bytes::from_static(&[0x81, 0x04, 0x0c, 0x00]);
    assert_eq!(av1::Config::parse(simple).unwrap().rfc6381(), "av01.0.04M.08");
    // AV1-ISOBMFF 5: profile 0, level 2.0, main tier, 10 bits, monochrome, 4:2:0 of known position.
    let full = Bytes::from_static(&[0x81, 0x00, 0x5e, 0x00]);
    assert_eq!(av1::Config::parse(full).unwrap().rfc6381(), "av01.0.00M.10.1.112.01.01.01.0");
}

#[test]
fn hevc_agrees_with_the_encoder() {
    for (size, rate, pixels, codecs) in [
        ((320, 180), (25, 1), "yuv420p", "hvc1.1.6.L60.90"),
        ((642, 362), (30000, 1001), "yuv420p10le", "hvc1.2.4.L63.90"),
        ((1280, 720), (60, 1), "yuv420p", "hvc1.1.6.L120.90"),
    ] {
        let dir = tempfile();
        let file = dir.join("x.mp4");
        let source = format!("testsrc=s={}x{}:r={}/{}:d=0.3", size.0, size.1, rate.0, rate.1);
        run(
            "ffmpeg",
            &[
                "-v",
                "error",
                "-f",
                "lavfi",
                "-i",
                &source,
                "-c:v",
                "libx265",
                "-preset",
                "ultrafast",
                "-x265-params",
                // Without the message that tells the encoder's options.
                "log-level=error:info=0",
                "-pix_fmt",
                pixels,
                "-tag:v",
                "hvc1",
                file.to_str().unwrap(),
            ],
        );
        let record = boxes(&std::fs::read(&file).unwrap(), b"hvcC").remove(0);
        let streams = probe(&file).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let config = hevc::Config::parse(record).unwrap();
        assert_eq!((config.width, config.height), size);
        assert_eq!(config.frame_rate, Some(rate));
        assert_eq!(Some(i64::from(config.profile_tier_level.level)), streams[0]["level"].as_i64());
        assert_eq!(config.rfc6381(), codecs);
        // The same record, made from its parameter sets instead.
        let [vps, sps, pps] = config.nal_units.as_slice() else { panic!("{config:?}") };
        let [vps, sps, pps] = [vps, sps, pps].map(std::slice::from_ref);
        assert_eq!(hevc::record(vps, sps, pps).unwrap(), config.record);
    }
}

#[test]
fn a_record_of_hevc_needs_each_kind_of_parameter_set() {
    let [vps, sps, pps] = testkit::hevc_sets().map(|set| [Bytes::from(set)]);
    assert!(hevc::record(&vps, &sps, &pps).is_ok());
    for (vps, sps, pps) in [(&[][..], &sps[..], &pps[..]), (&vps, &[], &pps), (&vps, &sps, &[])] {
        let error = hevc::record(vps, sps, pps).unwrap_err().to_string();
        assert!(error.contains("no VPS, no SPS or no PPS"), "{error}");
    }
    // The SPS ends before the bit depths.
    for end in 0..24 {
        assert!(hevc::record(&vps, &[sps[0].slice(..end)], &pps).is_err(), "{end}");
    }
}

#[test]
fn hevc_codec_strings_of_the_standard() {
    // The record of an encoder's stream. Its profile bytes are replaced by those of the strings.
    let file = testkit::clip("mp4/hevc.mp4");
    let record = boxes(&std::fs::read(file).unwrap(), b"hvcC").remove(0);
    let with = |bytes: [u8; 12]| {
        let mut record = record.to_vec();
        record[1..13].copy_from_slice(&bytes);
        hevc::Config::parse(record.into()).unwrap().rfc6381()
    };
    // ISO/IEC 14496-15 annex E.3's examples.
    assert_eq!(with([0x01, 0x60, 0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 93]), "hvc1.1.6.L93.B0");
    assert_eq!(with([0x24, 0x08, 0, 0, 0, 0xb2, 0x08, 0, 0, 0, 0, 120]), "hvc1.4.10.H120.B2.8");
    assert_eq!(with([0x81, 0x60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30]), "hvc1.B1.6.L30");
}

#[test]
fn aac_agrees_with_the_encoder() {
    for (rate, channels, layout) in
        [(48_000, 2, "stereo"), (44_100, 1, "mono"), (8_000, 6, "5.1"), (96_000, 8, "7.1(wide)")]
    {
        let source = format!("anullsrc=r={rate}:cl={layout}:d=0.3");
        let (codecs, init) = dash(&["-i", &source, "-c:a", "aac"]);
        let esds = boxes(&init, b"esds").remove(0);
        // DecoderSpecificInfo has tag 5; its length may take any number of bytes.
        let tag = esds.windows(4).position(|bytes| bytes == [5, 0x80, 0x80, 0x80]).unwrap();
        let length = usize::from(esds[tag + 4]);
        let config = aac::Config::parse(esds.slice(tag + 5..tag + 5 + length)).unwrap();
        assert_eq!((config.sample_rate, config.channels), (rate, channels));
        assert_eq!(config.frame_length, 1024);
        assert_eq!(config.rfc6381(), codecs);
    }
}

/// An FLV file of AAC with this configuration and the same access unit 20 times (FLV 10.1, E.4).
fn flv_of(record: &[u8], unit: &[u8]) -> Vec<u8> {
    let mut file = b"FLV\x01\x04\0\0\0\x09\0\0\0\0".to_vec();
    for (index, (kind, content)) in [(0, record)].into_iter().chain([(1, unit); 20]).enumerate() {
        let size = u32::try_from(content.len()).unwrap() + 2;
        let time = u32::try_from(index).unwrap() * 20;
        file.push(8);
        file.extend(&size.to_be_bytes()[1..]);
        file.extend(&time.to_be_bytes()[1..]);
        file.extend([0; 4]);
        file.extend([0xaf, kind]);
        file.extend(content);
        file.extend((size + 11).to_be_bytes());
    }
    file
}

#[test]
fn ffmpeg_decodes_silence_to_zeros() {
    let lc = |channel_config: u8| vec![0x11, 0x80 | channel_config << 3];
    // HE-AAC of two channels and of 5.1, HE-AAC v2, and AAC-LC of 960 samples a frame.
    let others: [&[u8]; 4] = [
        &[0x2b, 0x92, 0x08, 0x00],
        &[0x2b, 0x31, 0x88, 0x00],
        &[0xeb, 0x09, 0x88, 0x00],
        &[0x11, 0x94],
    ];
    let records = [1, 2, 3, 4, 5, 6, 7, 11, 12].map(lc).into_iter();
    for record in records.chain(others.map(<[u8]>::to_vec)) {
        let config = aac::Config::parse(Bytes::copy_from_slice(&record)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("silence.flv");
        std::fs::write(&path, flv_of(&record, &config.silence().unwrap())).unwrap();
        let input =
            ["-v", "error", "-xerror", "-err_detect", "explode", "-i", path.to_str().unwrap()];
        let pcm = run("ffmpeg", &[&input[..], &["-f", "f32le", "-"]].concat());
        let samples = pcm.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        assert!(samples.clone().all(|sample| sample == 0.0), "{record:x?}");
        // ffmpeg leaves out what the decoder needs to begin: less than two units.
        let units = samples.count() / usize::from(config.channels) / config.frame_length as usize;
        assert!((18..=20).contains(&units), "{record:x?}: {units} units");
    }
    // AAC Main, and channels that are listed.
    for record in [&[0x09, 0x90][..], &[0x11, 0x80, 0x04, 0xc4, 0x01, 0x00, 0x20, 0x00, 0x00]] {
        let config = aac::Config::parse(Bytes::copy_from_slice(record)).unwrap();
        assert_eq!(config.silence(), None, "{record:x?}");
    }
}

#[test]
fn aac_extensions() {
    let parse = |bytes: &'static [u8]| {
        let config = aac::Config::parse(Bytes::from_static(bytes)).unwrap();
        (
            config.object_type,
            config.sample_rate,
            config.channels,
            config.frame_length,
            config.sbr,
            config.ps,
        )
    };
    // LC 48 kHz stereo; 960 samples a frame.
    assert_eq!(parse(&[0x11, 0x90]), (2, 48_000, 2, 1024, false, false));
    assert_eq!(parse(&[0x11, 0x94]), (2, 48_000, 2, 960, false, false));
    // HE-AAC, SBR first: 22.05 kHz core, 44.1 kHz out.
    assert_eq!(parse(&[0x2b, 0x92, 0x08, 0x00]), (5, 44_100, 2, 2048, true, false));
    // HE-AAC v2, PS first: 24 kHz mono core, 48 kHz stereo out.
    assert_eq!(parse(&[0xeb, 0x09, 0x88, 0x00]), (29, 48_000, 2, 2048, true, true));
    // The same for decoders that know neither: SBR and PS follow the core's configuration.
    assert_eq!(parse(&[0x13, 0x90, 0x56, 0xe5, 0xa0]), (2, 44_100, 2, 2048, true, false));
    assert_eq!(
        parse(&[0x13, 0x08, 0x56, 0xe5, 0x9d, 0x48, 0x80]),
        (2, 48_000, 2, 2048, true, true)
    );
    // SBR signalled as absent, as FFmpeg writes it.
    assert_eq!(parse(&[0x11, 0x90, 0x56, 0xe5, 0x00]), (2, 48_000, 2, 1024, false, false));
    // A rate that is written out: 12,345 Hz.
    assert_eq!(parse(&[0x17, 0x80, 0x18, 0x1c, 0x90]), (2, 12_345, 2, 1024, false, false));
    // Channels from a program config element: a front pair and an LFE.
    let pce = [0x11, 0x80, 0x04, 0xc4, 0x01, 0x00, 0x20, 0x00, 0x00];
    let config = aac::Config::parse(Bytes::copy_from_slice(&pce)).unwrap();
    assert_eq!((config.channels, config.sample_rate), (3, 48_000));
    // Object types outside the family, reserved values.
    for (bytes, what) in [
        (&[0xf9, 0x46, 0x40][..], "MPEG-4 audio object type 42"),
        (&[0x17, 0x80], "is cut off"),
        (&[0x16, 0x90], "reserved sampling frequency"),
        (&[0x11, 0xc8, 0x00], "reserved channel configuration"),
        // Rates outside the range of the table, written out: also that of SBR.
        (&[0x17, 0x80, 0x00, 0x00, 0x10], "AAC sampling rate of 0 Hz"),
        (&[0x17, 0x80, 0x00, 0x00, 0x90], "AAC sampling rate of 1 Hz"),
        (&[0x17, 0x80, 0x0e, 0x5a, 0x90], "AAC sampling rate of 7349 Hz"),
        (&[0x17, 0x80, 0xbb, 0x80, 0x90], "AAC sampling rate of 96001 Hz"),
        (&[0x17, 0xff, 0xff, 0xff, 0x90], "AAC sampling rate of 16777215 Hz"),
        (&[0x2b, 0x97, 0xff, 0xff, 0xff, 0x88, 0x00], "AAC sampling rate of 16777215 Hz"),
        (&[], "AudioSpecificConfig"),
    ] {
        let error = aac::Config::parse(Bytes::copy_from_slice(bytes)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn opus_packets_tell_their_duration() {
    let dir = tempfile();
    for duration in ["2.5", "5", "10", "20", "40", "60"] {
        let file = dir.join("x.mka");
        run(
            "ffmpeg",
            &[
                "-v",
                "error",
                "-y",
                "-f",
                "lavfi",
                "-i",
                "sine=d=1:r=48000",
                "-c:a",
                "libopus",
                "-frame_duration",
                duration,
                file.to_str().unwrap(),
            ],
        );
        let output = run(
            "ffprobe",
            &["-v", "error", "-of", "json", "-show_packets", "-show_data", file.to_str().unwrap()],
        );
        let json: Value = serde_json::from_slice(&output).unwrap();
        let packets = json["packets"].as_array().unwrap();
        assert!(packets.len() > 10);
        let expected = (duration.parse::<f64>().unwrap() * 48.0) as u32;
        for packet in packets {
            // "00000000: f8ff fe..": the first bytes are enough.
            let line = packet["data"].as_str().unwrap().trim_start();
            let hex: String = line[10..19].chars().filter(char::is_ascii_hexdigit).collect();
            let bytes: Vec<u8> = (0..hex.len() / 2)
                .map(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap())
                .collect();
            assert_eq!(opus::packet_duration(&bytes), Some(expected));
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(opus::packet_duration(&[]), None);
    // Code 3 without its frame count, with none, and with more than 120 ms.
    assert_eq!(opus::packet_duration(&[0xfb]), None);
    assert_eq!(opus::packet_duration(&[0xfb, 0]), None);
    assert_eq!(opus::packet_duration(&[0xfb, 7]), None);
    assert_eq!(opus::packet_duration(&[0xfb, 6]), Some(5760));
}

#[test]
fn opus_head_becomes_dops() {
    let head = b"OpusHead\x01\x02\x38\x01\x80\xbb\x00\x00\x00\x00\x00";
    let config = opus::Config::from_opus_head(head).unwrap();
    assert_eq!(config.record.as_ref(), [0, 2, 0x01, 0x38, 0, 0, 0xbb, 0x80, 0, 0, 0]);
    assert_eq!((config.channels, config.pre_skip), (2, 312));
    assert_eq!(config.input_sample_rate, 48_000);
    assert_eq!(config.opus_head().as_ref(), head);
    // 5.1 with its table.
    let mut head = head.to_vec();
    head[9] = 6;
    head[18] = 1;
    head.extend_from_slice(&[4, 2, 0, 4, 1, 2, 3, 5]);
    let config = opus::Config::from_opus_head(&head).unwrap();
    assert_eq!((config.channels, config.record.len()), (6, 19));
    assert_eq!(config.opus_head().as_ref(), head);
    head.truncate(25);
    assert!(matches!(opus::Config::from_opus_head(&head), Err(Error::CutOff { .. })));
}

#[test]
fn errors_name_what_and_where() {
    let file = std::fs::read(testkit::clip("mp4/film.mp4")).unwrap();
    let record = boxes(&file, b"avcC").remove(0);
    let with = |at: usize, byte: u8| {
        let mut bytes = record.to_vec();
        bytes[at] = byte;
        avc::Config::parse(bytes.into()).unwrap_err().to_string()
    };
    assert_eq!(with(0, 2), "avcC version 2 at byte 0 is not supported");
    assert_eq!(with(4, 0xfe), "avcC: NAL unit lengths of 3 bytes at byte 4");
    assert!(with(7, 0xff).starts_with("avcC at byte 0 is cut off"));
    let error = with(8, 0x68);
    assert!(error.starts_with("avcC: SPS unreadable, SPS: a NAL unit of another type"), "{error}");
    let error = with(12, 0xc8);
    assert!(error.contains("a picture order count of a type that does not exist"), "{error}");
    // A record that understates the level is still read: level 1.0 for a picture of 360 lines.
    let mut bytes = record.to_vec();
    (bytes[3], bytes[11]) = (10, 10);
    assert_eq!(avc::Config::parse(bytes.into()).unwrap().height, 360);
    // A camera's record, whose SPS has bits behind its end (github.com/scottlamb/retina/issues/102), and others whose
    // fields go wrong behind the size.
    let sps =
        b"\x67\x64\x00\x33\xac\x15\x14\xa0\xa0\x3d\xa1\x00\x00\x04\xf6\x00\x00\x63\x38\x04\x04";
    for (length, frame_rate) in [(21, Some((10, 1))), (19, Some((10, 1))), (12, None)] {
        let record = avc::record(&[Bytes::copy_from_slice(&sps[..length])], &[Bytes::from("\x68")]);
        let config = avc::Config::parse(record.unwrap()).unwrap();
        assert_eq!((config.width, config.height, config.frame_rate), (640, 480, frame_rate));
    }
    for length in 0..record.len() {
        // What follows the parameter sets is optional; here there is nothing.
        let error = avc::Config::parse(record.slice(..length)).err();
        assert!(error.is_some() || record[1] >= 100, "{length}");
    }
}

#[test]
fn access_units_are_walked() {
    let unit = [0, 0, 0, 2, 9, 0xf0, 0, 0, 0, 0, 0, 0, 0, 3, 0x65, 1, 2];
    assert_eq!(
        nal::units(&unit, 4).map(Result::unwrap).collect::<Vec<_>>(),
        [&[9, 0xf0][..], &[0x65, 1, 2]]
    );
    nal::check(&unit, 4).unwrap();
    assert_eq!(
        nal::check(&unit[..16], 4).unwrap_err(),
        Error::CutOff { what: "NAL unit".into(), at: 10, needed: 7, left: 6 }
    );
    assert_eq!(
        nal::check(&unit[..12], 4).unwrap_err(),
        Error::CutOff { what: "NAL unit length".into(), at: 10, needed: 4, left: 2 }
    );
    assert!(nal::check(&[], 4).is_err());
    assert!(nal::check(&[0, 0, 0, 0], 4).is_err());
    assert_eq!(nal::units(&[1, 7, 2, 8, 9], 1).map(Result::unwrap).count(), 2);
    assert_eq!(nal::units(&[0, 1, 7, 0, 2, 8, 9], 2).map(Result::unwrap).count(), 2);

    let file = testkit::clip("mp4/film.mp4");
    let record = boxes(&std::fs::read(file).unwrap(), b"avcC").remove(0);
    let config = avc::Config::parse(record).unwrap();
    assert_eq!(config.is_random_access(&unit), Ok(true));
    assert_eq!(config.is_random_access(&unit[..6]), Ok(false));
    assert!(config.is_random_access(&unit[..16]).is_err());
}

#[test]
fn av1_keyframes_are_known() {
    // Temporal delimiter; an unimportant sequence header; a key frame. Then an inter frame, and a
    // frame shown again.
    assert_eq!(av1::is_keyframe(&[0x12, 0, 0x0a, 1, 0, 0x32, 1, 0x10]), Ok(true));
    assert_eq!(av1::is_keyframe(&[0x12, 0, 0x32, 1, 0x30]), Ok(false));
    assert_eq!(av1::is_keyframe(&[0x1a, 1, 0x80]), Ok(false));
    // A reduced still picture has no frame type.
    assert_eq!(av1::is_keyframe(&[0x0a, 1, 0x18, 0x32, 1, 0x30]), Ok(true));
    assert_eq!(av1::temporal_delimiter(&[0x12, 0, 0x32, 1, 0x30]), 2);
    assert_eq!(av1::temporal_delimiter(&[0x32, 1, 0x30]), 0);
    assert!(matches!(
        av1::is_keyframe(&[0x12, 0, 0x32, 9, 0x30]),
        Err(Error::CutOff { at: 2, needed: 11, left: 3, .. })
    ));
}

/// All records of a codec in the media, as seeds.
fn seeds() -> Vec<Bytes> {
    let mut seeds = Vec::new();
    for name in ["mp4/hevc.mp4", "mp4/film.mp4", "mp4/pictures.mp4", "mp4/av1.mp4"] {
        let bytes = std::fs::read(testkit::clip(name)).unwrap();
        for kind in [b"avcC", b"hvcC", b"av1C"] {
            seeds.extend(boxes(&bytes, kind));
        }
    }
    seeds.push(Bytes::from_static(&[0x13, 0x08, 0x56, 0xe5, 0x9d, 0x48, 0x80]));
    seeds.push(Bytes::from_static(&[0, 2, 1, 0x38, 0, 0, 0xbb, 0x80, 0, 0, 0]));
    seeds
}

/// No parser panics on any input, and any accepted input makes sense.
fn parse_as_everything(bytes: &Bytes) {
    if let Ok(config) = avc::Config::parse(bytes.clone()) {
        assert!(config.width > 0 && config.height > 0);
        assert!(matches!(config.nal_length_size, 1 | 2 | 4));
        let _ = config.is_random_access(bytes);
    }
    if let Ok(config) = hevc::Config::parse(bytes.clone()) {
        assert!(config.width > 0 && config.height > 0);
        assert!(config.rfc6381().starts_with("hvc1."));
        let _ = config.is_random_access(bytes);
    }
    if let Ok(config) = av1::Config::parse(bytes.clone()) {
        assert!(config.rfc6381().starts_with("av01."));
    }
    let _ = av1::Config::from_temporal_unit(bytes);
    let _ = av1::is_keyframe(bytes);
    let _ = av1::check(bytes);
    if let Ok(config) = aac::Config::parse(bytes.clone()) {
        assert!((7350..=96_000).contains(&config.sample_rate));
        assert!(config.channels > 0 && config.frame_length > 0);
    }
    if let Ok(config) = opus::Config::parse(bytes.clone()) {
        assert_eq!(Codec::Opus(config).kind(), Kind::Audio);
    }
    let _ = opus::Config::from_opus_head(bytes);
    let _ = opus::packet_duration(bytes);
    let _ = nal::check(bytes, 4);
}

#[test]
#[ignore = "corpus"]
fn corpus_corrupt_records_never_panic() {
    let mut count = 0;
    for file in files(&testkit::corpus_dir().join("corrupt")) {
        let bytes = Bytes::from(std::fs::read(&file).unwrap());
        if bytes.len() > 4096 {
            continue;
        }
        parse_as_everything(&bytes);
        // A parameter set, in a record around it.
        if let Ok(length) = u16::try_from(bytes.len()) {
            let [high, low] = length.to_be_bytes();
            let mut record = vec![1, 100, 0, 31, 0xff, 0xe1, high, low];
            record.extend_from_slice(&bytes);
            record.push(0);
            parse_as_everything(&record.into());
        }
        count += 1;
    }
    assert!(count > 100, "{count} files");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn mutated_records_never_panic(
        seed in 0usize..7,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        keep in any::<bool>(),
    ) {
        thread_local!(static SEEDS: Vec<Bytes> = seeds());
        let mut bytes = SEEDS.with(|seeds| seeds[seed % seeds.len()].to_vec());
        for (index, byte) in flips {
            let at = index.index(bytes.len());
            bytes[at] ^= byte;
        }
        if !keep {
            bytes.truncate(cut.index(bytes.len()));
        }
        parse_as_everything(&bytes.into());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_as_everything(&bytes.into());
    }

    /// Walking over NAL units of any lengths returns the units that were written.
    #[test]
    fn nal_units_round_trip(
        units in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 1..20),
        size in prop::sample::select(vec![1u8, 2, 4]),
    ) {
        let mut access_unit = Vec::new();
        for unit in &units {
            let length = (unit.len() as u32).to_be_bytes();
            access_unit.extend_from_slice(&length[4 - usize::from(size)..]);
            access_unit.extend_from_slice(unit);
        }
        let walked: Result<Vec<_>, _> = nal::units(&access_unit, size).collect();
        prop_assert_eq!(walked.unwrap(), units);
        // With one byte less, the lengths no longer add up.
        let short = &access_unit[..access_unit.len() - 1];
        prop_assert!(nal::check(short, size).is_err());
    }
}
