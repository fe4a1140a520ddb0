//! Orderly and disorderly ends of the server.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use protocol::rtmp::{Capabilities, ClientConfig, ClientEvent, PlayStart, PublishKind, Purpose};
use testkit::http::{Client as Http, current_metrics, get};
use testkit::{Ended, Finished, Program, Server, SlowReader, eventually};

use testkit::rtmp::{self, Client};

use crate::support::{BINARY, LIMIT, Origin, Playlist, clip};

/// Bytes of the file that a client downloads while the server is told to stop. The kernel cannot
/// take so many at once.
const FILE: usize = 24 << 20;

/// Starts a server with that file. If nothing else ended its downloads, it would drain for minutes.
fn with_file() -> Origin {
    let origin = Origin::start("[drain]\ntimeout = \"5m\"\n");
    let root = origin.folder().join("media");
    std::fs::write(root.join("file.bin"), vec![7; FILE]).expect("it is ours");
    origin
}

/// Waits until the reader has the beginning of its answer.
fn begun(reader: &SlowReader) {
    eventually(LIMIT, "something is sent", || reader.received() > 0);
}

/// Waits until the server has noticed its signal. From then on it reports that it is not ready, on
/// new connections as well.
#[track_caller]
fn no_longer_ready(http: SocketAddr) {
    eventually(LIMIT, "the signal is noticed", || get(http, "/readyz").status() != 200);
    for _ in 0..3 {
        let ready = get(http, "/readyz");
        assert_eq!((ready.status(), ready.text()), (503, "draining\n"));
    }
}

/// Sends a request whose answer has to wait, and waits until the server has read it.
fn hold(http: SocketAddr, viewer: &mut Http, path: &str) {
    let requests = || {
        let metrics = current_metrics(|| get(http, "/metrics"));
        metrics.metric("headwater_http_requests_total").expect("it is told")
    };
    let others = requests();
    viewer.send("GET", path, &[], b"").expect("the server is there");
    eventually(LIMIT, "the request is read", || requests() > others);
}

/// Waits until a server has drained, which must be no failure.
#[track_caller]
fn drained(mut server: Server) -> Finished {
    eventually(LIMIT, "the server has drained", || !server.is_running());
    let finished = server.stop(LIMIT);
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    finished
}

/// The last messages of the server.
fn farewell(client: &mut Client) -> Vec<ClientEvent> {
    let mut events = client.rest();
    events
        .retain(|event| matches!(event, ClientEvent::Reconnect { .. } | ClientEvent::Ended { .. }));
    events
}

