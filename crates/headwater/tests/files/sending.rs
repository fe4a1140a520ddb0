//! How a file gets to its viewer: from the page cache without a copy, from a disk without delaying
//! others.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise, fstatfs};
use testkit::{Program, SlowReader, eventually, noise};

use crate::support::{LIMIT, Origin, settled};

const FILE_BYTES: &str = "headwater_http_file_sent_bytes_total";
const COLD_READS: &str = "headwater_http_cold_reads_total";

/// `TMPFS_MAGIC` of linux/magic.h: a file system whose files are always in memory.
const TMPFS: u64 = 0x0102_1994;

/// Removes a file from the page cache. Returns whether that is possible.
fn evict(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    fstatfs(&file).unwrap().f_type.cast_unsigned() != TMPFS
}

/// Files in memory are sent by `sendfile`, without another thread.
#[test]
fn warm() {
    let origin = Origin::start();
    let bytes = noise(11, 3_000_000);
    origin.put("a.bin", &bytes);
    let mut client = origin.client();
    assert!(client.get("/vod/a.bin", &[]).body == bytes);
    assert_eq!(origin.metric(FILE_BYTES), 3_000_000);
    assert_eq!(origin.metric(COLD_READS), 0);
    let answer = client.get("/vod/a.bin", &[("Range", "bytes=1000-65535")]);
    assert!(answer.body == bytes[1000..65_536]);
    assert_eq!(origin.metric(FILE_BYTES), 3_064_536);
    // Copying a short range costs less.
    assert!(client.get("/vod/a.bin", &[("Range", "bytes=0-4095")]).body == bytes[..4096]);
    assert_eq!(origin.metric(FILE_BYTES), 3_064_536);
    assert_eq!(origin.metric(COLD_READS), 0);
}

/// Files that are not in memory are read on another thread, with the same result.
#[test]
fn cold() {
    let origin = Origin::start();
    let bytes = noise(12, 5_000_001);
    let path = origin.put("a.bin", &bytes);
    let mut client = origin.client();
    let mut reads = 0;
    let mut more_reads = |what: &str| {
        let before = std::mem::replace(&mut reads, origin.metric(COLD_READS));
        assert!(reads > before, "{what}: {before}, then {reads}");
    };
    if !evict(&path) {
        return;
    }
    assert!(client.get("/vod/a.bin", &[]).body == bytes);
    more_reads("all of it");
    assert_eq!(origin.metric(FILE_BYTES), bytes.len() as u64);
    for (range, field) in [
        (0..10, "bytes=0-9"),
        (4_990_000..5_000_001, "bytes=-10001"),
        (100_000..900_000, "bytes=100000-899999"),
    ] {
        // A fast disk may have read a short range before the server looks, but not each time.
        let before = origin.metric(COLD_READS);
        let is_read = (0..20).any(|_| {
            evict(&path);
            let answer = client.get("/vod/a.bin", &[("Range", field)]);
            assert!(answer.body == bytes[range.clone()], "{field}");
            origin.metric(COLD_READS) > before
        });
        assert!(is_read, "{field}");
    }
    more_reads("ranges");
    // Several ranges, some of which are in memory by now.
    evict(&path);
    let field = "bytes=0-99999,1000000-1000009,2000000-2999999";
    let answer = client.get("/vod/a.bin", &[("Range", field)]);
    assert_eq!(answer.status(), 206);
    let has = |part: &[u8]| answer.body.windows(part.len()).any(|window| window == part);
    assert!(has(&bytes[..100_000]) && has(&bytes[1_000_000..1_000_010]));
    assert!(has(&bytes[2_000_000..3_000_000]));
    more_reads("several");
    // A file that several viewers ask for at once.
    evict(&path);
    let together: Vec<_> = (0..20)
        .map(|_| {
            let mut client = origin.client();
            client.send("GET", "/vod/a.bin", &[], b"").unwrap();
            std::thread::spawn(move || client.receive().unwrap().body)
        })
        .collect();
    for viewer in together {
        assert!(viewer.join().unwrap() == bytes);
    }
    more_reads("together");
}

