//! A plain MP4 as one long response is sent at the speed of playback. Other responses are not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::{NO_ARGUMENTS, Server, uninterrupted};

use crate::support::{LIMIT, media, server_with};

const FILE: &str = "mp4/film.mp4";

/// A response, and how much of it had come at which time.
struct Received {
    status: u16,
    body: Vec<u8>,
    log: Vec<(Duration, usize)>,
}

impl Received {
    fn took(&self) -> Duration {
        self.log.last().map_or(Duration::ZERO, |(at, _)| *at)
    }
}

fn get(server: &Server, path: &str, range: Option<&str>) -> Received {
    let mut socket = TcpStream::connect(server.http).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let range = range.map(|range| format!("Range: {range}\r\n")).unwrap_or_default();
    let began = Instant::now();
    write!(socket, "GET /vod/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{range}\r\n")
        .unwrap();
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    let (mut body, mut log) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let size = uninterrupted(|| reader.read(&mut buffer)).unwrap();
        if size == 0 {
            return Received { status, body, log };
        }
        body.extend_from_slice(&buffer[..size]);
        log.push((began.elapsed(), body.len()));
    }
}

#[test]
fn all_of_an_mp4_comes_as_it_plays() {
    let server = server_with("burst = \"2s\"\nrate = 4.0");
    let file = std::fs::read(media(FILE)).unwrap();
    for (range, from) in [(None, 0), (Some("bytes=0-"), 0), (Some("bytes=1000000-"), 1_000_000)] {
        let received = get(&server, FILE, range);
        assert_eq!(received.status, if range.is_some() { 206 } else { 200 });
        assert!(received.body == file[from..], "{range:?}: other bytes");
        // The rest of 10 s after the first 2, at four times real time, except for the last step.
        let left = 10.0 * (file.len() - from) as f64 / file.len() as f64 - 2.0;
        let least = Duration::from_secs_f64((left - 1.0) / 4.0);
        assert!(received.took() > least, "{range:?}: {:?}", received.took());
        // Half of the bytes contain about half of the 10 s.
        let half = received.log.iter().find(|(_, bytes)| *bytes > file.len() / 2).unwrap();
        let due = Duration::from_secs_f64((4.0 - 2.0) / 4.0);
        assert!(from > 0 || half.0 > due, "{range:?}: half after {:?}", half.0);
    }
}

#[test]
fn ranges_and_what_is_wanted_fast_are_not_held_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::read(media("mp4/minute.mp4")).unwrap();
    std::fs::write(folder.path().join("film.mp4"), &file).unwrap();
    std::fs::write(folder.path().join("film.bin"), &file).unwrap();
    std::fs::write(folder.path().join("cut.mp4"), &file[..file.len() - 1000]).unwrap();
    let configuration = format!("[vod]\nroot = {:?}\nburst = \"2s\"\nrate = 1.0\n", folder.path());
    let binary = env!("CARGO_BIN_EXE_headwater");
    let server = Server::configured(binary, &configuration, NO_ARGUMENTS);
    // Paced, each of these would take 58 s.
    let soon = Duration::from_secs(29);
    // All but a few bytes.
    let part = format!("bytes=0-{}", file.len() - 10);
    for (path, range) in [
        ("film.mp4?pace=fast", None),
        ("film.mp4?pace=fast", Some("bytes=5-")),
        ("film.mp4", Some(part.as_str())),
        ("film.bin", None),
        // Not a readable MP4: the server does not know its duration.
        ("cut.mp4", None),
    ] {
        let received = get(&server, path, range);
        assert!(received.body.len() >= 15_000_000, "{path} {range:?}");
        assert!(received.took() < soon, "{path} {range:?}: {:?}", received.took());
    }
}
