//! Hostile peers: what they may send, and what they must not be able to cause.

use std::io::ErrorKind;
use std::time::Duration;

use testkit::http::Client;
use testkit::{SlowReader, eventually};

use crate::support::{Kind, LIMIT, Server, Site, each_server};

fn bad_requests_are_refused_and_the_connection_closed(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(9000));
    let endless = format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(9000));
    let long_target = format!("GET /{} HTTP/1.1\r\n\r\n", "b".repeat(9000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(101));
    let cases = [
        ("garbage\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("GET / HTTP/3.0\r\n\r\n", 400),
        ("GET /small.txt HTTP/1.1 \r\n\r\n", 400),
        ("G\u{e4}T / HTTP/1.1\r\n\r\n", 400),
        ("GET /%zz HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nA : b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nA: b\0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST /small.txt HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("DELETE /small.txt HTTP/1.1\r\n\r\n", 405),
        (&long, 431),
        (&endless, 431),
        (&many, 431),
    ];
    for (bytes, expected) in cases {
        let mut client = server.connect();
        client.send_raw(bytes.as_bytes()).expect("the request is taken");
        let shown = &bytes[..bytes.len().min(80)];
        let response = client.receive().unwrap_or_else(|error| panic!("{shown:?}: {error}"));
        assert_eq!(response.status(), expected, "{shown:?}: {response:?}");
        let allow = (expected == 405).then_some("GET, HEAD");
        assert_eq!(response.header("Allow"), allow, "{shown:?}");
        assert!(client.is_closed_within(LIMIT), "{shown:?} leaves the connection open");
    }
    // hyper answers 414 where the target alone is too long.
    let status = server.ask_raw(long_target.as_bytes()).status();
    assert!(matches!(status, 431 | 414), "{status}");
    assert_eq!(server.ask("GET", "/small.txt", &[]).text(), "hello");
}
each_server!(bad_requests_are_refused_and_the_connection_closed);

fn a_head_may_come_in_any_pieces(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let request = b"\r\nGET /small.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n";
    for at in 1..request.len() {
        let mut client = server.connect();
        client.send_raw(&request[..at]).unwrap();
        client.send_raw(&request[at..]).unwrap();
        let response = client.receive().unwrap_or_else(|error| panic!("split at {at}: {error}"));
        assert_eq!((response.status(), response.text()), (206, "el"), "split at {at}");
    }
    let mut client = server.connect();
    for byte in request {
        client.send_raw(&[*byte]).unwrap();
    }
    assert_eq!(client.receive().unwrap().status(), 206);
}
each_server!(a_head_may_come_in_any_pieces);

fn garbage_after_a_good_request_does_not_spoil_its_answer(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let mut client = server.connect();
    client
        .send_raw(b"GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n\x16\x03\x01garbage\r\n\r\n")
        .unwrap();
    let response = client.receive().expect("the good request is answered");
    assert_eq!(response.status(), 200);
    assert!(response.body == site.big);
    if kind.keeps_alive() {
        assert_eq!(client.receive().expect("and the bad one").status(), 400);
    }
    assert!(client.is_closed_within(LIMIT));
}
each_server!(garbage_after_a_good_request_does_not_spoil_its_answer);

/// Waits until a good client is served. One that a busy machine holds up is itself given up.
#[track_caller]
fn eventually_served(server: &Server) {
    eventually(LIMIT, "a good client is served", || {
        let mut client = server.connect();
        let sent = client.send("GET", "/small.txt", &[], b"");
        match sent.and_then(|()| client.receive()) {
            Ok(answer) if answer.status() != 408 => assert_eq!(answer.text(), "hello"),
            _ => return false,
        }
        true
    });
}

/// Each of three peers alone could occupy a server with one worker.
fn silent_peers_are_given_up(kind: Kind) {
    let site = Site::new();
    let mut options = vec!["--timeout", "300ms"];
    match kind {
        Kind::Threadpool | Kind::ThreadpoolInC => options.extend(["--workers", "1"]),
        Kind::Hyper => {}
        _ => options.extend(["--threads", "1"]),
    }
    let server = Server::start(kind, &site.root(), &options);
    let before = server.descriptors().len();

    let half_head = || {
        let mut client = server.connect();
        let sent = client.send_raw(b"GET /small.txt HTTP/1.1\r\nHo");
        sent.map(|()| client)
    };
    let mut mute = server.connect();
    let mut half = half_head();
    let slow = SlowReader::get(server.address, "/big.bin", 0).unwrap();

    // A later client is served as well.
    eventually_served(&server);
    assert!(mute.is_closed_within(LIMIT));
    // One whose half of a head came when it had been given up is told nothing. Then another one is.
    eventually(LIMIT, "the server says why", || {
        let answer = half
            .as_mut()
            .map_err(|error| error.kind())
            .and_then(|half| half.receive().map_err(|error| error.kind()));
        match answer {
            Ok(response) => assert_eq!(response.status(), 408),
            // hyper closes the connection without an answer.
            Err(ErrorKind::UnexpectedEof) if kind == Kind::Hyper => {}
            Err(_) => {
                half = half_head();
                return false;
            }
        }
        true
    });
    server.wait_for_descriptors("all given up", |now| now.len() <= before);
    drop(slow);
}
each_server!(silent_peers_are_given_up);

/// A head that arrives byte by byte does not come from a silent peer, but is given up all the same.
fn a_dripping_head_has_an_end(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &["--timeout", "300ms"]);
    let mut client = Client::connect(server.address, LIMIT).unwrap();
    let dripped = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        client.send_raw(b"G").is_err()
    });
    assert!(dripped || client.is_closed_within(LIMIT), "200 bytes in 10 s were waited for");
    eventually_served(&server);
}
each_server!(a_dripping_head_has_an_end);

