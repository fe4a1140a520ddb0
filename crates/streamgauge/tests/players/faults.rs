//! Servers that do not exist, lie, hang or hang up, as seen by the verbs. Each fault is counted by
//! its kind, and the run ends in time with its results.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Program, eventually};

use crate::common::{LIMIT, document, document_of, newest_tick, origin, start};
use crate::support::{assert_verdict, deliveries, start_timed};

/// What a server does with any request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nobody listens.
    Absent,
    /// Takes the connection and says nothing.
    Silent,
    /// Closes the connection without an answer.
    HangUp,
    /// Sends bytes that fit no protocol.
    Garbage,
    /// Announces more bytes than it sends.
    Short,
    /// Redirects to itself.
    Redirect,
    /// Sends a byte from time to time, so that more bytes always come.
    Drip,
    /// Never stops sending.
    Endless,
}

const VIEWERS: u64 = 3;

/// The paths that players ask for.
const PATHS: [&str; 5] = ["/x.m3u8", "/x.mpd", "/x.mp4", "/x.flv", "/x/whep"];

/// Starts a server with this fault, for RTMP and HTTP. Its threads end with the process of the
/// test.
fn serve(fault: Fault) -> std::net::SocketAddr {
    if fault == Fault::Absent {
        return ([127, 0, 0, 1], 1).into();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            thread::spawn(move || {
                // An offer of WebRTC is among the requests.
                let mut asked = [0; 8192];
                let read = socket.read(&mut asked).unwrap_or(0);
                let path = String::from_utf8_lossy(&asked[..read]);
                let path = path.split(' ').nth(1).unwrap_or("/").to_owned();
                let ok = |length: &str| format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n");
                let mut send = |bytes: &[u8]| socket.write_all(bytes).is_ok();
                match fault {
                    Fault::Absent | Fault::HangUp => {}
                    Fault::Silent => while socket.read(&mut asked).is_ok_and(|read| read > 0) {},
                    Fault::Garbage => {
                        send(&[0xA5; 5000]);
                    }
                    Fault::Short => {
                        // The beginning of each container, so that only the length is wrong.
                        let body = match path.rsplit('.').next() {
                            Some("mp4") => "\0\0\x02\0ftypisom",
                            Some("flv") => "FLV\x01",
                            _ => "#EXTM3U\n",
                        };
                        send((ok("Content-Length: 100000") + body).as_bytes());
                    }
                    Fault::Redirect => {
                        let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close";
                        send(format!("{head}\r\nLocation: {path}\r\n\r\n").as_bytes());
                    }
                    Fault::Drip => {
                        // The first byte of an RTMP handshake, or the head of an answer.
                        let begun = match path.as_str() {
                            "/" => send(&[3]),
                            _ => send(ok("Content-Length: 100000").as_bytes()),
                        };
                        while begun && send(b"\n") {
                            thread::sleep(Duration::from_millis(100));
                        }
                    }
                    Fault::Endless => {
                        let head = ok("Transfer-Encoding: chunked");
                        let chunk = [&b"10000\r\n"[..], &[b'#'; 0x10000], b"\r\n"].concat();
                        let begun = path == "/" || send(head.as_bytes());
                        while begun && send(&chunk) {}
                    }
                }
                if fault != Fault::HangUp {
                    // What was sent gets lost if the rest of a request is not read.
                    let _ = socket.shutdown(Shutdown::Write);
                    while socket.read(&mut asked).is_ok_and(|read| read > 0) {}
                }
            });
        }
    });
    address
}

/// Starts viewers of a server with this fault, over each protocol that can have it.
fn run(fault: Fault) -> Vec<(String, Program)> {
    let address = serve(fault);
    let rtmp = (fault != Fault::Redirect && fault != Fault::Short)
        .then(|| format!("rtmp://{address}/live/x"));
    let http = PATHS.iter().map(|path| format!("http://{address}{path}"));
    rtmp.into_iter()
        .chain(http)
        .map(|url| {
            let viewers = VIEWERS.to_string();
            // Only a server that says too little tries their patience, and only one that never ends
            // its answer holds them for as long as they are there.
            let timeout = if matches!(fault, Fault::Silent | Fault::Drip) { "1s" } else { "60s" };
            let duration = if matches!(fault, Fault::Drip | Fault::Endless) { "3s" } else { "60s" };
            let arguments =
                ["--batch-size", &viewers, "--duration", duration, "--timeout", timeout, "--json"];
            let program = start_timed(["viewers", &url].into_iter().chain(arguments));
            (url, program)
        })
        .collect()
}

