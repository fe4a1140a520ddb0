//! Viewers that do not read.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use testkit::Server;

use crate::support::{Client, LIMIT, metric, server, until};

/// A client whose kernel takes little for it.
fn narrow(address: SocketAddr) -> Client {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&address.into()).unwrap();
    Client::over(socket.into(), "/live/demo/push")
}

fn closed(server: &Server, reason: &str) -> u64 {
    metric(
        server,
        &format!("headwater_slow_viewers_closed_total{{delivery=\"push\",reason=\"{reason}\"}}"),
    )
}

#[test]
fn one_that_never_reads_is_closed_and_delays_nobody() {
    let server = server("workers = 1\n[http]\nsend_timeout = \"2s\"\n");
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
        assert!(began.elapsed() < Duration::from_secs(2));
    }
    assert!(chunks > 5);
    server.log_line(LIMIT, |line| line.contains("push") && line.contains("takes nothing"));
    let gauge = r#"headwater_viewers{stream="live/demo",delivery="push"}"#;
    until(|| metric(&server, gauge) == 1);
    drop(deaf);
}