fn running_out_of_descriptors_is_survived(kind: Kind) {
    let site = Site::new();
    let most = 32;
    let server = Server::start_limited(kind, &site.root(), most);
    let before = server.descriptors().len();
    let idle: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    match kind {
        // Only as many are accepted as there are workers and places.
        Kind::Threadpool | Kind::ThreadpoolInC => {
            server.wait_for_descriptors("accepted", |now| now.len() >= before + 4 + 16);
        }
        _ => server.wait_for_descriptors("no more to be had", |now| {
            (0..most).all(|number| now.contains(&number))
        }),
    }
    drop(idle);
    // A client that asks before the server has noticed their end may be told that there is no
    // descriptor for the file.
    server.wait_for_descriptors("given back", |now| now.len() <= before);
    assert_eq!(server.ask("GET", "/small.txt", &[]).text(), "hello");
    server.wait_for_descriptors("given back again", |now| now.len() <= before);
}
each_server!(running_out_of_descriptors_is_survived);

fn a_file_that_becomes_shorter_ends_the_connection_short(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let length = 64 << 20;
    let file = std::fs::File::create(site.root().join("shrinking.bin")).unwrap();
    file.set_len(length).unwrap();
    let mut client = server.connect();
    client.send("GET", "/shrinking.bin", &[], b"").unwrap();
    let (head, body) = client.begin().unwrap();
    assert_eq!(head.header("Content-Length"), Some(length.to_string().as_str()));
    // Far more bytes are unread than sockets and models hold.
    file.set_len(1).unwrap();
    let mut body = body;
    let mut received = Vec::new();
    let error = std::io::Read::read_to_end(&mut body, &mut received).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
    assert!((received.len() as u64) < length);
    assert_eq!(server.ask("GET", "/small.txt", &[]).text(), "hello");
}
each_server!(a_file_that_becomes_shorter_ends_the_connection_short);

fn sigterm_ends_it(kind: Kind) {
    let site = Site::new();
    let server = Server::start(kind, &site.root(), &[]);
    let _idle = server.connect();
    let _slow = SlowReader::get(server.address, "/big.bin", 0).unwrap();
    let finished = server.stop();
    assert!(finished.stderr.is_empty(), "{finished:?}");
    let lines = String::from_utf8_lossy(&finished.stdout).lines().count();
    assert_eq!(lines, 1, "{finished:?}");
}
each_server!(sigterm_ends_it);
