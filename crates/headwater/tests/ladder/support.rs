//! A server that makes renditions, clips that it makes them from, and views of its playlists and of
//! its ffmpeg.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Program, Server, eventually, playlist, write_program};

/// The longest wait in these tests, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Two small renditions, and one that is larger than any clip here.
pub(crate) const RUNGS: &str = "rungs = [
    { name = \"low\", width = 160, height = 160, bitrate = \"60kbit/s\" },
    { name = \"mid\", width = 320, height = 180, bitrate = \"150kbit/s\" },
    { name = \"huge\", width = 1920, height = 1080, bitrate = \"3Mbit/s\" },
]
";

/// How long a stream waits for its publisher to return, by default.
const RECONNECT: &str = "3s";

/// Starts a server with these lines in `[ladder]`. A stream ends soon after its publisher has left,
/// and keeps everything that was published.
#[track_caller]
pub(crate) fn server(ladder: &str, arguments: &[&str]) -> Server {
    server_waiting(RECONNECT, ladder, arguments)
}

/// Like [`server`], with a stream that ends only so long after its publisher has left.
#[track_caller]
pub(crate) fn server_waiting(reconnect: &str, ladder: &str, arguments: &[&str]) -> Server {
    let configuration = waiting(reconnect, &format!("enabled = true\n{ladder}"));
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &configuration, arguments)
}

/// A configuration with these lines in `[ladder]`.
pub(crate) fn configuration(ladder: &str) -> String {
    waiting(RECONNECT, ladder)
}

/// ffmpeg does not yield to the other tests: beside a busy loop it would get no processor time.
fn waiting(reconnect: &str, ladder: &str) -> String {
    let live = format!("[live]\nwindow = \"5m\"\nreconnect = \"{reconnect}\"\n");
    format!("{live}[ladder]\npreset = \"ultrafast\"\nnice = 0\n{ladder}")
}

/// Makes a clip of this size with a keyframe every two seconds, B-frames, and audio.
#[track_caller]
pub(crate) fn clip(folder: &TempDir, size: &str, seconds: u32) -> PathBuf {
    let path = folder.path().join(format!("{size}-{seconds}.mp4"));
    let video = format!("testsrc2=size={size}:rate=25:duration={seconds}");
    let audio = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    let encode = "-c:v libx264 -preset ultrafast -bf 2 -g 50 -keyint_min 50 -sc_threshold 0 \
                  -b:v 600k -pix_fmt yuv420p -c:a aac -b:a 64k";
    ffmpeg(
        ["-f", "lavfi", "-i", &video, "-f", "lavfi", "-i", &audio]
            .into_iter()
            .chain(encode.split_ascii_whitespace())
            .chain([path.to_str().unwrap()]),
    );
    path
}

/// Runs ffmpeg to its end. Fails if ffmpeg fails or complains. Returns its standard output.
#[track_caller]
pub(crate) fn ffmpeg<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Vec<u8> {
    let quiet = ["-nostdin", "-hide_banner", "-loglevel", "error", "-y"];
    let program = Program::spawn(Command::new("ffmpeg").args(quiet).args(arguments));
    let finished = program.wait(LIMIT);
    assert!(finished.status.success() && finished.stderr.is_empty(), "{}", finished.stderr);
    finished.stdout
}

/// Writes a program for a shell, with these lines.
pub(crate) fn script(path: &Path, lines: &str) {
    write_program(path, &format!("#!/bin/sh\n{lines}"));
}

/// Starts `headwater publish`.
#[track_caller]
pub(crate) fn publish(server: &Server, file: &Path, stream: &str, options: &[&str]) -> Program {
    server.publish(file, &server.rtmp_url(stream), options)
}

/// Waits for the multivariant playlist.
#[track_caller]
pub(crate) fn multivariant(server: &Server, stream: &str) -> String {
    let path = format!("/{stream}/index.m3u8");
    server.get_until(&path, LIMIT, |answer| answer.status() == 200).text().to_owned()
}

/// Waits for the multivariant playlist with the renditions that the server makes. The server waits
/// for them too, but not for as long as a busy machine needs.
#[track_caller]
pub(crate) fn with_renditions(server: &Server, stream: &str) -> String {
    let path = format!("/{stream}/index.m3u8");
    let has_all = |text: &str| text.contains("RESOLUTION=160x");
    let answer =
        server.get_until(&path, LIMIT, |answer| answer.status() == 200 && has_all(answer.text()));
    answer.text().to_owned()
}

/// The URI of the media playlist that a multivariant playlist names for video of this resolution.
#[track_caller]
pub(crate) fn named(multivariant: &str, size: &str) -> String {
    let mut lines = multivariant.lines();
    let wanted = format!("RESOLUTION={size}");
    lines.find(|line| line.contains(&wanted)).unwrap_or_else(|| panic!("{size}: {multivariant}"));
    lines.next().unwrap().to_owned()
}

/// Waits for a media playlist that `accept` accepts.
#[track_caller]
pub(crate) fn media(
    server: &Server,
    stream: &str,
    playlist: &str,
    accept: impl Fn(&str) -> bool,
) -> Playlist {
    let path = format!("/{stream}/{playlist}");
    let answer =
        server.get_until(&path, LIMIT, |answer| answer.status() == 200 && accept(answer.text()));
    Playlist::parse(answer.text(), path.strip_suffix("media.m3u8").unwrap())
}

/// Whether a playlist is complete.
pub(crate) fn is_over(playlist: &str) -> bool {
    playlist.contains("#EXT-X-ENDLIST")
}

/// The segments of a media playlist.
#[derive(Debug)]
pub(crate) struct Playlist {
    /// Path of the header.
    header: String,
    pub(crate) segments: Vec<Segment>,
    pub(crate) discontinuities: usize,
}

/// A segment as a playlist lists it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Segment {
    /// Media sequence number.
    pub(crate) msn: u64,
    /// Duration in seconds, as written.
    pub(crate) duration: String,
    /// When it was captured, in seconds of the day.
    pub(crate) captured: f64,
    path: String,
}

