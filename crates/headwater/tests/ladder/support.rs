//! A server that makes renditions, clips to make them of, and what is looked at.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Program, Server};

/// Nothing that is waited for may take longer, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Two small renditions, and one that is larger than any clip here.
pub(crate) const RUNGS: &str = "rungs = [
    { name = \"low\", width = 160, height = 160, bitrate = \"60kbit/s\" },
    { name = \"mid\", width = 320, height = 180, bitrate = \"150kbit/s\" },
    { name = \"huge\", width = 1920, height = 1080, bitrate = \"3Mbit/s\" },
]
";

/// A server with these lines in `[ladder]`, whose streams end soon after their publisher left and
/// keep all of what was published until then.
#[track_caller]
pub(crate) fn server(ladder: &str, arguments: &[&str]) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(&folder, &format!("enabled = true\n{ladder}"));
    let config = [OsStr::new("--config"), config.as_os_str()];
    Server::start(
        env!("CARGO_BIN_EXE_headwater"),
        config.into_iter().chain(arguments.iter().map(OsStr::new)),
    )
}

/// A configuration file with these lines in `[ladder]`.
pub(crate) fn configuration(folder: &TempDir, ladder: &str) -> PathBuf {
    let path = folder.path().join("headwater.toml");
    let live = "[live]\nwindow = \"5m\"\nreconnect = \"3s\"\n";
    let ladder = format!("[ladder]\npreset = \"ultrafast\"\n{ladder}");
    std::fs::write(&path, format!("{live}{ladder}")).unwrap();
    path
}

/// A clip of this size with a keyframe every two seconds, pictures in another order than they are
/// shown, and sound.
#[track_caller]
pub(crate) fn clip(folder: &TempDir, size: &str, seconds: u32) -> PathBuf {
    let path = folder.path().join(format!("{size}-{seconds}.mp4"));
    let picture = format!("testsrc2=size={size}:rate=25:duration={seconds}");
    let sound = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    let encode = "-c:v libx264 -preset ultrafast -bf 2 -g 50 -keyint_min 50 -sc_threshold 0 \
                  -b:v 600k -pix_fmt yuv420p -c:a aac -b:a 64k";
    ffmpeg(
        ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound]
            .into_iter()
            .chain(encode.split_ascii_whitespace())
            .chain([path.to_str().unwrap()]),
    );
    path
}

/// Runs ffmpeg to its end, which must be a good one without a word; its standard output.
#[track_caller]
pub(crate) fn ffmpeg<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Vec<u8> {
    let quiet = ["-nostdin", "-hide_banner", "-loglevel", "error", "-y"];
    let program = Program::spawn(Command::new("ffmpeg").args(quiet).args(arguments));
    let finished = program.wait(LIMIT);
    assert!(finished.status.success() && finished.stderr.is_empty(), "{}", finished.stderr);
    finished.stdout
}

/// A program of these lines, for a shell.
pub(crate) fn script(path: &Path, lines: &str) {
    program(path, &format!("#!/bin/sh\n{lines}"));
}

/// A program of this text.
pub(crate) fn program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// `headwater publish`.
#[track_caller]
pub(crate) fn publish(server: &Server, file: &Path, stream: &str, options: &[&str]) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    Program::spawn(command.arg("publish").arg(file).arg(server.rtmp_url(stream)).args(options))
}

/// The multivariant playlist, once it is there.
#[track_caller]
pub(crate) fn multivariant(server: &Server, stream: &str) -> String {
    let path = format!("/{stream}/index.m3u8");
    server.get_until(&path, LIMIT, |answer| answer.status() == 200).text().to_owned()
}

/// The playlist that a multivariant one names for a picture of this size.
#[track_caller]
pub(crate) fn named(multivariant: &str, size: &str) -> String {
    let mut lines = multivariant.lines();
    let wanted = format!("RESOLUTION={size}");
    lines.find(|line| line.contains(&wanted)).unwrap_or_else(|| panic!("{size}: {multivariant}"));
    lines.next().unwrap().to_owned()
}

/// A media playlist as `accept` wants it, waited for.
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

/// What a media playlist says of its segments.
#[derive(Debug)]
pub(crate) struct Playlist {
    /// Path of the header.
    header: String,
    pub(crate) segments: Vec<Segment>,
    pub(crate) discontinuities: usize,
}

/// A segment as it is listed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Segment {
    /// Its number.
    pub(crate) msn: u64,
    /// Seconds, as written.
    pub(crate) duration: String,
    /// When it was captured: seconds of the day.
    pub(crate) captured: f64,
    path: String,
}

impl Playlist {
    fn parse(text: &str, folder: &str) -> Self {
        let header = text.split("#EXT-X-MAP:URI=\"").nth(1).unwrap().split('"').next().unwrap();
        let mut segments = Vec::new();
        let (mut duration, mut captured) = (None, f64::NAN);
        for line in text.lines() {
            if let Some(value) = line.strip_prefix("#EXTINF:") {
                duration = Some(value.trim_end_matches(',').to_owned());
            } else if let Some(value) = line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:") {
                captured = seconds_of_day(value);
            } else if !line.starts_with('#')
                && let Some(duration) = duration.take()
            {
                let msn = line.split('.').next().unwrap().parse().unwrap();
                let seconds: f64 = duration.parse().unwrap();
                segments.push(Segment { msn, duration, captured, path: format!("{folder}{line}") });
                // Dates are written where players cannot tell them.
                captured += seconds;
            }
        }
        let discontinuities = text.lines().filter(|line| *line == "#EXT-X-DISCONTINUITY").count();
        Self { header: format!("{folder}{header}"), segments, discontinuities }
    }

    /// Numbers and durations.
    pub(crate) fn cuts(&self) -> Vec<(u64, &str)> {
        self.segments.iter().map(|segment| (segment.msn, &*segment.duration)).collect()
    }

    /// All of it in one file.
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

/// The time of `2026-01-02T03:04:05.678Z`.
#[track_caller]
fn seconds_of_day(date: &str) -> f64 {
    let time = date.split('T').nth(1).unwrap().trim_end_matches('Z');
    time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

/// Presentation times in the order they are shown, and which of them are keyframes'.
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

/// Process id of the ffmpeg that the log tells of for the `turn`th time, from 0.
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
    until(|| ids().len() > turn);
    ids()[turn]
}

/// Whether a process of that id is there, and has not ended.
pub(crate) fn is_there(id: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    // The name, in brackets, may hold anything.
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// Which process started that one.
pub(crate) fn parent(id: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    status.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Sends SIGKILL to a process of the test's own.
pub(crate) fn kill(id: u32) {
    signal(id, "-KILL");
}

fn signal(id: u32, signal: &str) {
    Program::output(Command::new("kill").args([signal, &id.to_string()]), LIMIT);
}

/// Halts a process of the test's own, until this is dropped.
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

/// Waits.
#[track_caller]
pub(crate) fn until(condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "not in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