#[test]
fn rtmp_peers_are_told_to_reconnect_and_then_end_in_order() {
    // A publisher may go on for half of this time. All else here takes a small part of that.
    let origin = Origin::start("[drain]\ntimeout = \"30s\"\n");
    let connect = |name: &str, purpose, capabilities: &Capabilities| {
        let config = rtmp::config(origin.rtmp, name, purpose);
        let config = ClientConfig { capabilities: capabilities.clone(), ..config };
        Client::connect(origin.rtmp, config, rtmp::is_started).expect("it is let in")
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
    // All segments there can be before the publisher goes on: the end of the last two seconds is
    // not known yet.
    let all = |text: &str| text.matches("#EXTINF").count() == 7;
    let path = "/live/new/v0/media.m3u8";
    let before = origin.get_until(path, LIMIT, |r| r.status() == 200 && all(r.text()));
    let before = Playlist(before.text().to_owned());
    let mut player = connect("live/old", Purpose::Play(PlayStart::Live), &plain);
    // A viewer whose answer needs media that the publisher has still to send.
    let mut viewer = Http::connect(origin.http, LIMIT).unwrap();
    let path = format!("/live/new/v0/media.m3u8?_HLS_msn={}", before.open_msn());
    let http = origin.http;
    hold(http, &mut viewer, &path);
    let server = origin.into_server();
    server.terminate();
    no_longer_ready(http);

    // They get the usual end of what they began, and are not cut off.
    let ended = |code: &str, why: &str| {
        let (code, description) = (code.to_owned(), why.to_owned());
        ClientEvent::Ended { code, description }
    };
    let unpublished = ended("NetStream.Unpublish.Success", "The server is shutting down.");
    assert_eq!(farewell(&mut old), std::slice::from_ref(&unpublished));
    let gone = ended("NetStream.Play.UnpublishNotify", "The stream is not published.");
    assert_eq!(farewell(&mut player), [gone]);
    drop((old, player));
    // A publisher that can connect elsewhere is asked to. Meanwhile the server still takes its
    // media.
    let told = |event: &ClientEvent| matches!(event, ClientEvent::Reconnect { .. });
    new.until(told).unwrap();
    for message in clip() {
        let time = message.timestamp() + 20_000;
        new.tag(message.kind(), time, message.payload());
    }
    let answer = viewer.receive().unwrap();
    assert_eq!((answer.status(), answer.header("Connection")), (200, Some("close")));
    // It may go on for half of the time that the server has.
    assert_eq!(farewell(&mut new), [unpublished]);
    drop(new);
    let finished = drained(server);
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
    assert_eq!(idle.get("/healthz", &[]).status(), 200);
    let download = SlowReader::get(origin.http, "/vod/file.bin", 1000).unwrap();
    begun(&download);

    let (http, rtmp) = (origin.http, origin.rtmp);
    let server = origin.into_server();
    server.terminate();
    no_longer_ready(http);
    // New viewers and publishers are refused while the download still goes on.
    for path in ["/live/on/index.m3u8", "/vod/file.bin"] {
        let refused = get(http, path);
        assert_eq!(refused.status(), 503, "{refused:?}");
        assert!(refused.header("Retry-After").is_some(), "{refused:?}");
        assert_eq!(refused.header("Connection"), Some("close"), "{refused:?}");
    }
    assert_eq!(get(http, "/healthz").status(), 200);
    eventually(LIMIT, "RTMP is accepted no more", || TcpStream::connect(rtmp).is_err());
    assert!(!download.is_ended());
    // An endless response ends where its payload may end.
    let mut rest = Vec::new();
    body.read_to_end(&mut rest).expect("the mark that ends a chunked payload");
    assert!(idle.is_closed_within(LIMIT));
    download.hurry();
    let (ended, received) = download.finish(LIMIT);
    assert_eq!(ended, Ended::Closed);
    assert!(received > FILE as u64, "{received} of {FILE} bytes and a head");
    drained(server);
    drop(publisher);
}

/// A playlist, a part and the segment being made, asked for while nobody publishes: they end at
/// once, and not when the server's time is over.
#[test]
fn sigterm_keeps_nobody_waiting_for_a_publisher_that_left() {
    let origin = Origin::start("[drain]\ntimeout = \"5m\"\n[live]\nreconnect = \"10m\"\n");
    let mut publisher = Client::publish(origin.rtmp, "live/left");
    clip().iter().for_each(|message| publisher.send(message));
    drop(publisher);
    let is_offline = |answer: &testkit::http::Response| answer.text().contains("\"offline\"");
    origin.get_until("/api/v1/streams", LIMIT, is_offline);
    let open = origin.playlist("live/left", "v0").open_msn();
    let asks = [format!("media.m3u8?_HLS_msn={open}"), format!("{open}.m4s")];
    let held = asks.map(|path| {
        let mut viewer = Http::connect(origin.http, LIMIT).unwrap();
        hold(origin.http, &mut viewer, &format!("/live/left/v0/{path}"));
        viewer
    });
    let server = origin.into_server();
    server.terminate();
    let [mut playlist, mut segment] = held;
    let refused = playlist.receive().unwrap();
    assert_eq!((refused.status(), refused.header("Retry-After")), (503, Some("1")), "{refused:?}");
    // The segment being made is not ended as if it was whole.
    let (_, mut body) = segment.begin().unwrap();
    assert!(body.read_to_end(&mut Vec::new()).is_err());
    drop((playlist, segment));
    drained(server);
}

/// Without TLS there is nothing to read again; `tls/certificates.rs` has the other case.
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
    let server = origin.into_server();
    // The server ends in order when asked to, not by SIGHUP.
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
    let mut server = origin.into_server();
    server.terminate();
    server.log_line(LIMIT, |line| line.contains("draining"));
    no_longer_ready(http);
    assert!(server.is_running(), "the download is not over");
    let finished = server.stop(LIMIT);
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
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
            .args(["--webrtc", "127.0.0.1:0"])
            .current_dir(folder.path()),
    );
    let ready = program.stdout_line(LIMIT, |_| true);
    let addresses = ready.strip_prefix("ready http=127.0.0.1:").expect("ready first");
    let (http, rtmp) = addresses.split_once(" rtmp=127.0.0.1:").expect("both addresses");
    let (rtmp, webrtc) = rtmp.split_once(" webrtc=127.0.0.1:").expect("three addresses");
    assert_ne!(webrtc.parse::<u16>().unwrap(), 0);
    for port in [http, rtmp] {
        // The ports are bound before the line is printed.
        TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    }
    // This comes at once: the process must already handle the signal.
    let finished = program.stop(LIMIT);
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    assert_eq!(String::from_utf8_lossy(&finished.stdout), format!("{ready}\n"));
}
