//! The instrument as a program, and the origin's binary.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use testkit::{Program, Server};

/// Nothing that is waited for may take longer, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// The origin's binary: what `HEADWATER_BIN` names, or what Cargo has beside these tests, made if
/// it is not there yet.
pub(crate) fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(named) = std::env::var_os("HEADWATER_BIN") {
            return named.into();
        }
        // TARGET/debug/deps/players-…
        let mut path = std::env::current_exe().unwrap();
        path.pop();
        path.pop();
        path.push("headwater");
        if !path.exists() {
            let mut command = Command::new(env!("CARGO"));
            command
                .args(["build", "-p", "headwater"])
                .env("CARGO_TARGET_DIR", path.ancestors().nth(2).unwrap());
            let built = Program::spawn(&mut command).wait(Duration::from_secs(900));
            assert!(built.status.success(), "{}", built.stderr);
        }
        path
    })
}

/// The origin with its demo stream, which has begun.
pub(crate) fn origin() -> Server {
    let server = Server::start(binary(), ["--demo"]);
    // Long enough for every player to find what it wants to begin with.
    server.get_until("/live/demo/v0/media.m3u8", LIMIT, |response| {
        response.status() == 200 && response.text().matches("#EXTINF").count() >= 4
    });
    server
}

/// The instrument, running.
pub(crate) fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Program {
    Program::spawn(Command::new(env!("CARGO_BIN_EXE_streamgauge")).args(arguments))
}

/// What it did: its exit status and its document. A generator that says it was saturated, as it
/// may be among other tests, did not fail; what it found is judged all the same.
pub(crate) fn document(program: Program) -> (i32, Value) {
    let finished = program.wait(LIMIT);
    let code = finished.status.code().unwrap();
    let document = serde_json::from_slice(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {code} {}", finished.stderr));
    (code, document)
}

/// The exit status that the criterion alone would have given.
#[track_caller]
pub(crate) fn assert_verdict(code: i32, document: &Value, passed: bool) {
    assert_eq!(document["passed"], passed, "{document:#}");
    let saturated = document["generator"]["saturated"].as_bool().unwrap();
    let right = match (saturated, passed) {
        (true, _) => 3,
        (false, true) => 0,
        (false, false) => 1,
    };
    assert_eq!(code, right, "{document:#}");
}

/// Waits for something.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