impl Playlist {
    fn parse(text: &str, folder: &str) -> Self {
        let header = playlist::uris(text, "#EXT-X-MAP:").next().unwrap();
        let mut segments = Vec::new();
        let (mut duration, mut captured) = (None, f64::NAN);
        for line in text.lines() {
            if let Some(value) = line.strip_prefix("#EXTINF:") {
                duration = Some(value.trim_end_matches(',').to_owned());
            } else if let Some(value) = line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:") {
                captured = playlist::date(value);
            } else if !line.starts_with('#')
                && let Some(duration) = duration.take()
            {
                let msn = line.split('.').next().unwrap().parse().unwrap();
                let seconds: f64 = duration.parse().unwrap();
                segments.push(Segment { msn, duration, captured, path: format!("{folder}{line}") });
                // A playlist has a date only where the durations do not tell it.
                captured += seconds;
            }
        }
        let discontinuities = text.lines().filter(|line| *line == "#EXT-X-DISCONTINUITY").count();
        Self { header: format!("{folder}{header}"), segments, discontinuities }
    }

    /// Numbers and durations of the segments.
    pub(crate) fn cuts(&self) -> Vec<(u64, &str)> {
        self.segments.iter().map(|segment| (segment.msn, &*segment.duration)).collect()
    }

    /// Writes the header and all segments into one file.
    #[track_caller]
    pub(crate) fn download(&self, server: &Server, into: &Path) {
        let mut bytes = Vec::new();
        for path in [&self.header].into_iter().chain(self.segments.iter().map(|s| &s.path)) {
            let answer = server.get(path);
            assert_eq!(answer.status(), 200, "{path}");
            bytes.extend_from_slice(&answer.body);
        }
        std::fs::write(into, bytes).unwrap();
    }
}

/// Presentation times of all frames, and those of the keyframes, both in rising order.
#[track_caller]
pub(crate) fn times(file: &Path) -> (Vec<i64>, Vec<i64>) {
    let packets = testkit::ffprobe_packets(file);
    let of = |keyframes: bool| -> Vec<i64> {
        let chosen = packets.iter().filter(|packet| !keyframes || packet.is_keyframe());
        let mut times: Vec<i64> = chosen.map(|packet| packet.pts.unwrap()).collect();
        times.sort_unstable();
        times
    };
    (of(false), of(true))
}

/// Waits until the log has named ffmpeg processes often enough. Returns the id of number `turn`,
/// counted from 0.
#[track_caller]
pub(crate) fn transcoder(server: &Server, turn: usize) -> u32 {
    const STARTED: &str = "ladder: ffmpeg ";
    server.log_line(LIMIT, |line| line.contains(STARTED) && line.contains(" makes "));
    let ids = || -> Vec<u32> {
        let log = server.log();
        let started = log.lines().filter(|line| line.contains(" makes "));
        started
            .filter_map(|line| line.split(STARTED).nth(1)?.split(' ').next()?.parse().ok())
            .collect()
    };
    eventually(LIMIT, "ffmpeg was started once more", || ids().len() > turn);
    ids()[turn]
}

/// Whether a process with that id exists and has not ended.
pub(crate) fn is_there(id: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    // The name is in parentheses and may contain any characters.
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// Id of the parent process.
pub(crate) fn parent(id: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    status.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Sends SIGKILL to a process that the test's server started.
pub(crate) fn kill(id: u32) {
    signal(id, "-KILL");
}

fn signal(id: u32, signal: &str) {
    Program::output(Command::new("kill").args([signal, &id.to_string()]), LIMIT);
}

/// Stops a process that the test's server started, until this is dropped.
pub(crate) struct Halted(u32);

impl Halted {
    pub(crate) fn new(id: u32) -> Self {
        signal(id, "-STOP");
        Self(id)
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        signal(self.0, "-CONT");
    }
}
