//! Traces, as a collector gets them. The protocol's own definitions decode them.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use testkit::http::Client;
use testkit::{Finished, NO_ARGUMENTS, Program, Server, demo_clip, eventually, push};

const BINARY: &str = env!("CARGO_BIN_EXE_headwater");
const LIMIT: Duration = Duration::from_secs(90);

/// A collector.
struct Collector {
    address: SocketAddr,
    got: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    /// One that answers each request with a status, or takes it and never answers.
    fn start(status: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&got);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let noted = Arc::clone(&noted);
                thread::spawn(move || take(&mut BufReader::new(socket.unwrap()), status, &noted));
            }
        });
        Self { address, got }
    }

    fn table(&self, sample: &str) -> String {
        format!("[traces]\nendpoint = \"http://{}\"\nsample = {sample}\n", self.address)
    }

    /// The spans that came so far. A request that is sent twice has the same ones, and no two others have the same id.
    fn spans(&self) -> Vec<Span> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/otlp/bin/python");
        assert!(python.is_file(), "no opentelemetry-proto: scripts/otlp.sh installs it");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), self.got.lock().unwrap().join("\n")).unwrap();
        let mut decode = Command::new(python);
        decode.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/decode.py")).arg(file.path());
        let said = String::from_utf8(Program::output(&mut decode, LIMIT)).unwrap();
        let said: BTreeSet<_> = said.lines().collect();
        let spans: Vec<_> =
            said.iter().map(|line| Span(serde_json::from_str(line).unwrap())).collect();
        let ids: BTreeSet<_> = spans.iter().map(|span| span.0["id"].to_string()).collect();
        assert_eq!(ids.len(), spans.len(), "{spans:?}");
        spans
    }

    /// Waits for the trace of somebody who does this by this protocol.
    fn until_traced(&self, doing: &str, protocol: &str, path: &str) -> Vec<Span> {
        let mut found = Vec::new();
        eventually(LIMIT, &format!("{doing} {protocol} {path} is traced"), || {
            let spans = self.spans();
            let first = spans.iter().find(|span| {
                span.name() == doing
                    && span.attribute("headwater.protocol") == protocol
                    && span.attribute("headwater.stream") == path
            });
            found = first.map(|first| trace(&spans, first)).unwrap_or_default();
            !found.is_empty()
        });
        found
    }
}

