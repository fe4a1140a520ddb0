//! Requests that become WebSockets, and those that do not.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::http::get_with;

use testkit::push::{Client, KEY, request};
use testkit::{time_of, track_of, uninterrupted};

use crate::support::{LIMIT, server};

#[test]
fn bad_handshakes_are_refused_with_the_reason() {
    let server = server("");
    let good = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ];
    let without = |name: &str| good.into_iter().filter(|(n, _)| *n != name).collect::<Vec<_>>();
    let with =
        |name: &'static str, value: &'static str| [without(name), vec![(name, value)]].concat();
    let path = "/live/demo/push";
    for (path, headers, status) in [
        (path, vec![], 426),
        (path, without("Upgrade"), 426),
        (path, without("Connection"), 426),
        (path, with("Sec-WebSocket-Version", "8"), 426),
        (path, without("Sec-WebSocket-Version"), 426),
        (path, without("Sec-WebSocket-Key"), 400),
        (path, with("Sec-WebSocket-Key", "short"), 400),
        (path, with("Content-Length", "3"), 400),
        ("/live/demo/push?from=soon", good.to_vec(), 400),
        ("/live/demo/push?max=0", good.to_vec(), 400),
        ("/live/demo/push?latency=none", good.to_vec(), 400),
        ("/live/demo/push?rendition=v7", good.to_vec(), 404),
        ("/live/other/push", good.to_vec(), 404),
    ] {
        let answer = get_with(server.http, path, &headers);
        assert_eq!(answer.status(), status, "{path} {headers:?}: {}", answer.text());
        if status == 426 {
            assert_eq!(answer.header("upgrade"), Some("websocket"));
            assert_eq!(answer.header("sec-websocket-version"), Some("13"));
        }
    }
    // A connection that carried a request to the control plane may become a WebSocket, too.
    let mut socket = TcpStream::connect(server.http).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let both = ["GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", &request(path)].concat();
    socket.write_all(both.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("HTTP/1.1 101") {
        let mut buffer = [0; 4096];
        let read = uninterrupted(|| socket.read(&mut buffer)).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..read]);
    }
}

#[test]
fn pages_of_other_sites_are_refused_where_that_is_configured() {
    let server = server("[http]\ncors_origin = \"https://tv.example\"\n");
    let headers = |origin: &'static str| {
        [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", KEY),
            ("Origin", origin),
        ]
    };
    let answer = get_with(server.http, "/live/demo/push", &headers("https://elsewhere.example"));
    assert_eq!(answer.status(), 403);
    let answer = get_with(server.http, "/live/demo/push?max=x", &headers("https://tv.example"));
    assert_eq!(answer.status(), 400);
}

#[test]
fn a_viewer_may_begin_in_the_past() {
    let server = server("[live]\nsegment_target = \"1s\"\ntarget_duration = \"2s\"\n");
    server.until_listed("live/demo", &["v0"], 4, LIMIT);
    let first = |query: &str| {
        let mut client = Client::connect(server.http, &format!("/live/demo/push?{query}"));
        let scale = client.next().unwrap().event()["timescale"].as_u64().unwrap();
        let header = client.next().unwrap();
        assert_eq!(&header.payload[4..8], b"ftyp");
        let chunk = client.until(|frame| frame.opcode == 2 && track_of(&frame.payload) == 1);
        time_of(&chunk.payload) as f64 / scale as f64
    };
    let (live, start) = (first("from=live"), first("from=start"));
    assert!(live - start > 2.5, "{live} {start}");
    let middle = first(&format!("from={}", start + 2.2));
    assert!((start + 0.9..start + 2.3).contains(&middle), "{start} {middle} {live}");
    // With more than there is, the viewer begins at live.
    assert!(first("from=1000000") >= live);
}
