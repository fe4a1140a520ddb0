//! ffmpeg and ffprobe as judges of our output.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::Program;

/// Time limit of ffmpeg or ffprobe for one input.
const LIMIT: Duration = Duration::from_secs(180);

/// A packet as ffprobe reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Packet {
    /// Index of its stream, from 0.
    pub stream_index: u32,
    /// `video`, `audio`, `data` and so on.
    pub kind: String,
    /// Presentation time in the stream's time base.
    pub pts: Option<i64>,
    /// Decode time in the stream's time base.
    pub dts: Option<i64>,
    /// Duration in the stream's time base.
    pub duration: Option<i64>,
    /// Presentation time in seconds.
    pub pts_time: Option<f64>,
    /// Decode time in seconds.
    pub dts_time: Option<f64>,
    /// Size in bytes.
    pub size: u64,
    /// Position in the file, in bytes.
    pub position: Option<u64>,
    /// ffprobe's flags: `K` keyframe, `D` to be discarded, `C` corrupt.
    pub flags: String,
}

impl Packet {
    /// Whether decoding can start here.
    pub fn is_keyframe(&self) -> bool {
        self.flags.contains('K')
    }
}

/// An undecoded access unit from ffmpeg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// Index of its stream, from 0.
    pub stream_index: u32,
    /// Time base: seconds per unit of the times below, as a fraction.
    pub time_base: (u32, u32),
    /// Decode time.
    pub dts: i64,
    /// Presentation time.
    pub pts: i64,
    /// Duration.
    pub duration: i64,
    /// Size in bytes.
    pub size: u64,
    /// Hash of the bytes, in hexadecimal; MD5 unless the test has chosen another.
    pub md5: String,
}

impl AccessUnit {
    /// Decode time in seconds.
    pub fn dts_time(&self) -> f64 {
        self.seconds(self.dts)
    }

    /// Presentation time in seconds.
    pub fn pts_time(&self) -> f64 {
        self.seconds(self.pts)
    }

    #[expect(clippy::cast_precision_loss, reason = "a time is far below 2^52 units")]
    fn seconds(&self, units: i64) -> f64 {
        units as f64 * f64::from(self.time_base.0) / f64::from(self.time_base.1)
    }
}

/// All packets of a finite file or URL, in ffprobe's order.
///
/// # Panics
/// ffprobe fails, complains, or takes longer than three minutes.
#[track_caller]
pub fn ffprobe_packets(input: impl AsRef<OsStr>) -> Vec<Packet> {
    ffprobe_packets_with(input, &[])
}

/// Like [`ffprobe_packets`], with options before the input: `["-read_intervals", "%+3"]` for the
/// first three seconds of a live stream.
///
/// # Panics
/// ffprobe fails, complains, or takes longer than three minutes.
#[track_caller]
pub fn ffprobe_packets_with(input: impl AsRef<OsStr>, options: &[&str]) -> Vec<Packet> {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-show_packets", "-of", "json"]).args(options).arg(input);
    let output = Program::output(&mut command, LIMIT);
    let document: Value = serde_json::from_slice(&output).expect("ffprobe writes JSON");
    let packets = document["packets"].as_array().unwrap_or_else(|| panic!("{document}"));
    packets.iter().map(packet).collect()
}

fn packet(from: &Value) -> Packet {
    // ffprobe writes some numbers as strings, and leaves out unknown values.
    let text = |key: &str| from[key].as_str();
    let count = |key: &str| text(key).and_then(|t| t.parse().ok());
    let time = |key: &str| text(key).and_then(|t| t.parse().ok());
    let required = |key: &str| -> ! { panic!("a packet without {key}: {from}") };
    Packet {
        stream_index: from["stream_index"]
            .as_u64()
            .and_then(|index| u32::try_from(index).ok())
            .unwrap_or_else(|| required("stream_index")),
        kind: text("codec_type").unwrap_or_else(|| required("codec_type")).to_owned(),
        pts: from["pts"].as_i64(),
        dts: from["dts"].as_i64(),
        duration: from["duration"].as_i64(),
        pts_time: time("pts_time"),
        dts_time: time("dts_time"),
        size: count("size").unwrap_or_else(|| required("size")),
        position: count("pos"),
        flags: text("flags").unwrap_or_else(|| required("flags")).to_owned(),
    }
}

