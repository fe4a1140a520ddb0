//! The log in both formats: what a line has, which connection or request it names, and what peers cannot do to it.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use protocol::rtmp::{ClientConfig, PublishKind, Purpose};
use serde_json::Value;
use testkit::http::{Client as Http, Response};
use testkit::rtmp::{self, Client};
use testkit::{NO_ARGUMENTS, Program, Server, demo_clip, push};

const BINARY: &str = env!("CARGO_BIN_EXE_headwater");
const LIMIT: Duration = Duration::from_secs(90);

const JSON: &str = "[log]\nformat = \"json\"\n";

/// All lines of a log of JSON.
#[track_caller]
fn parsed(log: &str) -> Vec<Value> {
    let parse = |line| {
        let object: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for name in ["time", "level", "target", "message"] {
            assert!(object[name].is_string(), "{name}: {line}");
        }
        assert!(object["fields"].is_object(), "{line}");
        let time = object["time"].as_str().unwrap();
        assert!(time.len() >= 20 && time.ends_with('Z') && &time[10..11] == "T", "{line}");
        object
    };
    log.lines().map(parse).collect()
}

/// Those lines whose message begins so.
fn saying<'a>(lines: &'a [Value], message: &str) -> Vec<&'a Value> {
    let says = |line: &&Value| line["message"].as_str().is_some_and(|it| it.starts_with(message));
    lines.iter().filter(says).collect()
}

/// Waits until a session of a stream is over. Returns its id, as the API has it.
#[track_caller]
fn over(server: &Server, stream: &str) -> Value {
    let path = format!("/api/v1/sessions?ended=true&stream={stream}");
    let is_told = |answer: &Response| answer.text().contains("\"id\":");
    let answer = server.get_until(&path, LIMIT, is_told);
    let mut told: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(told["sessions"].as_array().unwrap().len(), 1, "{told}");
    told["sessions"][0]["id"].take()
}

/// ffmpeg publishes the demo clip, and ends.
fn publish(server: &Server, path: &str) -> Program {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-i"]).arg(demo_clip()).args(["-c", "copy", "-f", "flv"]);
    Program::spawn(ffmpeg.arg(server.rtmp_url(path)))
}

#[test]
fn each_line_of_json_names_its_connection() {
    let rules = "[[access.rule]]\nactions = [\"publish\"]\nkey = \"right\"\n";
    let server = Server::configured(BINARY, &format!("{JSON}{rules}"), NO_ARGUMENTS);
    assert!(publish(&server, "live/cam?key=right").wait(LIMIT).status.success());
    assert!(!publish(&server, "live/cam?key=wrong").wait(LIMIT).status.success());
    server.log_line(LIMIT, |line| line.contains("publish refused"));
    server.log_line(LIMIT, |line| line.contains("publisher left"));
    let log = server.whole_log();
    assert!(!log.contains("right") && !log.contains("wrong"), "no key is logged: {log}");
    let lines = parsed(&log);
    assert!(saying(&lines, "ready")[0].get("connection").is_none(), "{log}");

    let [publisher] = saying(&lines, "publisher")[..1] else { panic!("{log}") };
    assert_eq!(
        (&publisher["level"], &publisher["fields"]["stream"]),
        (&"INFO".into(), &"cam".into())
    );
    assert_eq!(over(&server, "live/cam"), publisher["session"], "the API has the same");
    let connection = publisher["connection"].as_u64().unwrap();
    let peer = publisher["fields"]["peer"].as_str().unwrap();
    let own: Vec<_> = lines.iter().filter(|line| line["connection"] == connection).collect();
    for message in ["publisher", "track", "publisher left"] {
        assert!(own.iter().any(|line| line["message"] == message), "{message}: {log}");
    }
    for line in &lines {
        // A line about the peer is a line of its connection.
        let is_about_it = line["fields"].get("peer").is_some_and(|it| it == peer);
        assert!(!is_about_it || line["connection"] == connection, "{line}");
    }
    let [refused] = saying(&lines, "publish refused")[..] else { panic!("{log}") };
    let other = refused["connection"].as_u64().unwrap();
    assert!(other != connection && refused.get("session").is_none(), "{refused}");
    assert_eq!(refused["fields"]["why"], "not allowed with these credentials");
    server.stop(LIMIT);
}

