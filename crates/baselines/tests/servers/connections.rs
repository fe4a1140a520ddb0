//! Kept connections, and many connections at once.

use std::process::Command;
use std::thread;

use testkit::Program;

use crate::support::{BIG, Kind, LIMIT, Server, Site, each_server};

fn connections_are_kept_where_the_model_keeps_them(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let mut client = server.connect();
    if !kind.keeps_alive() {
        client.send("GET", "/small.txt", &[("Connection", "keep-alive")], b"").unwrap();
        let response = client.receive().unwrap();
        assert_eq!(response.header("Connection"), Some("close"));
        assert!(client.is_closed_within(LIMIT));
        return;
    }
    // Errors about a file do not end a connection. Errors in a request do, as `hostile` tests.
    for (method, path, status) in [
        ("GET", "/small.txt", 200),
        ("HEAD", "/big.bin", 200),
        ("GET", "/missing", 404),
        ("HEAD", "/missing", 404),
        ("GET", "/big.bin", 200),
        ("GET", "/empty.txt", 200),
        ("GET", "/small.txt", 200),
    ] {
        client.send(method, path, &[], b"").unwrap();
        let response = client.receive().unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
        let length = if (method, path) == ("GET", "/big.bin") { BIG } else { 0 };
        assert!(response.body.len() >= length);
    }
    client.send("GET", "/small.txt", &[("Connection", "close")], b"").unwrap();
    assert_eq!(client.receive().unwrap().header("Connection"), Some("close"));
    assert!(client.is_closed_within(LIMIT));
}
each_server!(connections_are_kept_where_the_model_keeps_them);

fn pipelined_requests_are_answered_in_order(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let mut client = server.connect();
    let ranges: Vec<_> = (0..40).map(|n| (n * 200_000, n * 200_000 + 150_000 + n)).collect();
    let request = |(first, end): &(usize, usize)| {
        format!("GET /big.bin HTTP/1.1\r\nHost: a\r\nRange: bytes={first}-{}\r\n\r\n", end - 1)
    };
    client.send_raw(ranges.iter().map(request).collect::<String>().as_bytes()).unwrap();
    let answered = if kind.keeps_alive() { ranges.len() } else { 1 };
    for (first, end) in &ranges[..answered] {
        let response = client.receive().unwrap_or_else(|error| panic!("{first}: {error}"));
        assert_eq!(response.status(), 206);
        assert!(response.body == site.big[*first..*end], "{first}");
    }
    if !kind.keeps_alive() {
        assert!(client.is_closed_within(LIMIT));
    }
}
each_server!(pipelined_requests_are_answered_in_order);

fn many_clients_get_what_they_ask_for(kind: Kind) {
    let site = Site::new();
    let options: &[&str] = match kind {
        // Far fewer places than clients.
        Kind::Threadpool | Kind::ThreadpoolInC => &["--workers", "3", "--queue", "2"],
        Kind::Hyper => &["--workers", "2"],
        _ => &[],
    };
    let server = Server::start(kind, &site.root(), options);
    thread::scope(|scope| {
        for n in 0..48_usize {
            let (server, site) = (&server, &site);
            scope.spawn(move || {
                let mut client = server.connect();
                for m in 0..8 {
                    let first = (n * 131_071 + m * 524_287) % (BIG - 300_000);
                    let end = first + 1 + (n * m * 6151) % 300_000;
                    let range = format!("bytes={first}-{}", end - 1);
                    if m > 0 && !kind.keeps_alive() {
                        client = server.connect();
                    }
                    client.send("GET", "/big.bin", &[("Range", &range)], b"").unwrap();
                    let response = client.receive().unwrap();
                    assert_eq!(response.status(), 206);
                    assert!(response.body == site.big[first..end], "{n} {m}");
                }
            });
        }
    });
}
each_server!(many_clients_get_what_they_ask_for);

/// curl's own count of connections, for both versions of HTTP.
fn curl_agrees(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let url = server.url("/big.bin");
    let curl = |options: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--max-time", "20"]).args(options);
        Program::output(&mut command, LIMIT)
    };
    assert!(curl(&[&url]) == site.big);
    assert!(curl(&["--http1.0", &url]) == site.big);
    assert!(curl(&["--range", "1000-2000000", &url]) == site.big[1000..=2_000_000]);

    let connects = |options: &[&str]| {
        let each = ["--output", "/dev/null", "--write-out", "%{num_connects} "];
        let both = [&each[..], &[&url, "--output", "/dev/null", &url], options].concat();
        String::from_utf8(curl(&both)).unwrap()
    };
    let (kept, not_kept) = ("1 0 ", "1 1 ");
    let expected = if kind.keeps_alive() { kept } else { not_kept };
    assert_eq!(connects(&[]), expected);
    assert_eq!(connects(&["--http1.0"]), not_kept);
    assert_eq!(connects(&["--http1.0", "--header", "Connection: keep-alive"]), expected);
}
each_server!(curl_agrees);