/// All access units of a finite file or URL, undecoded, with all streams interleaved.
///
/// H.264 keeps the form of its container. So the hashes of an MP4 and of the FLV made from it are
/// equal, but those of an MPEG-TS differ.
///
/// # Panics
/// ffmpeg fails, or takes longer than three minutes.
#[track_caller]
pub fn access_unit_hashes(input: impl AsRef<OsStr>) -> Vec<AccessUnit> {
    access_unit_hashes_with(input, &[], &[])
}

/// Like [`access_unit_hashes`], with options for the input (`["-copyts"]`,
/// `["-live_start_index", "0"]`) and for the output (`["-t", "5"]`, `["-frames:v", "100"]`).
///
/// # Panics
/// ffmpeg fails, or takes longer than three minutes.
#[track_caller]
pub fn access_unit_hashes_with(
    input: impl AsRef<OsStr>,
    input_options: &[&str],
    output_options: &[&str],
) -> Vec<AccessUnit> {
    let mut command = Command::new("ffmpeg");
    command
        .args(["-nostdin", "-hide_banner", "-loglevel", "error"])
        .args(input_options)
        .arg("-i")
        .arg(input)
        .args(["-map", "0", "-c", "copy"])
        .args(output_options)
        .args(["-f", "framehash", "-hash", "md5", "-"]);
    framehash(&Program::output(&mut command, LIMIT))
}

/// Runs ffmpeg to its end, and returns its standard output. It overwrites files.
///
/// # Panics
/// ffmpeg fails, or takes longer than three minutes.
#[track_caller]
pub fn ffmpeg<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Vec<u8> {
    let quiet = ["-nostdin", "-hide_banner", "-loglevel", "error", "-y"];
    Program::output(Command::new("ffmpeg").args(quiet).args(arguments), LIMIT)
}

/// Options to read all of an input: ffmpeg begins HLS at the first listed segment, not near the end.
pub fn from_start(input: &str) -> &'static [&'static str] {
    if input.starts_with("http") { &["-live_start_index", "0"] } else { &[] }
}

/// MD5 of each decoded frame of a file or of a URL that ends, in the order in which they are shown.
///
/// # Panics
/// ffmpeg fails, or takes longer than three minutes.
#[track_caller]
pub fn decoded_pictures(input: &str) -> Vec<String> {
    let output = "-map 0:v -fps_mode passthrough -f framehash -hash md5 -".split(' ');
    let pictures = ffmpeg(from_start(input).iter().copied().chain(["-i", input]).chain(output));
    framehash(&pictures).into_iter().map(|picture| picture.md5).collect()
}

/// The hashes in what ffmpeg has written so far with `-f framemd5`. Its last line may be incomplete.
pub fn hashes_so_far(framemd5: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(framemd5);
    let units = text.lines().filter(|line| !line.starts_with('#'));
    let hashes = units.filter_map(|unit| unit.rsplit(',').next().map(str::trim));
    hashes.filter(|hash| hash.len() == 32).map(str::to_owned).collect()
}

/// Reads what ffmpeg writes with `-f framehash` or `-f framemd5`, version 2: `#tb 0: 1/12288` for
/// each stream, then `stream, dts, pts, duration, size, hash` for each access unit, or for each
/// decoded frame.
///
/// # Panics
/// It is something else.
#[track_caller]
pub fn framehash(text: &[u8]) -> Vec<AccessUnit> {
    let text = String::from_utf8_lossy(text);
    let mut time_bases = Vec::new();
    let mut units = Vec::new();
    for line in text.lines() {
        let parsed = if let Some(rest) = line.strip_prefix("#tb ") {
            rest.split_once(": ").and_then(|(_, base)| base.split_once('/')).and_then(|(n, d)| {
                time_bases.push((n.parse().ok()?, d.parse().ok()?));
                Some(())
            })
        } else if line.starts_with('#') {
            Some(())
        } else {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            access_unit(&fields, &time_bases).map(|unit| units.push(unit))
        };
        assert!(parsed.is_some(), "not framehash, version 2: {line:?}");
    }
    units
}

