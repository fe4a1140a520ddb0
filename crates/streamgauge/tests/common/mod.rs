//! The instrument and the origin as programs, and their documents.

#![allow(dead_code, reason = "each test program uses what it needs")]

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
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

/// A server that accepts connections and sends nothing. Viewers wait there until their time is up.
pub(crate) fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/live/x", listener.local_addr().unwrap());
    let server = listener.try_clone().unwrap();
    std::thread::spawn(move || server.incoming().flatten().collect::<Vec<_>>());
    (listener, url)
}

/// Starts the instrument.
pub(crate) fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Program {
    Program::spawn(Command::new(env!("CARGO_BIN_EXE_streamgauge")).args(arguments))
}

/// Waits for the end; returns the exit status and the document. A generator may be saturated while
/// other tests run. Its results are checked all the same.
#[track_caller]
pub(crate) fn document(program: Program) -> (i32, Value) {
    document_of(&program.wait(LIMIT))
}

/// The exit status and the document of a program that has ended.
#[track_caller]
pub(crate) fn document_of(finished: &Finished) -> (i32, Value) {
    let code = finished.status.code().unwrap();
    let document = serde_json::from_slice(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {code} {}", finished.stderr));
    (code, document)
}

/// The records of a file.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // During the run, the last line may be incomplete.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The newest tick of a run that writes to this folder.
pub(crate) fn newest_tick(folder: &Path) -> Option<Value> {
    lines(&folder.join("ticks.jsonl")).pop()
}

/// The running child processes of a program.
pub(crate) fn children(program: &Program) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", program.id()));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|ids| ids.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Sends a signal to a program.
pub(crate) fn signal(program: &Program, signal: Signal) {
    let id = i32::try_from(program.id()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// Checks that the published schema of a document is that of its type.
#[track_caller]
pub(crate) fn assert_published(name: &str, schema: &schemars::Schema) {
    let schema = serde_json::to_string_pretty(schema).unwrap() + "\n";
    let path = format!("{}/../../docs/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == schema, "{name}: run the tests once with UPDATE_SCHEMAS=1");
}
