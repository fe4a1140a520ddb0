//! A server with one event loop, and files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::Server;
use testkit::http::{Client, Response};

/// No wait in these tests is longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_headwater");

/// A server with these lines of configuration, in one event loop.
pub(crate) fn start(configuration: &str) -> Server {
    start_as(Path::new(BINARY), 1, configuration)
}

/// The same with so many event loops, by a program that ends up as headwater.
pub(crate) fn start_as(binary: &Path, workers: usize, configuration: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("headwater.toml");
    std::fs::write(&path, configuration).unwrap();
    let server = Server::start(
        binary,
        ["--workers", &workers.to_string(), "--config", path.to_str().unwrap()],
    );
    std::fs::create_dir(server.folder().join("media")).unwrap();
    server
}

/// Puts a file at `/vod/NAME`.
pub(crate) fn put(server: &Server, name: &str, size: usize) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    let path = server.folder().join("media").join(name);
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(server.http, LIMIT).unwrap()
}

/// GET on a connection that is kept.
#[track_caller]
pub(crate) fn get(client: &mut Client, path: &str) -> Response {
    client.send("GET", path, &[], b"").unwrap();
    client.receive().unwrap()
}

/// A counter of `/metrics`.
#[track_caller]
pub(crate) fn metric(client: &mut Client, name: &str) -> u64 {
    let metrics = testkit::http::current_metrics(|| get(client, "/metrics"));
    let line = metrics.text().lines().find(|line| line.starts_with(&format!("{name} ")));
    let value = line.unwrap_or_else(|| panic!("no {name} in {}", metrics.text()));
    value.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Physical memory in KiB.
pub(crate) fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// Files and sockets the server has open.
pub(crate) fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count()
}

/// Calls of `write` the server has made; what it sends goes out by others.
pub(crate) fn writes(server: &Server) -> u64 {
    let counters = std::fs::read_to_string(format!("/proc/{}/io", server.id())).unwrap();
    let calls = counters.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap();
    calls.parse().unwrap()
}
