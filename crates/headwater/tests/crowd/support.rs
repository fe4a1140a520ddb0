//! A server with one event loop, and files.

use std::path::PathBuf;
use std::time::Duration;

use testkit::Server;
use testkit::http::Client;

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_headwater");

/// Starts a server with these lines of configuration and one event loop.
#[track_caller]
pub(crate) fn start(configuration: &str) -> Server {
    Server::configured(BINARY, configuration, ["--workers", "1"])
}

/// Puts a file of `size` bytes at `/vod/NAME`. Returns its path and contents.
pub(crate) fn put(server: &Server, name: &str, size: usize) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    (server.put(name, &bytes), bytes)
}

pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(server.http, LIMIT).unwrap()
}

/// The current value of a counter of `/metrics`.
#[track_caller]
pub(crate) fn metric(client: &mut Client, name: &str) -> u64 {
    let metrics = testkit::http::current_metrics(|| client.get("/metrics", &[]));
    metrics.metric(name).unwrap_or_else(|| panic!("no {name} in {}", metrics.text()))
}

/// Number of calls of `write` that the server has made. It sends to peers by other calls.
pub(crate) fn writes(server: &Server) -> u64 {
    let counters = std::fs::read_to_string(format!("/proc/{}/io", server.id())).unwrap();
    let calls = counters.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap();
    calls.parse().unwrap()
}
