//! A server with the demo stream.

use std::time::Duration;

use testkit::Server;

/// The longest wait in these tests, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Starts a server with the demo stream and these lines of configuration. Waits for its media.
#[track_caller]
pub(crate) fn server(tables: &str) -> Server {
    let tables = with_rare_pings(tables);
    let server = Server::configured(env!("CARGO_BIN_EXE_headwater"), &tables, ["--demo"]);
    server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
    server
}

/// These lines of configuration, with so much time between pings that none comes, unless the lines
/// say otherwise. Most tests do not answer pings, and a busy machine lets a test last long.
pub(crate) fn with_rare_pings(tables: &str) -> String {
    if tables.contains("[push]") {
        return tables.to_owned();
    }
    format!("{tables}\n[push]\nping_interval = \"5m\"\n")
}

/// A value of `/metrics`, or 0 if there is none of that name yet.
#[track_caller]
pub(crate) fn metric(server: &Server, name: &str) -> u64 {
    server.metrics().metric(name).unwrap_or(0)
}
