//! Bodies of any size: streamed, broken off, and never ahead of a slow reader.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Config;
use testkit::{SlowReader, eventually};

use crate::support::{LIMIT, Origin, config, pattern};

#[test]
fn of_every_size() {
    let origin = Origin::start();
    let mut client = origin.client();
    for size in [0, 1, 999, 1000, 1001, 65_535, 65_536, 300_000, 20_000_000] {
        client.send("GET", &format!("/media/bytes/{size}"), &[], b"").unwrap();
        let answer = client.receive().unwrap();
        assert!(answer.body == pattern(size), "{size} bytes");
    }
}

#[test]
fn streamed() {
    let origin = Origin::start();
    let mut client = origin.client();
    for (count, size) in [(0, 0), (1, 1), (10, 3), (100, 10_000), (3, 1_000_000)] {
        client.send("GET", &format!("/media/stream/{count}/{size}"), &[], b"").unwrap();
        let answer = client.receive().unwrap();
        assert_eq!(answer.header("Transfer-Encoding"), Some("chunked"));
        assert!(answer.body == pattern(size).repeat(count), "{count} times {size} bytes");
    }
    assert_eq!(origin.totals().accepted, 1);
    // HTTP/1.0 has no chunks, so the body ends with the connection, whatever the client requested.
    let answer = origin.raw(b"GET /media/stream/3/10 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\nConnection: close"), "{head}");
    assert!(!head.contains("Transfer-Encoding") && !head.contains("Content-Length"), "{head}");
    assert_eq!(body.as_bytes(), pattern(10).repeat(3));
}

/// A payload that fails before its end must not look complete.
#[test]
fn broken_off() {
    let origin = Origin::start();
    let mut client = origin.client();
    client.send("GET", "/media/broken", &[], b"").unwrap();
    let (head, mut body) = client.begin().unwrap();
    assert_eq!(head.status, 200);
    let mut read = Vec::new();
    assert_eq!(body.read_to_end(&mut read).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(read, pattern(10).repeat(3));
    // In HTTP/1.0, a connection that ends in order would end the payload.
    let mut socket = TcpStream::connect(origin.address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.write_all(b"GET /media/broken HTTP/1.0\r\n\r\n").unwrap();
    let error = socket.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// A stream is asked for more only when the kernel has taken its last pieces. So the backlog of a
/// viewer that reads nothing is what the kernel's buffers hold, however long it lasts.
#[test]
fn never_ahead_of_a_slow_reader() {
    const CHUNK: usize = 10_000;
    let origin = Origin::start();
    let path = format!("/media/endless/{CHUNK}");
    let pulled = || origin.seen.pulled.load(Ordering::Acquire);
    let reader = SlowReader::get(origin.address, &path, 0).unwrap();
    eventually(LIMIT, "some is pulled", || pulled() > 0);
    // Only waiting can show that nothing more is pulled. The unit tests of `connection` show it
    // without.
    let mut last = usize::MAX;
    while last != pulled() {
        last = pulled();
        std::thread::sleep(Duration::from_millis(200));
    }
    // Unsent: `Config::unsent_limit`, which a write may exceed by one. Unread: the reader's buffer.
    // In the driver: one.
    let most = (128 << 10) / CHUNK + (64 << 10) / CHUNK + 3;
    assert!(last <= most, "{last} chunks were pulled, not at most {most}");
    // The rest follows as it is read.
    reader.hurry();
    eventually(LIMIT, "more is pulled", || pulled() > last + 1000);
    assert!(reader.received() > 0);
    drop(reader);
    eventually(LIMIT, "none is open", || origin.totals().open == 0);
}

/// A viewer's long body does not delay another viewer.
#[test]
fn others_have_their_turn() {
    const CHUNK: usize = 10_000;
    let mut origin = Origin::with(Config { grace: LIMIT, ..config() });
    let mut greedy = origin.client();
    greedy.send("GET", &format!("/media/endless/{CHUNK}"), &[], b"").unwrap();
    let reading = std::thread::spawn(move || {
        let (_, mut body) = greedy.begin().unwrap();
        std::io::copy(&mut body, &mut std::io::sink())
    });
    let sent = || origin.totals().bytes_sent;
    eventually(LIMIT, "it is being sent", || sent() > 1_000_000);
    // The body has no end, so others get an answer only where they have a turn.
    let mut client = origin.client();
    for _ in 0..6 {
        client.send("GET", "/media/hello", &[], b"").unwrap();
        assert_eq!(client.receive().unwrap().text(), "hello");
    }
    let before = sent();
    eventually(LIMIT, "it is still being sent", || sent() > before + 1_000_000);
    origin.join();
    let read = reading.join().unwrap().unwrap();
    assert!(read > 2_000_000 && read % CHUNK as u64 == 0, "{read} bytes");
}
