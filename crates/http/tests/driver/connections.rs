//! Connections: kept, closed, limited and drained.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Config;
use http::net::PerAddress;
use socket2::SockRef;
use testkit::{SlowReader, eventually, narrow_socket};

use crate::support::{LIMIT, Origin, config, read_all, statuses};

#[test]
fn kept_and_closed() {
    let origin = Origin::start();
    let hello = |version: &str, connection: &str| {
        let fields = if connection.is_empty() {
            String::new()
        } else {
            format!("Connection: {connection}\r\n")
        };
        let request = format!("GET /media/hello HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        origin.raw(request.repeat(2).as_bytes())
    };
    let count = |answer: &str| statuses(answer).len();
    assert_eq!(count(&hello("1.1", "")), 2);
    assert_eq!(count(&hello("1.1", "close")), 1);
    assert_eq!(count(&hello("1.1", "Keep-Alive, CLOSE")), 1);
    assert_eq!(count(&hello("1.0", "")), 1);
    assert_eq!(count(&hello("1.0", "keep-alive")), 2);
    assert!(hello("1.1", "close").contains("\r\nConnection: close\r\n"));
    assert!(hello("1.0", "").contains("\r\nConnection: close\r\n"));
    assert!(hello("1.0", "Keep-Alive").contains("\r\nConnection: keep-alive\r\n"));
    assert!(!hello("1.1", "").contains("\r\nConnection:"));
}

#[test]
fn pipelined_in_order() {
    let origin = Origin::start();
    let mut client = origin.client();
    let mut requests = String::new();
    for i in 0..500 {
        // Requests of every kind, including long ones.
        let path = match i % 5 {
            0 => "/media/bytes/70000".to_owned(),
            1 => "/media/stream/3/1000".to_owned(),
            _ => format!("/media/echo/{i}"),
        };
        requests += &format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    let socket = TcpStream::connect(origin.address).unwrap();
    let mut writer = socket.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(requests.as_bytes()));
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answers = testkit::http::Client::over(socket.try_clone().unwrap(), LIMIT).unwrap();
    for i in 0..500 {
        let answer = answers.receive().unwrap();
        match i % 5 {
            0 => assert_eq!(answer.body.len(), 70_000),
            1 => assert_eq!(answer.body.len(), 3000),
            _ => assert_eq!(answer.text(), format!("/media/echo/{i} h ")),
        }
    }
    writing.join().unwrap().unwrap();

    // Requests in one write, followed by garbage: the requests are answered.
    client
        .send_raw(
            b"GET /media/hello HTTP/1.1\r\nHost: h\r\n\r\nGET /media/echo HTTP/1.1\r\nHost: h\r\n\r\n\0\0\r\n\r\n",
        )
        .unwrap();
    assert_eq!(client.receive().unwrap().text(), "hello");
    assert_eq!(client.receive().unwrap().text(), "/media/echo h ");
    assert_eq!(client.receive().unwrap().status(), 400);
    assert!(client.is_closed_within(LIMIT));

    // Behind an answer that is never made, only a limited amount is read.
    let mut socket = TcpStream::connect(origin.address).unwrap();
    socket.write_all(b"GET /media/wait HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let flood = b"GET /media/hello HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1 << 20);
    assert_eq!(socket.write_all(&flood).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// Many short answers go out in one system call, and so in one segment. The receiving kernel counts
/// segments; `ss` shows the count.
#[test]
fn pipelined_answers_share_segments() {
    const REQUESTS: usize = 200;
    let origin = Origin::start();
    let socket = TcpStream::connect(origin.address).unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut client = testkit::http::Client::over(socket, LIMIT).unwrap();
    client
        .send_raw("GET /media/hello HTTP/1.1\r\nHost: h\r\n\r\n".repeat(REQUESTS).as_bytes())
        .unwrap();
    for _ in 0..REQUESTS {
        assert_eq!(client.receive().unwrap().text(), "hello");
    }
    // Other connections may have the same port at one of their ends.
    let filter = format!("sport = :{port} and dport = :{}", origin.address.port());
    let mut ss = std::process::Command::new("ss");
    let shown = testkit::Program::spawn(ss.args(["-tinH", &filter])).wait(LIMIT);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let segments = shown.split_whitespace().find_map(|word| word.strip_prefix("data_segs_in:"));
    let segments: usize = segments.unwrap_or_else(|| panic!("{shown}")).parse().unwrap();
    assert!((1..10).contains(&segments), "{segments} segments for {REQUESTS} answers");
}

/// The payload of a GET is skipped, and the next request follows it.
#[test]
fn payloads() {
    let origin = Origin::start();
    let with = |fields: &str, payload: &str| {
        let head = format!("GET /media/hello HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let next = "GET /media/echo HTTP/1.1\r\nHost: h\r\n\r\n";
        statuses(&origin.raw(format!("{head}{payload}{next}").as_bytes())).len()
    };
    assert_eq!(with("Content-Length: 4\r\n", "GET "), 2);
    assert_eq!(with("Content-Length: 60000\r\n", &"x".repeat(60_000)), 2);
    assert_eq!(with("Content-Length: 70000\r\n", &"x".repeat(70_000)), 1);
    assert_eq!(with("Content-Length: 4\r\nExpect: 100-continue\r\n", "GET "), 1);
    // A payload that does not arrive.
    let mut client = origin.client();
    client
        .send_raw(b"GET /media/hello HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc")
        .unwrap();
    assert_eq!(client.receive().unwrap().text(), "hello");
    client.send_raw(b"def").unwrap();
    client.send_raw(b"ghiGET /media/none HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    assert_eq!(client.receive().unwrap().status(), 204);
    // Methods with a payload are refused without reading it.
    let mut client = origin.client();
    client.send("PUT", "/media/hello", &[], &[0; 1000]).unwrap();
    client.send("GET", "/media/hello", &[], b"").unwrap();
    assert_eq!(client.receive().unwrap().status(), 405);
    assert_eq!(client.receive().unwrap().status(), 200);
}

/// A payload that arrives after its answer, on a connection that is closed: the answer must still
/// arrive (RFC 9112 9.6).
#[test]
fn payloads_that_come_late() {
    let origin = Origin::start();
    // A client with a small receive buffer.
    let mut socket = narrow_socket(origin.address, 4096).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let request = b"GET /media/bytes/100000 HTTP/1.1\r\nHost: h\r\n\
        Connection: close\r\nContent-Length: 10\r\n\r\n";
    socket.write_all(request).unwrap();
    // The kernel has the answer, but the viewer does not.
    eventually(LIMIT, "sent", || origin.totals().bytes_sent > 100_000);
    socket.write_all(b"0123456789").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > 100_000, "{} bytes", answer.len());
}

/// Turns are about work, not only bytes: a client that pipelines requests with short answers does
/// not make others wait for all of them.
#[test]
fn turns_are_taken() {
    const REQUESTS: usize = 3000;
    let origin = Origin::start();
    let (mut first, mut second, mut holding) = (origin.client(), origin.client(), origin.client());
    for client in [&mut first, &mut second] {
        client.send("GET", "/media/hello", &[], b"").unwrap();
        client.receive().unwrap();
    }
    let hold = origin.seen.hold.lock().unwrap();
    holding.send("GET", "/media/hold", &[], b"").unwrap();
    eventually(LIMIT, "held up", || origin.totals().requests == 3);
    first
        .send_raw("HEAD /media/hello HTTP/1.1\r\nHost: h\r\n\r\n".repeat(REQUESTS).as_bytes())
        .unwrap();
    second.send("GET", "/media/count", &[], b"").unwrap();
    drop(hold);
    let before: usize = second.receive().unwrap().text().parse().unwrap();
    assert!(before < REQUESTS / 10, "after {before} requests");
}

#[test]
fn idle_ones_are_closed() {
    let idle_timeout = Duration::from_millis(200);
    let origin = Origin::with(Config { idle_timeout, ..config() });
    let mut client = origin.client();
    let start = std::time::Instant::now();
    client.send("GET", "/media/hello", &[], b"").unwrap();
    client.receive().unwrap();
    assert!(client.is_closed_within(LIMIT));
    assert!(start.elapsed() >= idle_timeout);
}

/// Ends a connection at once. The other side would take an orderly close for a closed sending half.
fn reset(socket: TcpStream) {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("an open socket");
    drop(socket);
}

#[test]
fn a_peer_that_leaves_takes_its_request_along() {
    let origin = Origin::start();
    for closes_half_before in [false, true] {
        let before = origin.seen.abandoned.load(Ordering::Acquire);
        let mut socket = TcpStream::connect(origin.address).unwrap();
        socket.write_all(b"GET /media/wait HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        eventually(LIMIT, "one is open", || origin.totals().open == 1);
        if closes_half_before {
            socket.shutdown(Shutdown::Write).unwrap();
        }
        reset(socket);
        eventually(LIMIT, "abandoned", || origin.seen.abandoned.load(Ordering::Acquire) > before);
        eventually(LIMIT, "none is open", || origin.totals().open == 0);
    }
}

#[test]
fn a_peer_that_closes_its_half_is_answered() {
    let mut origin = Origin::with(Config { grace: 3 * LIMIT, ..config() });
    // Answers that are made while the server drains: one alone, one as a stream, and one behind
    // another.
    let (hello, late) =
        ("GET /media/hello HTTP/1.1\r\nHost: h\r\n\r\n", "GET /media/late HTTP/1.1\r\n");
    let sockets = [
        format!("{late}Host: h\r\n\r\n"),
        "GET /media/waiting HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        format!("{hello}{late}Host: h\r\n\r\n"),
    ]
    .map(|requests| {
        let mut socket = TcpStream::connect(origin.address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(requests.as_bytes()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        socket
    });
    eventually(LIMIT, "all are being answered", || origin.totals().requests == 4);
    // The control plane answers in its own way.
    let page = origin.raw(b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(statuses(&page), ["200"], "{page}");
    origin.stop();
    let [late, stream, both] = sockets.map(|mut socket| read_all(&mut socket));
    assert!(late.ends_with("\r\n\r\nlate"), "{late}");
    assert!(stream.ends_with("\r\n0\r\n\r\n"), "{stream}");
    assert_eq!(statuses(&both), ["200", "200"], "{both}");
    assert!(origin.join() < 2 * LIMIT, "closed when they were answered");
    assert_eq!(origin.seen.abandoned.load(Ordering::Acquire), 0);
}

#[test]
fn limits() {
    let max = Config { max_connections: 2, ..config() };
    let limit = PerAddress { max: NonZeroUsize::new(2).unwrap(), except: Vec::new() };
    let per_address = Config { max_connections_per_address: Some(limit), ..config() };
    for config in [max, per_address] {
        let origin = Origin::with(config);
        let hello = |client: &mut testkit::http::Client| {
            client.send("GET", "/media/hello", &[], b"").unwrap();
            client.receive().unwrap().status()
        };
        let (mut first, mut second) = (origin.client(), origin.client());
        assert_eq!((hello(&mut first), hello(&mut second)), (200, 200));
        let mut refused = TcpStream::connect(origin.address).unwrap();
        refused.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(statuses(&read_all(&mut refused)), ["503"]);
        assert_eq!(origin.totals().refused, 1);
        // Connected clients are not affected, and one that leaves makes room.
        assert_eq!(hello(&mut first), 200);
        drop(second);
        eventually(LIMIT, "a place is free", || origin.totals().open == 1);
        assert_eq!(hello(&mut origin.client()), 200);
    }
}

#[test]
fn a_port_is_not_shared_with_another_server() {
    let workers = NonZeroUsize::new(3).unwrap();
    let origin = Origin::with(Config { workers, ..config() });
    let error = http::Server::bind(origin.address, config()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    for _ in 0..30 {
        assert_eq!(testkit::http::get(origin.address, "/media/hello").status(), 200);
    }
    assert_eq!(origin.totals().requests, 30);
}

#[test]
fn a_peer_that_stalls() {
    let stall_timeout = Duration::from_millis(300);
    let origin = Origin::with(Config { stall_timeout, ..config() });
    let requests = [
        "GET /media/bytes/50000000 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /media/endless/10000 HTTP/1.1\r\nHost: h\r\n\r\n",
    ];
    for (stalled, request) in (1..).zip(requests) {
        let reader = SlowReader::start(origin.address, request.as_bytes(), 0).unwrap();
        eventually(LIMIT, "closed", || origin.totals().stalled == stalled);
        eventually(LIMIT, "none is open", || origin.totals().open == 0);
        // The connection is closed at once, and the kernel drops its bytes.
        assert_eq!(reader.finish(LIMIT).0, testkit::Ended::Reset);
    }
}

#[test]
fn draining() {
    let mut origin = Origin::with(Config { grace: 3 * LIMIT, ..config() });
    // An idle connection, a new one, an unfinished answer, a stream that waits, one that does not,
    // a half-read body, and an idle control connection.
    let mut idle = origin.client();
    idle.send("GET", "/media/hello", &[], b"").unwrap();
    idle.receive().unwrap();
    let mut new = origin.client();
    let ask = |path: &str| {
        let mut client = origin.client();
        client.send("GET", path, &[], b"").unwrap();
        client
    };
    let mut late = ask("/media/late");
    let (mut waiting, mut endless) = (ask("/media/waiting"), ask("/media/endless/1000"));
    let mut half = ask("/media/bytes/3000000");
    let mut page = ask("/page");
    assert_eq!(page.receive().unwrap().text(), "page");
    let (_, mut body) = half.begin().unwrap();
    body.read_exact(&mut [0; 1000]).unwrap();
    waiting.begin().unwrap();
    endless.begin().unwrap();
    eventually(LIMIT, "all are served", || origin.totals().requests == 5);
    origin.stop();

    assert!(idle.is_closed_within(LIMIT));
    assert!(new.is_closed_within(LIMIT));
    assert!(page.is_closed_within(LIMIT));
    let answer = late.receive().unwrap();
    assert_eq!((answer.text(), answer.header("Connection")), ("late", Some("close")));
    let mut rest = Vec::new();
    body.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 3_000_000 - 1000);
    for mut client in [late, waiting, endless, half] {
        assert!(client.is_closed_within(LIMIT));
    }
    assert!(origin.join() < 2 * LIMIT, "no connection was waited for in vain");
    assert!(TcpStream::connect(origin.address).is_err());
    assert_eq!(origin.totals().open, 0);
}

/// An answer of either plane that is made while draining announces the close of the connection.
#[test]
fn connections_during_a_drain_are_answered_once() {
    let mut origin = Origin::with(Config { grace: 3 * LIMIT, ..config() });
    // The drain does not end while this request is served.
    let mut held = TcpStream::connect(origin.address).unwrap();
    held.write_all(b"GET /media/wait HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    eventually(LIMIT, "it waits", || origin.totals().requests == 1);
    origin.stop();
    let status = || testkit::http::get(origin.address, "/media/hello").status();
    eventually(LIMIT, "it drains", || status() == 503);
    for (path, status) in [("/page", 200), ("/media/hello", 503)].repeat(10) {
        let mut client = origin.client();
        client.send("GET", path, &[], b"").unwrap();
        let answer = client.receive().unwrap();
        assert_eq!(
            (answer.status(), answer.header("Connection")),
            (status, Some("close")),
            "{path}"
        );
        assert!(client.is_closed_within(LIMIT));
    }
    reset(held);
}

#[test]
fn draining_has_an_end() {
    let mut origin = Origin::with(Config { grace: Duration::from_millis(300), ..config() });
    let mut client = origin.client();
    client.send("GET", "/media/wait", &[], b"").unwrap();
    eventually(LIMIT, "it waits", || origin.totals().requests == 1);
    let took = origin.join();
    assert!(took >= Duration::from_millis(300) && took < LIMIT, "{took:?}");
    assert!(client.is_closed_within(LIMIT));
    assert_eq!(origin.seen.abandoned.load(Ordering::Acquire), 1);
}
