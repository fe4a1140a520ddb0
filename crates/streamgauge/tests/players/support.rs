//! The deliveries of the origin, and verdicts about them.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;
use testkit::{Program, Server};

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

/// Starts the instrument under `time`, whose last line on standard error is the most memory that the
/// instrument has taken, in KiB.
pub(crate) fn start_timed<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Program {
    let instrument = env!("CARGO_BIN_EXE_streamgauge");
    Program::spawn(Command::new("time").args(["-f", "%M", instrument]).args(arguments))
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
