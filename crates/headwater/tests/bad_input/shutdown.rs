//! An orderly end, and one that is not.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::http::Client;
use testkit::{Ended, Program, SlowReader};

use crate::support::{BINARY, LIMIT, Origin};

/// Bytes of the file that is being downloaded while the server is told to stop: more than the
/// kernel takes off the server's hands.
const FILE: usize = 24 << 20;

fn with_file() -> Origin {
    let origin = Origin::start("");
    let root = origin.folder().join("media");
    std::fs::create_dir(&root).expect("it is ours");
    std::fs::write(root.join("file.bin"), vec![7; FILE]).expect("it is ours");
    origin
}

/// Waits until the reader has the beginning of its answer.
fn begun(reader: &SlowReader) {
    let deadline = Instant::now() + LIMIT;
    while reader.received() == 0 {
        assert!(Instant::now() < deadline, "nothing was sent");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn sigterm_drains() {
    let origin = with_file();
    let publisher = origin.publish("live/on", &["--loop"]);
    origin.playlist("live/on", "v0");
    let mut endless = Client::connect(origin.http, LIMIT).unwrap();
    endless.send("GET", "/live/on/live.mp4", &[], b"").unwrap();
    let (head, mut body) = endless.begin().unwrap();
    assert_eq!(head.status, 200);
    body.read_exact(&mut [0; 1000]).unwrap();
    let mut idle = Client::connect(origin.http, LIMIT).unwrap();
    idle.send("GET", "/healthz", &[], b"").unwrap();
    assert_eq!(idle.receive().unwrap().status(), 200);
    let download = SlowReader::get(origin.http, "/vod/file.bin", 1000).unwrap();
    begun(&download);

    let (http, rtmp) = (origin.http, origin.rtmp);
    let (mut server, _folder) = origin.into_server();
    let start = Instant::now();
    server.terminate();
    // New connections are refused soon, while the download still goes on.
    for address in [http, rtmp] {
        while TcpStream::connect(address).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(5), "{address} still accepts");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(!download.is_ended());
    // An endless response ends where its payload may.
    let mut rest = Vec::new();
    body.read_to_end(&mut rest).expect("the mark that ends a chunked payload");
    assert!(idle.is_closed_within(LIMIT));
    download.hurry();
    let (ended, received) = download.finish(LIMIT);
    assert_eq!(ended, Ended::Closed);
    assert!(received > FILE as u64, "{received} of {FILE} bytes and a head");
    while server.is_running() {
        assert!(start.elapsed() < Duration::from_secs(10), "still draining");
        std::thread::sleep(Duration::from_millis(5));
    }
    let finished = server.stop(LIMIT);
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    drop(publisher);
}

/// Without TLS there is nothing to be read again; `tls/certificates.rs` has the other case.
#[test]
fn sighup_ends_nothing() {
    use rustix::process::{Pid, Signal, kill_process};

    let origin = Origin::start("");
    let publisher = origin.publish("live/on", &["--loop"]);
    origin.playlist("live/on", "v0");
    let pid = Pid::from_raw(origin.id().cast_signed()).unwrap();
    for _ in 0..3 {
        kill_process(pid, Signal::HUP).unwrap();
        assert_eq!(origin.get("/healthz").status(), 200);
    }
    origin.playlist("live/on", "v0");
    let (server, _folder) = origin.into_server();
    // Not by the signal: in order, when asked to.
    let finished = server.stop(LIMIT);
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    drop(publisher);
}

#[test]
fn second_signal_stops_at_once() {
    let origin = with_file();
    let download = SlowReader::get(origin.http, "/vod/file.bin", 1000).unwrap();
    begun(&download);
    let http = origin.http;
    let (mut server, _folder) = origin.into_server();
    server.terminate();
    server.log_line(LIMIT, |line| line.contains("draining"));
    while TcpStream::connect(http).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(server.is_running(), "the download is not over");
    let start = Instant::now();
    let finished = server.stop(Duration::from_secs(3));
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    assert!(start.elapsed() < Duration::from_secs(3));
    download.hurry();
    let (ended, received) = download.finish(LIMIT);
    assert!(ended != Ended::Open && received < FILE as u64, "{ended:?} after {received}");
}

#[test]
fn ready_is_all_there_is_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::spawn(
        Command::new(BINARY)
            .args(["serve", "--http", "127.0.0.1:0", "--rtmp", "127.0.0.1:0", "--demo"])
            .current_dir(folder.path()),
    );
    let ready = program.stdout_line(LIMIT, |_| true);
    let addresses = ready.strip_prefix("ready http=127.0.0.1:").expect("ready first");
    let (http, rtmp) = addresses.split_once(" rtmp=127.0.0.1:").expect("both addresses");
    for port in [http, rtmp] {
        // Bound before it was said.
        TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    }
    // At once: the signal must not find a process that does not handle it yet.
    let finished = program.stop(LIMIT);
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    assert_eq!(String::from_utf8_lossy(&finished.stdout), format!("{ready}\n"));
}
