//! The instrument and the origin as programs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::{Finished, Program, Server, headwater};

/// Longest wait, on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Starts the origin with its demo stream, and waits until the stream has begun.
pub(crate) fn origin() -> Server {
    let server = Server::start(headwater(), ["--demo"]);
    // Long enough that every player finds enough media to begin with.
    server.get_until("/live/demo/v0/media.m3u8", LIMIT, |response| {
        response.status() == 200 && response.text().matches("#EXTINF").count() >= 4
    });
    server
}

/// The URLs of the demo stream, one for each delivery.
pub(crate) fn deliveries(server: &Server) -> [String; 6] {
    [
        server.rtmp_url("live/demo"),
        server.url("/live/demo/index.m3u8"),
        server.url("/live/demo/manifest.mpd"),
        server.url("/live/demo/live.mp4"),
        server.url("/live/demo/live.flv"),
        server.url("/live/demo/whep"),
    ]
}

/// Starts the instrument.
pub(crate) fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Program {
    Program::spawn(Command::new(env!("CARGO_BIN_EXE_streamgauge")).args(arguments))
}

/// Starts the instrument under `time`, whose last line on standard error is the most memory that the
/// instrument has taken, in KiB.
pub(crate) fn start_timed<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Program {
    let instrument = env!("CARGO_BIN_EXE_streamgauge");
    Program::spawn(Command::new("time").args(["-f", "%M", instrument]).args(arguments))
}

/// The newest tick of a run that writes to this folder.
pub(crate) fn newest_tick(folder: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(folder.join("ticks.jsonl")).unwrap_or_default();
    // During the run, the last line may be incomplete.
    text.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}

/// Waits for the end; returns the exit status and the document. A generator may be saturated while
/// other tests run. Its results are checked all the same.
pub(crate) fn document(program: Program) -> (i32, Value) {
    document_of(&program.wait(LIMIT))
}

/// The exit status and the document of a program that has ended.
pub(crate) fn document_of(finished: &Finished) -> (i32, Value) {
    let code = finished.status.code().unwrap();
    let document = serde_json::from_slice(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {code} {}", finished.stderr));
    (code, document)
}

/// Checks that the exit status is the one of the criterion, or 3 if the generator was saturated.
/// The viewers of a saturated generator may stall, so they need not pass.
#[track_caller]
pub(crate) fn assert_verdict(code: i32, document: &Value, passed: bool) {
    let saturated = document["generator"]["saturated"].as_bool().unwrap();
    if !(saturated && passed) {
        assert_eq!(document["passed"], passed, "{document:#}");
    }
    let right = match (saturated, passed) {
        (true, _) => 3,
        (false, true) => 0,
        (false, false) => 1,
    };
    assert_eq!(code, right, "{document:#}");
}
