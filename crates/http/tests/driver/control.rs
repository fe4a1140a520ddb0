//! Connections that are handed to the control plane, and media requests on them.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::eventually;

use crate::support::{LIMIT, Origin, pattern};

#[test]
fn handed_over_whole() {
    let origin = Origin::start();
    let mut client = origin.client();
    // The request follows a media request in the same write, with its payload, and with another
    // request behind it.
    client
        .send_raw(
            b"GET /media/hello HTTP/1.1\r\nHost: h\r\n\r\n\
            POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\npayload\
            POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmore\r\n0\r\n\r\n\
            GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n",
        )
        .unwrap();
    assert_eq!(client.receive().unwrap().text(), "hello");
    assert_eq!(client.receive().unwrap().text(), "payload");
    assert_eq!(client.receive().unwrap().text(), "more");
    assert_eq!(client.receive().unwrap().status(), 404);
    assert_eq!(origin.totals().handed_over, 1);

    // A payload larger than any buffer, after a 100 (Continue).
    let mut client = origin.client();
    let payload = pattern(1_000_000);
    let expect = [("Content-Length", "1000000"), ("Expect", "100-continue")];
    client.send("POST", "/echo", &expect, b"").unwrap();
    let mut socket = client.into_parts().0;
    let mut interim = [0; 25];
    socket.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(&payload).unwrap();
    let mut client = testkit::http::Client::over(socket, LIMIT).unwrap();
    assert!(client.receive().unwrap().body == payload);
}

#[test]
fn knows_the_peer() {
    let origin = Origin::start();
    let socket = TcpStream::connect(origin.address).unwrap();
    let own = socket.local_addr().unwrap();
    let mut client = testkit::http::Client::over(socket, LIMIT).unwrap();
    client.send("GET", "/who", &[], b"").unwrap();
    assert_eq!(client.receive().unwrap().text(), own.to_string());
}

/// A browser requests media on the connection that delivered the page.
#[test]
fn media_on_a_control_connection() {
    let origin = Origin::start();
    let mut client = origin.client();
    let mut ask = |method: &str, path: &str, fields: &[(&str, &str)]| {
        client.send(method, path, fields, b"").unwrap();
        client.receive().unwrap()
    };
    assert_eq!(ask("GET", "/page", &[]).text(), "page");
    let hello = ask("GET", "/media/hello", &[]);
    assert_eq!((hello.text(), hello.header("Server")), ("hello", Some("headwater")));
    assert_eq!(hello.header("Access-Control-Allow-Origin"), Some("*"));
    assert_eq!(hello.header("Content-Length"), Some("5"));
    assert!(hello.header("Date").is_some());
    let head = ask("HEAD", "/media/hello", &[]);
    assert_eq!((head.header("Content-Length"), head.body.len()), (Some("5"), 0));
    assert_eq!(ask("GET", "/media/stream/5/1000", &[]).body, pattern(1000).repeat(5));
    let part = ask("GET", "/media/bytes/5000", &[("Range", "bytes=10-19")]);
    assert_eq!((part.status(), part.body.len()), (206, 10));
    assert_eq!(ask("DELETE", "/media/hello", &[]).status(), 405);
    assert_eq!(
        ask("GET", "/media/echo?a=%20b", &[]).text(),
        format!("/media/echo {} a= b", origin.address)
    );
    for (path, status) in [("/media/%2e%2e/hello", 404), ("/media/hello?%zz", 400), ("/panic", 500)]
    {
        assert!(ask("GET", path, &[]).header("X-Request-Id").is_some(), "{path}");
        let refused = ask("GET", path, &[("X-Request-Id", "r-1")]);
        assert_eq!((refused.status(), refused.header("X-Request-Id")), (status, Some("r-1")));
    }
    assert_eq!(ask("GET", "/page", &[]).text(), "page");
    assert_eq!(origin.totals().accepted, 1);
}

/// A proxy may use a connection for a WebSocket that carried other requests before.
#[test]
fn another_protocol_after_a_request_to_the_control_plane() {
    let origin = Origin::start();
    for path in ["/media/hello", "/page"] {
        let mut client = origin.client();
        client.send("GET", path, &[], b"").unwrap();
        assert_eq!(client.receive().unwrap().status(), 200);
        let mut socket = client.into_parts().0;
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        // The first bytes of the other protocol may come with the request.
        let request = "GET /media/switch HTTP/1.1\r\nHost: h\r\nUpgrade: echo\r\n\
            Connection: Upgrade\r\n\r\nearly";
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nearly") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{answer}");
        for field in ["\r\nupgrade: echo\r\n", "\r\nconnection: upgrade\r\n"] {
            assert!(answer.to_lowercase().contains(field), "{answer}");
        }
        socket.write_all(b"late").unwrap();
        let mut echo = [0; 4];
        socket.read_exact(&mut echo).unwrap();
        assert_eq!((&echo, origin.totals().open), (b"late", 1));
        drop(socket);
        eventually(LIMIT, "its place is free", || origin.totals().open == 0);
    }
    assert_eq!(origin.totals().handed_over, 1);

    // A request for no other protocol leaves the connection as it is.
    let mut client = origin.client();
    for path in ["/page", "/media/switch", "/page"] {
        client.send("GET", path, &[], b"").unwrap();
        let status = if path == "/page" { 200 } else { 426 };
        assert_eq!(client.receive().unwrap().status(), status);
    }
}

/// The unit tests of `connection` show the time limits.
#[test]
fn the_same_bounds_on_a_control_connection() {
    let origin = Origin::start();
    let long = "a".repeat(9000);
    let mut client = origin.client();
    client.send("GET", "/page", &[], b"").unwrap();
    assert_eq!(client.receive().unwrap().status(), 200);
    client.send("GET", "/page", &[("X-Long", &long)], b"").unwrap();
    assert_eq!(client.receive().unwrap().status(), 431);
    assert!(client.is_closed_within(LIMIT));
    eventually(LIMIT, "all closed", || origin.totals().open == 0);
}