#[test]
fn sessions_of_webrtc_and_push_are_named_too() {
    let server = Server::configured(BINARY, JSON, ["--demo"]);
    let finished = server.publish(demo_clip(), &server.url("/live/cam/whip"), &[]).wait(LIMIT);
    assert!(finished.status.success(), "{finished:?}");
    server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let mut viewer = push::Client::connect(server.http, "/live/demo/push");
    // A client's frames are masked (RFC 6455, 5.1).
    viewer.socket.write_all(&[0x81, 1, b'x']).unwrap();
    for line in ["whip session over", "push viewer closed"] {
        server.log_line(LIMIT, |it| it.contains(line));
    }
    let lines = parsed(&server.whole_log());
    let [began] = saying(&lines, "whip publisher")[..1] else { panic!("{lines:#?}") };
    assert!(began["request_id"].is_string(), "{began}");
    let session = over(&server, "live/cam");
    for message in ["track", "whip session over"] {
        let of_it = |line: &&&Value| line["fields"]["stream"] == "cam";
        let line = saying(&lines, message).into_iter().find(|line| of_it(&line)).unwrap();
        let names = ["session", "request_id"].map(|name| line[name].clone());
        assert_eq!(names, [session.clone(), began["request_id"].clone()], "{line}");
    }
    let [closed] = saying(&lines, "push viewer closed")[..] else { panic!("{lines:#?}") };
    assert!(closed["connection"].is_u64(), "{closed}");
    assert_eq!(over(&server, "live/demo"), closed["session"]);
}

/// Names that end a line, move a terminal's cursor, run backwards or are huge.
fn hostile_names() -> Vec<String> {
    let forged = "x\n2026-01-01T00:00:00.000000Z  INFO headwater::serve: forged";
    let object = "x\",\"level\":\"ERROR\"}\n{\"message\":\"forged\"}";
    [
        forged,
        object,
        "a\r\x1b[2J\x1b]0;title\x07b",
        "\u{202e}evil\u{2028}\u{85}\0",
        &"n".repeat(60_000),
    ]
    .map(str::to_owned)
    .into()
}

fn send_hostile(server: &Server) {
    for name in hostile_names() {
        for app in ["live", "other"] {
            let config = rtmp::config(server.rtmp, "live/x", Purpose::Publish(PublishKind::Live));
            let (app, name) = (app.to_owned(), name.clone());
            let refused = Client::connect(
                server.rtmp,
                ClientConfig { app, name, ..config },
                rtmp::is_started,
            );
            assert!(refused.is_err(), "such a name is refused");
        }
    }
    // Bytes that are no text, and a path that leads elsewhere: both are told of.
    for line in
        [&b"GET /live/\xff\xfe\x1b[31m/../%2f HTTP/1.1"[..], b"GET /vod/..%2f%0a%1b[31m HTTP/1.1"]
    {
        let socket = TcpStream::connect(server.http).unwrap();
        let mut client = Http::over(socket, LIMIT).unwrap();
        client.send_raw(&[line, b"\r\nHost: x\r\n\r\n"].concat()).unwrap();
        assert!(client.receive().unwrap().status() >= 400);
    }
}

#[test]
fn hostile_names_stay_in_their_lines_of_json() {
    let server = Server::with_environment(
        BINARY,
        JSON,
        &[("HEADWATER_LOG", "info,headwater=debug,http=debug")],
    );
    send_hostile(&server);
    let log = server.whole_log();
    let lines = parsed(&log);
    let refused: Vec<_> = saying(&lines, "publish refused");
    assert_eq!(refused.len(), 2 * hostile_names().len(), "{log}");
    let connections: HashSet<_> =
        refused.iter().map(|line| line["connection"].as_u64().unwrap()).collect();
    assert_eq!(connections.len(), refused.len(), "each connection has its own");
    assert!(lines.iter().all(|line| line["message"] != "forged"), "{log}");
    let requests = saying(&lines, "refused: ");
    assert_eq!(requests.len(), 2, "{log}");
    assert!(requests.iter().all(|line| line["connection"].is_u64()), "{log}");
    assert!(log.lines().all(|line| line.len() < 20_000));
}

