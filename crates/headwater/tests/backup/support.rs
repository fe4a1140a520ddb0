//! Clips whose frames tell whose they are, and players that show which frames they got.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::{
    NO_ARGUMENTS, Nats, Program, Server, access_unit_hashes_with, eventually, hashes_so_far, http,
};

/// A time limit for anything that a test waits for, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Frames of the clips from one keyframe to the next.
const KEYFRAMES: usize = 25;

/// The video's playlist.
pub(crate) const PLAYLIST: &str = "/live/x/v0/media.m3u8";

/// Options of the table `live`. A busy machine lets publishers starve for seconds, which must not look like the pause
/// that a test makes. With a window as long as a test, the playlist has all of the stream.
const OPTIONS: &str = "[live]\nbackup_after = \"15s\"\nsilence = \"20s\"\nwindow = \"5m\"\n";

/// Starts a server.
pub(crate) fn start() -> Server {
    Server::configured(env!("CARGO_BIN_EXE_headwater"), OPTIONS, NO_ARGUMENTS)
}

/// Starts a node of this name.
pub(crate) fn node(nats: &Nats, name: &str) -> Server {
    node_with(nats, name, "")
}

/// Starts a node of this name, with further tables.
pub(crate) fn node_with(nats: &Nats, name: &str, tables: &str) -> Server {
    let cluster = format!("[cluster]\nnats = {:?}\nnode = \"{name}\"\n", nats.urls());
    let text = format!("{OPTIONS}{cluster}{tables}");
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &text, NO_ARGUMENTS)
}

/// What the API says of the stream `live/x`.
pub(crate) fn state(server: &Server) -> Value {
    let answer = http::get(server.http, "/api/v1/streams/live/x");
    serde_json::from_str(answer.text()).unwrap_or_default()
}

/// A clip of each publisher. They last longer than the tests take on a busy machine.
pub(crate) struct Clips {
    pub(crate) primary: PathBuf,
    pub(crate) backup: PathBuf,
    /// Whose a video frame is, and its number, by the hash of its bytes.
    frames: HashMap<String, (char, usize)>,
}

impl Clips {
    pub(crate) fn read() -> Self {
        let primary = testkit::clip("long/primary.flv");
        let backup = testkit::clip("long/backup.flv");
        let mut frames = HashMap::new();
        for (mark, clip) in [('p', &primary), ('b', &backup)] {
            let units = access_unit_hashes_with(clip, &[], &["-an"]);
            for (number, unit) in units.into_iter().enumerate() {
                assert_eq!(frames.insert(unit.md5, (mark, number)), None, "{number} of {mark}");
            }
        }
        Self { primary, backup, frames }
    }
}

/// Plays `file`, or by RTMP, and lists the frames.
pub(crate) fn player(server: &Server, file: &str) -> Program {
    let url = if file == "rtmp" { server.rtmp_url("live/x") } else { server.url(file) };
    let mut viewer = Command::new("ffmpeg");
    viewer.args(["-v", "error", "-i", &url, "-map", "0:v", "-c", "copy"]);
    Program::spawn(viewer.args(["-flush_packets", "1", "-f", "framemd5", "-"]))
}

/// Waits until a viewer has got so many runs, and ten frames of the last, which is this publisher's.
#[track_caller]
pub(crate) fn await_runs(viewer: &Program, clips: &Clips, (count, mark): (usize, char)) {
    eventually(LIMIT, &format!("run {count}, of {mark}"), || {
        let Runs(runs) = Runs::of(&viewer.stdout(), clips);
        assert!(runs.len() <= count, "more than {count} runs: {runs:?}; {}", viewer.stderr());
        let last = runs.last().filter(|_| runs.len() == count);
        last.is_some_and(|(of, first, last)| *of == mark && last - first >= 10)
    });
}

/// The runs of consecutive frames that a viewer got: whose they are, and the numbers of the first and the last.
#[derive(Debug)]
pub(crate) struct Runs(pub(crate) Vec<(char, usize, usize)>);

impl Runs {
    /// # Panics
    /// A frame is neither publisher's, or comes twice, or one is missing within a run.
    pub(crate) fn of(list: &[u8], clips: &Clips) -> Self {
        let mut runs: Vec<(char, usize, usize)> = Vec::new();
        for hash in hashes_so_far(list) {
            let (mark, number) = clips.frames[&hash];
            match runs.last_mut() {
                Some((of, _, last)) if *of == mark => {
                    assert_eq!(number, *last + 1, "of {mark}, in {runs:?}");
                    *last = number;
                }
                _ => runs.push((mark, number, number)),
            }
        }
        Self(runs)
    }

    /// Asserts that each run but the first begins with a keyframe.
    pub(crate) fn assert_each_in_order(&self) {
        let later = self.0.iter().skip(1);
        assert!(later.clone().all(|(_, first, _)| first % KEYFRAMES == 0), "{self:?}");
    }

    /// Asserts also that no publisher's frames come twice or go back.
    pub(crate) fn assert_in_order(&self) {
        self.assert_each_in_order();
        for mark in ['p', 'b'] {
            let of: Vec<_> = self.0.iter().filter(|run| run.0 == mark).collect();
            assert!(of.windows(2).all(|pair| pair[0].2 < pair[1].1), "{self:?}");
        }
    }
}