/// Takes the requests of a connection.
fn take(reader: &mut BufReader<TcpStream>, status: Option<u16>, noted: &Mutex<Vec<String>>) {
    loop {
        let (mut length, mut head) = (0, String::new());
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        for line in head.to_lowercase().lines() {
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let Some(status) = status else { continue };
        noted.lock().unwrap().push(String::from_utf8(body).unwrap());
        let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\n{{}}");
        let _ = reader.get_mut().write_all(answer.as_bytes());
    }
}

#[derive(Debug, Clone)]
struct Span(Value);

impl Span {
    fn name(&self) -> &str {
        self.0["name"].as_str().unwrap()
    }

    fn attribute(&self, name: &str) -> &Value {
        &self.0["attributes"][name]
    }

    fn times(&self) -> (u64, u64) {
        (self.0["start"].as_u64().unwrap(), self.0["end"].as_u64().unwrap())
    }
}

/// The trace that begins with a span: that one, and its phases, which must follow each other.
fn trace(spans: &[Span], first: &Span) -> Vec<Span> {
    let phases = spans.iter().filter(|span| span.0["parent"] == first.0["id"]);
    let all: Vec<_> = [first].into_iter().chain(phases).cloned().collect();
    let mut at = first.times().0;
    for phase in &all[1..] {
        assert_eq!((&phase.0["trace"], phase.times().0), (&first.0["trace"], at), "{all:?}");
        assert!(phase.times().1 >= at && phase.times().1 <= first.times().1, "{all:?}");
        at = phase.times().1;
    }
    all
}

fn phases(trace: &[Span]) -> Vec<&str> {
    trace[1..].iter().map(Span::name).collect()
}

/// ffmpeg publishes the demo clip again and again.
fn publish(server: &Server, path: &str) -> Program {
    testkit::publish_looped(demo_clip(), &server.rtmp_url(path))
}

/// aiortc plays, until it has enough of the video.
fn see(url: &str) -> Finished {
    Program::spawn(testkit::aiortc("peer.py").args(["see", url])).wait(LIMIT)
}

const FOR_VIEWERS: [&str; 3] = ["access", "wait for media", "first byte"];

#[test]
fn publishers_and_viewers_of_each_protocol_are_traced() {
    let collector = Collector::start(Some(200));
    let rules = "[[access.rule]]\nactions = [\"publish\"]\nkey = \"right\"\n\
                 [[access.rule]]\nactions = [\"play\"]\n";
    let options = format!("{}{rules}", collector.table("1"));
    let server = Server::configured(BINARY, &options, NO_ARGUMENTS);
    let _publisher = publish(&server, "live/cam?key=right");
    let url = server.url("/live/cam2/whip?key=right");
    let _whip = server.publish(demo_clip(), &url, &["--loop"]);
    assert!(!publish(&server, "live/cam3?key=wrong").wait(LIMIT).status.success());
    // A request that comes before the publisher has a trace, too. Requests to the API have none.
    let state = "/api/v1/streams/live/cam";
    server.get_until(state, LIMIT, |answer| answer.text().contains("\"v0\""));
    server.get_until("/live/cam/index.m3u8", LIMIT, |answer| answer.status() == 200);

    for (protocol, path) in [("rtmp", "live/cam"), ("whip", "live/cam2")] {
        let trace = collector.until_traced("publish", protocol, path);
        let wanted = ["connect", "access", "first media", "ready for viewers"];
        let wanted = if protocol == "whip" { &wanted[1..] } else { &wanted };
        assert_eq!(phases(&trace), wanted, "{trace:?}");
        assert!(trace[0].0["error"].is_null() && trace[0].0["kind"] == 2, "{trace:?}");
        assert_eq!(trace[0].0["service"]["service.name"], "headwater");
        assert!(trace[0].attribute("headwater.session").is_u64(), "{trace:?}");
        let log = if protocol == "whip" { "headwater.request_id" } else { "headwater.connection" };
        assert!(!trace[0].attribute(log).is_null(), "{trace:?}");
    }
    let refused = collector.until_traced("publish", "rtmp", "live/cam3");
    assert_eq!(refused[0].0["error"], "not allowed with these credentials");

    // Its player asks for all of it by one connection.
    let mut ffmpeg = Command::new("ffmpeg");
    let url = server.url("/live/cam/index.m3u8?secret=1");
    ffmpeg.args(["-v", "error", "-i", &url, "-frames:v", "1", "-f", "null", "-"]);
    assert!(Program::spawn(&mut ffmpeg).wait(LIMIT).status.success());
    let mut ffmpeg = Command::new("ffmpeg");
    let url = server.rtmp_url("live/cam?secret=1");
    ffmpeg.args(["-v", "error", "-i", &url, "-frames:v", "1", "-f", "null", "-"]);
    assert!(Program::spawn(&mut ffmpeg).wait(LIMIT).status.success());
    for path in ["live.mp4", "live.flv"] {
        let mut viewer = Client::connect(server.http, LIMIT).unwrap();
        viewer.send("GET", &format!("/live/cam/{path}?secret=1"), &[], b"").unwrap();
        assert_eq!(viewer.begin().unwrap().0.status, 200);
        let protocol = path.trim_start_matches("live.");
        let trace = collector.until_traced("play", protocol, "live/cam");
        assert_eq!(phases(&trace), FOR_VIEWERS, "{trace:?}");
        assert_eq!(trace[0].attribute("url.path"), &format!("/live/cam/{path}"));
    }
    let mut viewer = push::Client::connect(server.http, "/live/cam/push?from=live");
    let _ = viewer.next();
    for protocol in ["hls", "push"] {
        let trace = collector.until_traced("play", protocol, "live/cam");
        assert_eq!(phases(&trace), FOR_VIEWERS, "{trace:?}");
        assert!(trace[0].attribute("headwater.connection").is_u64(), "{trace:?}");
    }
    let trace = collector.until_traced("play", "rtmp", "live/cam");
    assert_eq!(phases(&trace)[1..], FOR_VIEWERS, "{trace:?}");
    for metric in
        ["headwater_trace_spans_dropped_total", "headwater_trace_requests_over_limit_total"]
    {
        assert_eq!(server.metric(metric), 0, "{metric}");
    }
    let said = collector.got.lock().unwrap().join("\n");
    assert!(!said.contains("right") && !said.contains("secret="), "{said}");
    // Ids are of one span each, also those that were sent at the end.
    server.stop(LIMIT);
    collector.spans();
}

#[test]
fn viewers_that_get_nothing_are_traced_as_errors_and_those_of_titles_until_they_get_media() {
    let collector = Collector::start(Some(200));
    let rules = "[[access.rule]]\nactions = [\"play\"]\nkey = \"right\"\n";
    let server =
        Server::configured(BINARY, &format!("{}{rules}", collector.table("1")), NO_ARGUMENTS);
    for (path, key) in [("a", "wrong"), ("b", "right")] {
        let answer = server.get(&format!("/live/{path}/index.m3u8?key={key}"));
        assert!(answer.status() >= 400);
        let trace = collector.until_traced("play", "hls", &format!("live/{path}"));
        assert_eq!(phases(&trace), ["access"], "{trace:?}");
        let error = format!("the answer has the status {}", answer.status());
        assert_eq!(trace[0].0["error"], error);
        assert_eq!(trace[0].attribute("http.response.status_code"), answer.status());
    }
    server.put("broken.mp4", b"no MP4");
    let mut ffmpeg = Command::new("ffmpeg");
    let url = server.rtmp_url("vod/broken.mp4?key=right");
    ffmpeg.args(["-v", "error", "-i", &url, "-f", "null", "-"]);
    assert!(!Program::spawn(&mut ffmpeg).wait(LIMIT).status.success());
    let trace = collector.until_traced("play", "rtmp", "vod/broken.mp4");
    let error = trace[0].0["error"].as_str().unwrap();
    assert!(error.contains("moov"), "{error}");

    server.put("clip.mp4", &std::fs::read(demo_clip()).unwrap());
    let mut viewer = push::Client::connect(server.http, "/vod/clip.mp4/push?key=right");
    let _ = viewer.next();
    let trace = collector.until_traced("play", "title", "vod/clip.mp4");
    assert_eq!(phases(&trace), FOR_VIEWERS, "{trace:?}");
    assert!(trace[0].0["error"].is_null(), "{trace:?}");
}

#[test]
fn a_viewer_by_whep_is_traced_until_its_first_packet() {
    let collector = Collector::start(Some(200));
    let server = Server::configured(BINARY, &collector.table("1"), ["--demo"]);
    server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let seen = see(&server.url("/live/demo/whep"));
    assert!(seen.status.success(), "{}", seen.stderr);
    let trace = collector.until_traced("play", "webrtc", "live/demo");
    assert_eq!(phases(&trace), ["access", "connect", "wait for media", "first byte"], "{trace:?}");
    assert!(trace[0].0["error"].is_null(), "{trace:?}");
    for name in ["headwater.session", "headwater.request_id"] {
        assert!(!trace[0].attribute(name).is_null(), "{trace:?}");
    }
    assert!(!see(&server.url("/live/none/whep")).status.success());
    let trace = collector.until_traced("play", "webrtc", "live/none");
    assert_eq!(phases(&trace), ["access"], "{trace:?}");
    assert_eq!(trace[0].0["error"], "no such stream");
}

#[test]
fn a_client_decides_whether_its_request_is_traced() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (sample, own) in [("0", "01"), ("1", "00")] {
        let collector = Collector::start(Some(200));
        let server = Server::configured(BINARY, &collector.table(sample), ["--demo"]);
        server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
        let ask = |path: &str, parent: &str| {
            let parent = [("traceparent", parent)];
            assert_eq!(server.ask("GET", path, &parent, b"", LIMIT).status(), 200);
        };
        ask("/live/demo/manifest.mpd", &format!("00-{TRACE}-00f067aa0ba902b7-{own}"));
        // This is no trace context, so the configuration decides.
        ask("/live/demo/index.m3u8?last", "00-x");
        let protocol = if sample == "0" { "dash" } else { "hls" };
        collector.until_traced("play", protocol, "live/demo");
        server.stop(LIMIT);
        let spans = collector.spans();
        let is_of_client = |span: &&Span| span.0["trace"] == TRACE;
        let (of_client, others): (Vec<_>, Vec<_>) = spans.iter().partition(is_of_client);
        if sample == "0" {
            assert_eq!(of_client[0].0["parent"], "00f067aa0ba902b7", "{spans:?}");
            assert_eq!(of_client[0].attribute("headwater.protocol"), "dash");
            assert!(others.is_empty(), "{others:?}");
        } else {
            assert!(of_client.is_empty(), "{of_client:?}");
            assert!(others.iter().any(|span| span.attribute("headwater.protocol") == "hls"));
        }
    }
}

#[test]
fn a_collector_that_does_not_collect_disturbs_nobody() {
    // A port that is taken, and at which nobody listens.
    let held = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = held.local_addr().unwrap().as_socket().unwrap();
    let away = Collector { address, got: Arc::default() };
    for (collector, is_counted) in [
        (Collector::start(Some(500)), true),
        (Collector::start(Some(400)), true),
        (away, true),
        (Collector::start(None), false),
    ] {
        let server = Server::configured(BINARY, &collector.table("1"), ["--demo"]);
        let _publisher = publish(&server, "live/cam");
        for path in ["/live/demo/index.m3u8", "/live/cam/index.m3u8"] {
            server.get_until(path, LIMIT, |answer| answer.status() == 200);
        }
        if is_counted {
            eventually(LIMIT, "spans that are lost are counted", || {
                server.metric("headwater_trace_spans_dropped_total") > 0
            });
            server.log_line(LIMIT, |line| line.contains("traces.endpoint takes no traces"));
        }
        server.stop(LIMIT);
    }
}