/// The kinds of errors that viewers ended with, each with its number.
fn errors(document: &Value) -> Vec<(String, u64)> {
    let errors = document["viewers"]["errors"].as_object().unwrap();
    errors.iter().map(|(kind, count)| (kind.clone(), count.as_u64().unwrap())).collect()
}

/// Checks that every viewer over every protocol ends with an error of one of these kinds.
#[track_caller]
fn each_ends_by(fault: Fault, kinds: &[&str]) {
    for (url, program) in run(fault) {
        let (code, document) = document(program);
        // Before the end of their time.
        let elapsed = document["elapsed"].as_f64().unwrap();
        assert!(elapsed < 60.0, "{fault:?} {url}: {elapsed} s");
        assert_verdict(code, &document, false);
        assert_eq!(document["viewers"]["reported"], VIEWERS, "{url}: {document:#}");
        assert_eq!(document["viewers"]["satisfied"], 0, "{url}: {document:#}");
        let found = errors(&document);
        let (kind, count) = found.first().cloned().unwrap_or_default();
        assert_eq!((found.len(), count), (1, VIEWERS), "{fault:?} {url}: {document:#}");
        assert!(kinds.contains(&kind.as_str()), "{fault:?} {url}: {found:?}");
    }
}

#[test]
fn nobody_there() {
    each_ends_by(Fault::Absent, &["refused"]);
}

#[test]
fn nobody_answering() {
    each_ends_by(Fault::Silent, &["timeout"]);
}

#[test]
fn hanging_up() {
    each_ends_by(Fault::HangUp, &["dropped"]);
}

#[test]
fn garbage() {
    each_ends_by(Fault::Garbage, &["garbage"]);
}

#[test]
fn bodies_shorter_than_promised() {
    each_ends_by(Fault::Short, &["length"]);
}

#[test]
fn redirects_for_ever() {
    each_ends_by(Fault::Redirect, &["redirect"]);
}

#[test]
fn answers_that_never_end_hold_nobody_and_take_no_memory() {
    for fault in [Fault::Drip, Fault::Endless] {
        for (url, program) in run(fault) {
            let finished = program.wait(LIMIT);
            // The last line of `time`.
            let peak = finished.stderr.lines().last().and_then(|kib| kib.parse().ok());
            assert!(peak.is_some_and(|kib: u32| kib < 64 << 10), "{fault:?} {url}: {finished:?}");
            let (code, document) = document_of(&finished);
            assert_verdict(code, &document, false);
            assert_eq!(document["viewers"]["reported"], VIEWERS, "{url}: {document:#}");
        }
    }
}

#[test]
fn a_server_that_goes_away_while_they_play() {
    let server = origin();
    let folder = tempfile::tempdir().unwrap();
    let urls = deliveries(&server);
    let running: Vec<_> = urls
        .iter()
        .enumerate()
        .map(|(number, url)| {
            let output = folder.path().join(number.to_string());
            let output = output.to_str().unwrap();
            let arguments =
                ["--duration", "10m", "--timeout", "20s", "--processes", "2", "--json", "-o"];
            let viewers = ["viewers", url, "--batch-size", "4"];
            start(viewers.into_iter().chain(arguments).chain([output]))
        })
        .collect();
    eventually(LIMIT, "all play", || {
        (0..urls.len()).all(|number| {
            let tick = newest_tick(&folder.path().join(number.to_string()));
            tick.is_some_and(|tick| tick["playing"] == 4)
        })
    });
    drop(server);
    let began = Instant::now();
    for (url, program) in urls.iter().zip(running) {
        let (code, document) = document(program);
        // Long before the end of their time.
        assert!(began.elapsed() < LIMIT, "{url}: {:?}", began.elapsed());
        assert_verdict(code, &document, false);
        let viewers = &document["viewers"];
        assert_eq!((&viewers["reported"], &viewers["played"]), (&4.into(), &4.into()), "{url}");
        assert!(viewers["media_bytes"].as_u64().unwrap() > 0, "{url}: {document:#}");
        for (kind, count) in errors(&document) {
            let known = ["dropped", "refused", "timeout", "length"];
            assert!(known.contains(&kind.as_str()) && count <= 4, "{url}: {document:#}");
        }
    }
}
