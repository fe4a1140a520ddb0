//! An orderly end, and one that is not.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use protocol::rtmp::{Capabilities, ClientEvent, PlayStart, PublishKind, Purpose};
use testkit::http::{Client as Http, get};
use testkit::{Ended, Program, SlowReader};

use crate::support::{BINARY, Client, LIMIT, Origin, Playlist, clip};

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

/// Waits until the server has noticed its signal: from then on it says that it is not ready, on
/// connections that are new as well.
#[track_caller]
fn no_longer_ready(http: SocketAddr) {
    let begun = Instant::now();
    while get(http, "/readyz").status() == 200 {
        assert!(begun.elapsed() < LIMIT, "the signal is not noticed");
    }
    for _ in 0..3 {
        let ready = get(http, "/readyz");
        assert_eq!((ready.status(), ready.text()), (503, "draining\n"));
    }
}

/// How the server takes its leave.
fn farewell(client: &mut Client) -> Vec<ClientEvent> {
    let mut events = client.rest();
    events
        .retain(|event| matches!(event, ClientEvent::Reconnect { .. } | ClientEvent::Ended { .. }));
    events
}

#[test]
fn rtmp_peers_are_told_to_reconnect_and_then_end_in_order() {
    let origin = Origin::start("[drain]\ntimeout = \"4s\"\n");
    let started = |event: &ClientEvent| matches!(event, ClientEvent::Started);
    let connect = |name: &str, purpose, capabilities: &Capabilities| {
        let client = Client::connect_as(origin.rtmp, name, purpose, capabilities.clone(), started);
        client.expect("it is let in")
    };
    let publish = Purpose::Publish(PublishKind::Live);
    let (plain, able) = (Capabilities::default(), Capabilities::forward_all());
    let mut old = connect("live/old", publish, &plain);
    let mut new = connect("live/new", publish, &able);
    for message in clip() {
        old.send(message);
        new.send(message);
    }
    origin.playlist("live/old", "v0");
    // All there can be before the publisher goes on: of the last two seconds, nobody knows that they are over.
    let all = |text: &str| text.matches("#EXTINF").count() == 7;
    let path = "/live/new/v0/media.m3u8";
    let before = origin.get_until(path, LIMIT, |r| r.status() == 200 && all(r.text()));
    let before = Playlist(before.text().to_owned());
    let mut player = connect("live/old", Purpose::Play(PlayStart::Live), &plain);
    // A viewer whose answer comes with what the publisher has yet to send.
    let mut viewer = Http::connect(origin.http, LIMIT).unwrap();
    let path = format!("/live/new/v0/media.m3u8?_HLS_msn={}", before.open_msn());
    let http = origin.http;
    let requests = || {
        let metrics = get(http, "/metrics");
        let line = |line: &str| line.strip_prefix("headwater_http_requests_total ")?.parse().ok();
        metrics.text().lines().find_map(line).unwrap_or(0)
    };
    let others: u64 = requests();
    viewer.send("GET", &path, &[], b"").unwrap();
    while requests() == others {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut server, _folder) = origin.into_server();
    server.terminate();
    no_longer_ready(http);

    // They end as what they began ends, and are not cut off.
    let ended = |code: &str, why: &str| {
        let (code, description) = (code.to_owned(), why.to_owned());
        ClientEvent::Ended { code, description }
    };
    let unpublished = ended("NetStream.Unpublish.Success", "The server is shutting down.");
    assert_eq!(farewell(&mut old), std::slice::from_ref(&unpublished));
    let gone = ended("NetStream.Play.UnpublishNotify", "The stream is not published.");
    assert_eq!(farewell(&mut player), [gone]);
    drop((old, player));
    // Who can connect elsewhere is asked to, and is taken from as before while it does.
    let told = |event: &ClientEvent| matches!(event, ClientEvent::Reconnect { .. });
    new.until(told).unwrap();
    for message in clip() {
        let time = message.timestamp() + 20_000;
        new.tag(message.kind(), time, message.payload());
    }
    let answer = viewer.receive().unwrap();
    assert_eq!((answer.status(), answer.header("Connection")), (200, Some("close")));
    // Until its time is over: half of what the server has.
    assert_eq!(farewell(&mut new), [unpublished]);
    drop(new);
    let begun = Instant::now();
    while server.is_running() {
        assert!(begun.elapsed() < LIMIT, "still draining");
        std::thread::sleep(Duration::from_millis(5));
    }
    let finished = server.stop(LIMIT);
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    assert!(!finished.stderr.contains("draining took too long"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("stopped at once"), "{}", finished.stderr);
}

#[test]
fn sigterm_drains() {
    let origin = with_file();
    let publisher = origin.publish("live/on", &["--loop"]);
    origin.playlist("live/on", "v0");
    let mut endless = Http::connect(origin.http, LIMIT).unwrap();
    endless.send("GET", "/live/on/live.mp4", &[], b"").unwrap();
    let (head, mut body) = endless.begin().unwrap();
    assert_eq!(head.status, 200);
    body.read_exact(&mut [0; 1000]).unwrap();
    let mut idle = Http::connect(origin.http, LIMIT).unwrap();
    idle.send("GET", "/healthz", &[], b"").unwrap();
    assert_eq!(idle.receive().unwrap().status(), 200);
    let download = SlowReader::get(origin.http, "/vod/file.bin", 1000).unwrap();
    begun(&download);

    let (http, rtmp) = (origin.http, origin.rtmp);
    let (mut server, _folder) = origin.into_server();
    let start = Instant::now();
    server.terminate();
    no_longer_ready(http);
    // No new viewers, while the download still goes on; and no new publishers.
    for path in ["/live/on/index.m3u8", "/vod/file.bin"] {
        let refused = get(http, path);
        assert_eq!(refused.status(), 503, "{refused:?}");
        assert!(refused.header("Retry-After").is_some(), "{refused:?}");
        assert_eq!(refused.header("Connection"), Some("close"), "{refused:?}");
    }
    assert_eq!(get(http, "/healthz").status(), 200);
    while TcpStream::connect(rtmp).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(5), "{rtmp} still accepts");
        std::thread::sleep(Duration::from_millis(5));
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
    no_longer_ready(http);
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
