//! Viewers that do not read.

use std::net::SocketAddr;
use std::time::Duration;

use testkit::push::Client;
use testkit::{Server, eventually, narrow_socket};

use crate::support::{LIMIT, metric, server};

/// A client with a small receive buffer.
fn narrow(address: SocketAddr) -> Client {
    Client::over(narrow_socket(address, 4 << 10).unwrap(), "/live/demo/push")
}

fn closed(server: &Server, reason: &str) -> u64 {
    metric(
        server,
        &format!("headwater_slow_viewers_closed_total{{delivery=\"push\",reason=\"{reason}\"}}"),
    )
}

#[test]
fn one_that_never_reads_is_closed_and_delays_nobody() {
    /// How long the server waits for a viewer that never reads.
    const PATIENCE: Duration = Duration::from_secs(20);
    let server = server(&format!("workers = 1\n[http]\nsend_timeout = \"{PATIENCE:?}\"\n"));
    let mut reads = Client::connect(server.http, "/live/demo/push");
    let deaf: Vec<_> = (0..5).map(|_| narrow(server.http)).collect();
    let mut chunks = 0;
    let deadline = std::time::Instant::now() + LIMIT;
    while closed(&server, "stalled") < 5 {
        assert!(std::time::Instant::now() < deadline);
        let began = std::time::Instant::now();
        for _ in 0..5 {
            reads.next().unwrap();
            chunks += 1;
        }
        // If the others had to wait as well, they would get nothing for all that time.
        assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    }
    assert!(chunks > 5);
    server.log_line(LIMIT, |line| line.contains("push") && line.contains("takes nothing"));
    let gauge = r#"headwater_viewers{stream="live/demo",delivery="push"}"#;
    eventually(LIMIT, "those that are deaf have gone", || metric(&server, gauge) == 1);
    drop(deaf);
}