fn access_unit(fields: &[&str], time_bases: &[(u32, u32)]) -> Option<AccessUnit> {
    let [stream, dts, pts, duration, size, md5, ..] = fields else { return None };
    let stream_index: u32 = stream.parse().ok()?;
    Some(AccessUnit {
        stream_index,
        time_base: *time_bases.get(usize::try_from(stream_index).ok()?)?,
        dts: dts.parse().ok()?,
        pts: pts.parse().ok()?,
        duration: duration.parse().ok()?,
        size: size.parse().ok()?,
        md5: (*md5).to_owned(),
    })
}

/// Publishes a file once to an `rtmp://` URL with ffmpeg, unchanged and in real time.
///
/// # Panics
/// ffmpeg is not installed.
#[track_caller]
pub fn publish(input: impl AsRef<OsStr>, url: &str) -> Program {
    publish_times("0", input.as_ref(), url)
}

/// Like [`publish`], but the file begins again whenever it ends, so the stream lasts as long as the program.
///
/// # Panics
/// ffmpeg is not installed.
#[track_caller]
pub fn publish_looped(input: impl AsRef<OsStr>, url: &str) -> Program {
    publish_times("-1", input.as_ref(), url)
}

#[track_caller]
fn publish_times(repeats: &str, input: &OsStr, url: &str) -> Program {
    Program::spawn(
        Command::new("ffmpeg")
            .args(["-nostdin", "-hide_banner", "-loglevel", "warning", "-re"])
            .args(["-stream_loop", repeats, "-i"])
            .arg(input)
            .args(["-c", "copy", "-f", "flv", "-flvflags", "no_duration_filesize", url]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo_clip;

    #[test]
    fn ffprobe_and_ffmpeg_agree_on_the_demo_clip_and_it_is_what_it_promises() {
        let packets = ffprobe_packets(demo_clip());
        let of = |kind: &str| packets.iter().filter(|p| p.kind == kind).collect::<Vec<_>>();
        let (video, audio) = (of("video"), of("audio"));
        assert_eq!((video.len(), audio.len()), (480, 750));
        for (n, packet) in video.iter().enumerate() {
            // Closed GOPs of one second, without B-frames, so that a frame can be shown at once.
            assert_eq!(packet.is_keyframe(), n % 30 == 0, "picture {n}");
            assert_eq!(packet.pts, packet.dts, "picture {n}");
        }
        // A loop has no drift and no gap: both tracks start at 0 and end at 16 s.
        for track in [&video, &audio] {
            assert_eq!(track[0].pts_time, Some(0.0));
            let duration: i64 = track.iter().filter_map(|p| p.duration).sum();
            let last = track.last().unwrap();
            let end = last.pts.unwrap() + last.duration.unwrap();
            assert_eq!(duration, end);
            let scale = track[track.len() / 2].pts.unwrap() as f64
                / track[track.len() / 2].pts_time.unwrap();
            assert_eq!((end as f64 / scale).round(), 16.0);
        }

        let units = access_unit_hashes(demo_clip());
        assert_eq!(units.len(), packets.len());
        for kind in [&video, &audio] {
            let index = kind[0].stream_index;
            let hashed: Vec<_> = units
                .iter()
                .filter(|u| u.stream_index == index)
                .map(|u| (Some(u.dts), Some(u.pts), u.size))
                .collect();
            let probed: Vec<_> = kind.iter().map(|p| (p.dts, p.pts, p.size)).collect();
            assert_eq!(hashed, probed);
        }
        assert!(units.iter().all(|u| u.md5.len() == 32));
        assert!((units.last().unwrap().dts_time() - 16.0).abs() < 0.1);
    }

    #[test]
    fn options_bound_what_is_read() {
        let units = access_unit_hashes_with(demo_clip(), &[], &["-frames:v", "7", "-an"]);
        assert_eq!(units.len(), 7);
        let packets = ffprobe_packets_with(demo_clip(), &["-read_intervals", "%+2"]);
        assert!(packets.len() > 60 && packets.len() < 300, "{}", packets.len());
    }

    #[test]
    #[should_panic(expected = "No such file")]
    fn a_missing_input_fails_the_test_with_what_ffprobe_said() {
        ffprobe_packets("/nonexistent.mp4");
    }

    #[test]
    #[should_panic(expected = "not framehash")]
    fn other_text_is_not_taken_for_hashes() {
        framehash(b"#tb 0: 1/1000\n0, 0, 0\n");
    }
}