#[test]
fn hostile_names_stay_in_their_lines_of_text() {
    let server = Server::start(BINARY, ["--log-format", "text"]);
    send_hostile(&server);
    let log = server.whole_log();
    // Each line begins with its time and a level.
    for line in log.lines() {
        let (time, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        let level = rest.trim_start();
        assert!(
            time.ends_with('Z') && ["INFO ", "WARN "].iter().any(|it| level.starts_with(it)),
            "{line:?}"
        );
        assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
        assert!(!level.starts_with("INFO headwater::serve: forged"), "{line:?}");
        assert!(line.len() < 20_000);
    }
    let refused = log.lines().filter(|line| line.contains("publish refused"));
    let connections: HashSet<_> =
        refused.map(|line| line.rsplit_once(" connection=").unwrap().1).collect();
    assert_eq!(connections.len(), 2 * hostile_names().len(), "{log}");
}

#[test]
fn the_command_line_has_the_last_word_on_the_format() {
    let server = Server::configured(BINARY, JSON, ["--log-format", "text"]);
    assert!(server.whole_log().lines().all(|line| !line.starts_with('{')), "{}", server.log());
    let folder = tempfile::tempdir().unwrap();
    let serve = |configuration: &str, options: &[&str]| {
        std::fs::write(folder.path().join("headwater.toml"), configuration).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config", "headwater.toml"]).args(options);
        Program::spawn(command.current_dir(folder.path())).wait(LIMIT)
    };
    let finished = serve("[htttp]\n", &["--log-format", "json"]);
    assert_eq!(finished.status.code(), Some(2));
    let [line] = &parsed(&finished.stderr)[..] else { panic!("{finished:?}") };
    assert!(line["message"].as_str().unwrap().starts_with("headwater.toml:1: htttp: "), "{line}");
    let finished = serve("[log]\nformat = \"xml\"\n", &[]);
    assert!(
        finished.stderr.contains("headwater.toml:2: log.format: unknown variant"),
        "{finished:?}"
    );
}

#[test]
fn requests_of_the_control_plane_have_ids() {
    let environment = [("HEADWATER_LOG", "info,headwater=debug")];
    let server = Server::with_environment(BINARY, JSON, &environment);
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]| {
        server.ask(method, path, headers, body, LIMIT)
    };
    let id = |answer: &Response| answer.header("x-request-id").map(str::to_owned);
    let mut made = HashSet::new();
    for path in
        ["/healthz", "/metrics", "/api/v1/streams", "/", "/none", "/api/v1/streams/live/none"]
    {
        let answer = ask("GET", path, &[], b"");
        let id = id(&answer).unwrap_or_else(|| panic!("{path}: {answer:?}"));
        assert!((10..=64).contains(&id.len()), "{id}");
        assert!(made.insert(id), "{path}: an id of another request");
    }
    // A client's own is kept, unless it could do harm.
    let given = |given: &str| id(&ask("GET", "/healthz", &[("X-Request-Id", given)], b"")).unwrap();
    assert_eq!(given("4bf92f35-77b3.4da6"), "4bf92f35-77b3.4da6");
    for bad in ["a b", "a\"b", "<script>", &"x".repeat(65)] {
        assert_ne!(given(bad), bad);
    }
    // The listener of operators has them, too.
    let other = Server::configured(BINARY, JSON, ["--control", "127.0.0.1:0"]);
    let mut operators = Http::connect(other.control.unwrap(), LIMIT).unwrap();
    assert!(made.insert(id(&operators.get("/metrics", &[])).unwrap()));

    // The media plane has none: no answer of it may cost more.
    assert_eq!(id(&ask("GET", "/live/none/index.m3u8", &[], b"")), None);

    // But a request that the driver refuses has one, and the log names it by that and its connection.
    let mut refused = Http::connect(server.http, LIMIT).unwrap();
    refused.send_raw(b"GET /live/../x HTTP/1.1\r\nHost: h\r\nX-Request-Id: r-1\r\n\r\n").unwrap();
    let refused = refused.receive().unwrap();
    assert_eq!((refused.status(), id(&refused).as_deref()), (404, Some("r-1")));
    assert!(made.insert(id(&ask("GET", "/%zz", &[], b"")).unwrap()));

    // What the log has of a refused publisher is found by the id that the publisher got.
    let sdp = [("Content-Type", "application/sdp"), ("X-Request-Id", "encoder-7")];
    let answer = ask("POST", "/live/cam/whip", &sdp, b"v=0");
    assert_eq!((answer.status(), id(&answer).as_deref()), (400, Some("encoder-7")));
    let lines = parsed(&server.whole_log());
    let [refused] = saying(&lines, "refused: ")[..] else { panic!("{lines:#?}") };
    assert!(refused["request_id"] == "r-1" && refused["connection"].is_u64(), "{refused}");
    let [refused] = saying(&lines, "webrtc offer refused")[..] else { panic!("{lines:#?}") };
    assert_eq!(refused["request_id"], "encoder-7");
    let of_request =
        |line: &&Value| line["request_id"] == "encoder-7" && line["message"] == "answered";
    let answered: Vec<_> = lines.iter().filter(of_request).collect();
    let [answered] = answered[..] else { panic!("{lines:#?}") };
    assert_eq!(answered["fields"]["status"], 400);
    assert_eq!(answered["fields"]["path"], "/live/cam/whip");
}
