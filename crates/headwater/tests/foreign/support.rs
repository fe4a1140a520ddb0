//! A server whose streams end soon, programs that publish and play, and comparisons of their media.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use testkit::clip as media;
use testkit::{NO_ARGUMENTS, Program, Server};

/// The longest wait in these tests, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// The most that video and audio may move apart, in seconds: one frame at 30 per second.
const APART: f64 = 1.0 / 30.0;

/// Starts a server whose streams end a second after their publisher has left, and keep everything
/// that was published.
#[track_caller]
pub(crate) fn server() -> Server {
    server_with("window = \"5m\"\nreconnect = \"1s\"\n")
}

/// Starts a server with these options in `[live]`. Viewers may fall as far behind as a busy machine
/// makes them.
#[track_caller]
pub(crate) fn server_with(live: &str) -> Server {
    let patience = "viewer_queue = \"1GiB\"\nviewer_patience = \"1m\"\n";
    let configuration = format!("[live]\n{patience}{live}");
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &configuration, NO_ARGUMENTS)
}

/// Starts ffmpeg with these arguments. It writes errors to standard error.
#[track_caller]
pub(crate) fn ffmpeg<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Program {
    let quiet = ["-nostdin", "-hide_banner", "-loglevel", "error", "-y"];
    Program::spawn(Command::new("ffmpeg").args(quiet).args(args))
}

/// Runs ffmpeg to its end. Fails if ffmpeg fails.
#[track_caller]
pub(crate) fn ffmpeg_done<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) {
    finish(ffmpeg(args));
}

/// Waits for a program's end. Fails if the program fails. Returns its standard output.
#[track_caller]
pub(crate) fn finish(program: Program) -> Vec<u8> {
    let finished = program.wait(LIMIT);
    assert!(finished.status.success(), "{}: {}", finished.status, finished.stderr);
    finished.stdout
}

/// Writes the first `seconds` of a file, unchanged, into another file. ffmpeg gets `options` for
/// the output.
#[track_caller]
pub(crate) fn cut(source: &Path, seconds: &str, options: &[&str], into: &Path) {
    let source = source.to_str().unwrap();
    let mut args = vec!["-i", source, "-t", seconds, "-map", "0", "-c", "copy"];
    args.extend(options);
    args.push(into.to_str().unwrap());
    ffmpeg_done(args);
}

/// Publishes a file unchanged with ffmpeg, `rate` times as fast as real time.
#[track_caller]
pub(crate) fn publish(file: &Path, url: &str, rate: &str) -> Program {
    publish_with(&["-readrate", rate], file, url)
}

/// Publishes a file unchanged with ffmpeg in real time. The file `progress` grows ten times a second while ffmpeg runs.
#[track_caller]
pub(crate) fn publish_watched(file: &Path, url: &str, progress: &Path) -> Program {
    let progress = progress.to_str().unwrap();
    publish_with(&["-readrate", "1", "-stats_period", "0.1", "-progress", progress], file, url)
}

/// How long the machine, or a publisher of [`publish_watched`], stood still, each time.
pub(crate) struct Stops(Arc<Mutex<Vec<Duration>>>);

impl Stops {
    /// Shorter ones do not count.
    const LEAST: Duration = Duration::from_millis(500);