#[test]
fn pipelined() {
    let origin = Origin::start();
    let files: Vec<_> =
        [0, 1, 1000, 4096, 16_384, 16_385, 70_000, 600_000].map(|n| noise(n, n as usize)).into();
    for (i, bytes) in files.iter().enumerate() {
        origin.put(&format!("{i}.bin"), bytes);
    }
    let mut requests = String::new();
    for i in 0..400 {
        let range = if i % 7 == 3 { "Range: bytes=-500\r\n" } else { "" };
        requests += &format!("GET /vod/{}.bin HTTP/1.1\r\nHost: h\r\n{range}\r\n", i % files.len());
    }
    let mut client = origin.client();
    assert_eq!(client.get("/vod/none", &[]).status(), 404);
    let descriptors = origin.descriptors_at_rest();
    let socket = TcpStream::connect(origin.server.http).unwrap();
    let mut writer = socket.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(requests.as_bytes()));
    let mut answers = testkit::http::Client::over(socket, LIMIT).unwrap();
    for i in 0..400 {
        let answer = answers.receive().unwrap();
        let bytes = &files[i % files.len()];
        match (i % 7, bytes.len()) {
            (3, 0) => assert_eq!(answer.status(), 200),
            (3, n) => assert!(answer.body == bytes[n.saturating_sub(500)..], "{i}"),
            _ => assert!(answer.body == *bytes, "{i}"),
        }
    }
    writing.join().unwrap().unwrap();
    drop(answers);
    eventually(LIMIT, "nothing is left open", || origin.descriptors() == descriptors);
}

/// However many files a peer asks for, few are open for it while it does not read.
#[test]
fn open_files_are_few() {
    let origin = Origin::start();
    for i in 0..200 {
        origin.put(&format!("{i}.bin"), &noise(i, 100));
    }
    let mut client = origin.client();
    assert_eq!(client.get("/vod/0.bin", &[]).status(), 200);
    let descriptors = origin.descriptors_at_rest();
    let requests: String = (0..2000)
        .map(|i| format!("GET /vod/{}.bin HTTP/1.1\r\nHost: h\r\n\r\n", i % 200))
        .collect();
    let readers: Vec<_> = (0..10)
        .map(|_| {
            let mut socket = TcpStream::connect(origin.server.http).unwrap();
            socket.write_all(&requests.as_bytes()[..requests.len() / 8]).unwrap();
            socket
        })
        .collect();
    let answered = || origin.metric("headwater_http_requests_total") > 10 * 200;
    eventually(LIMIT, "they are answered", answered);
    // A socket and a file for each reader. Answered files stay open a moment longer.
    let few = descriptors + 2 * readers.len() + 2;
    eventually(LIMIT, "few files are open", || origin.descriptors() <= few);
}

#[test]
fn http_1_0_and_head() {
    let origin = Origin::start();
    let bytes = noise(13, 300_000);
    origin.put("a.mp4", &bytes);
    let raw = |request: &str| {
        let mut socket = TcpStream::connect(origin.server.http).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        let at = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        (String::from_utf8(answer[..at].to_vec()).unwrap(), answer[at..].to_vec())
    };
    let (head, body) = raw("GET /vod/a.mp4 HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Length: 300000\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: video/mp4\r\n"), "{head}");
    assert!(body == bytes);
    let (head, body) = raw("GET /vod/a.mp4 HTTP/1.0\r\nRange: bytes=5-9\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
    assert_eq!(body, bytes[5..10]);
    for version in ["1.0", "1.1"] {
        let (head, body) =
            raw(&format!("HEAD /vod/a.mp4 HTTP/{version}\r\nHost: h\r\nConnection: close\r\n\r\n"));
        assert!(head.contains("\r\nContent-Length: 300000\r\n"), "{head}");
        assert!(head.contains("\r\nETag: \"") && head.contains("\r\nLast-Modified: "), "{head}");
        assert_eq!(body, b"");
    }
}

/// A slow viewer does not delay the other.
#[test]
fn two_viewers_one_slow() {
    let origin = Origin::start();
    let bytes = noise(14, 20 << 20);
    origin.put("a.bin", &bytes);
    assert_eq!(origin.client().get("/vod/none", &[]).status(), 404);
    // No connection is counted that the server would close when it is idle for long.
    let descriptors = origin.descriptors_at_rest();
    let slow = SlowReader::get(origin.server.http, "/vod/a.bin", 10_000).unwrap();
    eventually(LIMIT, "the slow one reads", || slow.received() > 0);
    let mut client = origin.client();
    // The slow one would need more than half an hour.
    let start = Instant::now();
    for _ in 0..5 {
        assert!(client.get("/vod/a.bin", &[]).body == bytes);
    }
    assert!(start.elapsed() < LIMIT);
    assert!(slow.received() < 5 << 20, "{}", slow.received());
    drop(client);
    slow.hurry();
    let size = bytes.len() as u64;
    eventually(LIMIT, "the slow one has all", || slow.received() > size);
    drop(slow);
    // A viewer that has gone keeps nothing open.
    eventually(LIMIT, "it is closed", || origin.descriptors() <= descriptors);
    for _ in 0..5 {
        let gone = SlowReader::get(origin.server.http, "/vod/a.bin", 0).unwrap();
        eventually(LIMIT, "it is open", || origin.descriptors() > descriptors + 1);
        drop(gone);
        eventually(LIMIT, "it is closed", || origin.descriptors() <= descriptors);
    }
}