    /// Watches until this is dropped. Does `turn` again and again: where that takes long, something stood still as well.
    pub(crate) fn watch(progress: PathBuf, turn: impl Fn() + Send + 'static) -> Self {
        let stops = Self(Arc::default());
        let seen = Arc::downgrade(&stops.0);
        thread::spawn(move || {
            // The publisher has told nothing before it begins, and tells no more after its end.
            let (mut last, mut told, mut grew) = (Instant::now(), 0, None::<Instant>);
            // What was seen since the publisher told something is not seen twice.
            let mut counted = Duration::ZERO;
            while let Some(seen) = seen.upgrade() {
                let see = |stop: Duration| {
                    let is_seen = stop >= Self::LEAST;
                    seen.lock().unwrap().extend(is_seen.then_some(stop));
                    if is_seen { stop } else { Duration::ZERO }
                };
                turn();
                let now = Instant::now();
                counted += see(now - last);
                last = now;
                let length = std::fs::metadata(&progress).map_or(0, |file| file.len());
                if length > told {
                    let silent = grew.map_or(Duration::ZERO, |grew| now - grew);
                    see(silent.saturating_sub(counted));
                    (told, grew, counted) = (length, Some(now), Duration::ZERO);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        stops
    }

    /// Those so far that lasted at least so long.
    pub(crate) fn at_least(&self, long: Duration) -> Vec<Duration> {
        self.0.lock().unwrap().iter().copied().filter(|stop| *stop >= long).collect()
    }

    /// Seconds of all so far.
    pub(crate) fn seconds(&self) -> f64 {
        self.0.lock().unwrap().iter().map(Duration::as_secs_f64).sum()
    }
}

#[track_caller]
fn publish_with(options: &[&str], file: &Path, url: &str) -> Program {
    let file = file.to_str().unwrap();
    let flv = ["-i", file, "-c", "copy", "-f", "flv", "-flvflags", "no_duration_filesize", url];
    ffmpeg(options.iter().copied().chain(flv))
}

/// Plays a URL or file with ffmpeg, without decoding. [`Received::parse`] reads the access units
/// from its standard output.
#[track_caller]
pub(crate) fn play(url: &str, options: &[&str]) -> Program {
    play_streams(url, options, "0")
}

/// Like [`play`], for the streams that `map` selects.
#[track_caller]
pub(crate) fn play_streams(url: &str, options: &[&str], map: &str) -> Program {
    let copy = ["-c", "copy", "-f", "framehash", "-hash", "md5", "-"];
    ffmpeg(options.iter().copied().chain(["-i", url, "-map", map]).chain(copy))
}

/// ffmpeg's options to play HLS from the first listed segment.
pub(crate) const FROM_START: &[&str] = &["-live_start_index", "0"];

/// One access unit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unit {
    /// Presentation time in seconds.
    pub(crate) pts: f64,
    /// Decode time in seconds.
    pub(crate) dts: f64,
    /// MD5 of its bytes.
    pub(crate) md5: String,
}

/// The access units of each stream that ffmpeg received, in decode order.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// `video` or `audio`, and the stream's units.
    pub(crate) streams: Vec<(String, Vec<Unit>)>,
}

impl Received {
    /// Reads ffmpeg's framehash, version 2.
    pub(crate) fn parse(framehash: &[u8]) -> Self {
        let text = std::str::from_utf8(framehash).unwrap();
        let mut bases: Vec<f64> = Vec::new();
        let mut received = Self::default();
        for line in text.lines() {
            if let Some(base) = line.strip_prefix("#tb ") {
                let (_, base) = base.split_once(": ").unwrap();
                let (n, d) = base.split_once('/').unwrap();
                bases.push(n.parse::<f64>().unwrap() / d.parse::<f64>().unwrap());
            } else if let Some(kind) = line.strip_prefix("#media_type ") {
                let (_, kind) = kind.split_once(": ").unwrap();
                received.streams.push((kind.to_owned(), Vec::new()));
            } else if !line.starts_with('#') {
                let fields: Vec<&str> = line.split(',').map(str::trim).collect();
                let stream: usize = fields[0].parse().unwrap();
                let seconds = |field: &str| field.parse::<f64>().unwrap() * bases[stream];
                let (dts, pts) = (seconds(fields[1]), seconds(fields[2]));
                let md5 = fields[5].to_owned();
                received.streams[stream].1.push(Unit { pts, dts, md5 });
            }
        }
        received
    }

    /// Waits for a player's end. Returns the units it received. Fails if the player fails.
    #[track_caller]
    pub(crate) fn by(player: Program) -> Self {
        Self::parse(&finish(player))
    }

    /// The units of a file.
    #[track_caller]
    pub(crate) fn of(file: &Path) -> Self {
        Self::by(play(file.to_str().unwrap(), &[]))
    }

    /// The units of the only stream of that kind; none if there is no such stream.
    #[track_caller]
    pub(crate) fn only(&self, kind: &str) -> &[Unit] {
        let mut found = self.streams.iter().filter(|(k, _)| k == kind);
        let units = found.next().map_or(&[][..], |(_, units)| units);
        assert!(found.next().is_none(), "several {kind} streams");
        units
    }

    pub(crate) fn video(&self) -> &[Unit] {
        self.only("video")
    }
}

/// Which access units `received` must be: all of `source`, or those from some point on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    Start,
    /// At a keyframe, if there is video.
    Keyframe,
}

/// Asserts that the access units of `source` came through, up to the last: each once, in order,
/// byte for byte, and with video and audio as far apart as in the source.
#[track_caller]
pub(crate) fn assert_came_through(name: &str, source: &Received, received: &Received, from: Begin) {
    let mut shifts: Vec<f64> = Vec::new();
    for kind in ["video", "audio"] {
        let (sent, got) = (source.only(kind), received.only(kind));
        assert!(
            got.len() <= sent.len() && got.is_empty() == sent.is_empty(),
            "{name}: {} {kind} units of {}",
            got.len(),
            sent.len()
        );
        let first = sent.len() - got.len();
        assert!(
            from == Begin::Keyframe || first == 0,
            "{name}: {first} first {kind} units missing"
        );
        for (index, (got, sent)) in got.iter().zip(&sent[first..]).enumerate() {
            assert_eq!(
                got.md5,
                sent.md5,
                "{name}: {kind} unit {index}, {} of the source",
                first + index
            );
            shifts.push(got.pts - sent.pts);
        }
    }
    let least = shifts.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shifts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    assert!(most - least < APART, "{name}: units shifted by {least} to {most} s");
}

/// Waits until the stream has media that a player can begin with.
#[track_caller]
pub(crate) fn until_ready(server: &Server, stream: &str) {
    server.get_until(&format!("/{stream}/index.m3u8"), LIMIT, |answer| answer.status() == 200);
}

/// Plays a stream that is over by HLS. Returns the units received.
#[track_caller]
pub(crate) fn over_hls(server: &Server, stream: &str) -> Received {
    Received::by(play(&server.url(&format!("/{stream}/index.m3u8")), FROM_START))
}

/// Number of lines in a playlist that begin with `tag`.
pub(crate) fn count(playlist: &str, tag: &str) -> usize {
    playlist.lines().filter(|line| line.starts_with(tag)).count()
}