/// A browser asks for a file on the connection on which it got the page.
#[test]
fn on_a_connection_of_the_control_plane() {
    let origin = Origin::start();
    let bytes = noise(15, 2_000_001);
    let path = origin.put("a.bin", &bytes);
    for cold in [false, true] {
        if cold && !evict(&path) {
            return;
        }
        let mut client = origin.client();
        assert_eq!(client.get("/healthz", &[]).status(), 200);
        assert!(client.get("/vod/a.bin", &[]).body == bytes);
        let answer = client.get("/vod/a.bin", &[("Range", "bytes=-1000001")]);
        assert_eq!(answer.header("Content-Length"), Some("1000001"));
        assert!(answer.body == bytes[1_000_000..]);
        let answer = client.get("/vod/a.bin", &[("Range", "bytes=0-9,100-109")]);
        assert_eq!((answer.status(), answer.header("Content-Range")), (206, None));
        assert!(answer.body.windows(10).any(|window| window == &bytes[100..110]));
        let head = client.ask("HEAD", "/vod/a.bin", &[], b"");
        assert_eq!(head.header("Content-Length"), Some("2000001"));
        let tag = client.get("/vod/a.bin", &[]).header("ETag").unwrap().to_owned();
        let answer = client.get("/vod/a.bin", &[("If-None-Match", &tag)]);
        assert_eq!((answer.status(), answer.body.len()), (304, 0));
    }
    // Each of the two rounds sends the file two and a half times.
    eventually(LIMIT, "all is counted", || {
        origin.metric("headwater_http_sent_bytes_total") > 2 * 5_000_000
    });
}

/// The kernel may hold much of a file that it sends itself, but not of copies. `ss` shows how much.
#[test]
fn copies_on_a_connection_that_had_a_file() {
    let origin = Origin::start();
    origin.put("a.bin", &noise(19, 8 << 20));
    let mut viewer = origin.reluctant();
    let mut client = testkit::http::Client::over(viewer.try_clone().unwrap(), LIMIT).unwrap();
    assert_eq!(client.get("/vod/a.bin", &[("Range", "bytes=0-999999")]).status(), 206);
    assert_eq!(client.get("/healthz", &[]).status(), 200);
    viewer.write_all(b"GET /vod/a.bin HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let ours = viewer.local_addr().unwrap().port();
    // Other connections may have the same port at one of their ends.
    let filter = format!("sport = :{} and dport = :{ours}", viewer.peer_addr().unwrap().port());
    let queued = settled(|| {
        let shown = Program::output(Command::new("ss").args(["-tnH", &filter]), LIMIT);
        let shown = String::from_utf8(shown).unwrap();
        // Columns: state, bytes to be read, bytes to be acknowledged.
        let queued = shown.split_whitespace().nth(2);
        queued.unwrap_or_else(|| panic!("{shown}")).parse().unwrap()
    });
    assert!(queued < 512 << 10, "{queued} bytes");
}

/// A server that drains sends a file to its end.
#[test]
fn draining() {
    let origin = Origin::with("[drain]\ntimeout = \"1m\"\n");
    let bytes = noise(16, 24 << 20);
    origin.put("a.bin", &bytes);
    let mut client = origin.client();
    client.send("GET", "/vod/a.bin", &[], b"").unwrap();
    let (_, mut body) = client.begin().unwrap();
    let mut got = vec![0; 1000];
    body.read_exact(&mut got).unwrap();
    origin.server.terminate();
    origin.server.log_line(LIMIT, |line| line.contains("draining"));
    std::thread::sleep(Duration::from_millis(50));
    body.read_to_end(&mut got).unwrap();
    assert!(got == bytes);
}
