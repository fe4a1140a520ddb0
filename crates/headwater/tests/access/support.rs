//! The server, publishers and players, and tokens.

use std::io::Read;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testkit::http::{Client, Response};
use testkit::{Finished, NO_ARGUMENTS, Program, Server, demo_clip};

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_headwater");

/// The key of tokens and signed paths.
pub(crate) const SECRET: &str = "a secret that has at least 32 bytes";

/// A server with this configuration, in which `KEY` stands for a file with the [`SECRET`].
pub(crate) fn server(configuration: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, SECRET).unwrap();
    let configuration = configuration.replace("KEY", key.to_str().unwrap());
    (folder, Server::configured(BINARY, &configuration, NO_ARGUMENTS))
}

/// The same with a listener for operators.
pub(crate) fn operated(configuration: &str) -> Server {
    Server::configured(BINARY, configuration, ["--control", "127.0.0.1:0"])
}

/// ffmpeg publishes the demo clip over and over, to a path with a query.
pub(crate) fn publish(server: &Server, path: &str) -> Program {
    publish_to(&server.rtmp_url(path))
}

/// ffmpeg publishes the demo clip over and over, to a URL.
pub(crate) fn publish_to(url: &str) -> Program {
    testkit::publish_looped(demo_clip(), url)
}

/// ffmpeg plays two seconds of a URL.
pub(crate) fn play(url: &str, options: &[&str]) -> Finished {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error"]).args(options).args(["-t", "2", "-i", url, "-c", "copy"]);
    Program::spawn(ffmpeg.args(["-f", "null", "-"])).wait(LIMIT)
}

/// Waits until a stream can be played with these credentials.
#[track_caller]
pub(crate) fn wait_for(server: &Server, path: &str) {
    server.get_until(path, LIMIT, |answer| {
        answer.status() == 200 && answer.text().contains("#EXT-X-STREAM-INF")
    });
}

#[track_caller]
pub(crate) fn ask(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    server.ask(method, path, headers, body, LIMIT)
}

/// The status of a GET.
#[track_caller]
pub(crate) fn status(server: &Server, path: &str, headers: &[(&str, &str)]) -> u16 {
    ask(server, "GET", path, headers, b"").status()
}

/// What a WebSocket's request has.
pub(crate) const UPGRADE: [(&str, &str); 5] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Protocol", "headwater.v1"),
];

/// aiortc publishes or plays, as `tests/webrtc/peer.py` says.
pub(crate) fn aiortc(how: &str, url: &str) -> Program {
    Program::spawn(testkit::aiortc("peer.py").args([how, url]))
}

pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A token of HS256, whose signature openssl makes.
pub(crate) fn token(claims: &str) -> String {
    let base64 = |data: &[u8]| {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(data)
    };
    let text =
        format!("{}.{}", base64(br#"{"alg":"HS256","typ":"JWT"}"#), base64(claims.as_bytes()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-hmac", SECRET, "-binary"]).arg(file.path());
    let signature = Program::output(&mut openssl, LIMIT);
    format!("{text}.{}", base64(&signature))
}

/// Asks as an operator.
#[track_caller]
pub(crate) fn operate(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Response {
    let mut client = Client::connect(server.operators(), LIMIT).unwrap();
    client.ask(method, path, headers, b"")
}

/// The sessions that a query selects.
#[track_caller]
pub(crate) fn sessions(server: &Server, query: &str) -> Vec<Value> {
    let answer = operate(server, "GET", &format!("/api/v1/sessions{query}"), &[]);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let mut told: Value = serde_json::from_slice(&answer.body).unwrap();
    serde_json::from_value(told["sessions"].take()).unwrap()
}

/// Viewers who read nothing and answer no pings stay for so long. A busy machine takes a while until a test ends them.
pub(crate) const SILENT_VIEWERS: &str = "[push]\nping_interval = \"5m\"\n[http]\nsend_timeout = \"5m\"\n\
     [live]\nviewer_patience = \"5m\"\n";

/// Two who publish, by RTMP and WHIP, and four who play `live/cam` and `live/camrtc`, by RTMP, WHEP, push and FLV.
pub(crate) struct Crowd {
    /// Those that leave by themselves when they are cut off.
    leave: [Program; 2],
    /// Those that stay until they are dropped.
    _webrtc: [Program; 2],
    push: Client,
    flv: Client,
}

impl Crowd {
    pub(crate) const SESSIONS: usize = 6;

    /// They begin, if these queries let them in. The publishers' streams have names that begin with `name`.
    pub(crate) fn begin(server: &Server, name: &str, publishes: &str, plays: &str) -> Self {
        let mut push = Client::connect(server.http, LIMIT).unwrap();
        push.send("GET", &format!("/live/cam/push?{plays}"), &UPGRADE, b"").unwrap();
        let mut flv = Client::connect(server.http, LIMIT).unwrap();
        flv.send("GET", &format!("/live/cam/live.flv?{plays}"), &[], b"").unwrap();
        let rtmp = publish(server, &format!("live/{name}-b?{publishes}"));
        let whip = aiortc("publish", &server.url(&format!("/live/{name}-c/whip?{publishes}")));
        let whep = aiortc("hold", &server.url(&format!("/live/camrtc/whep?{plays}")));
        let mut player = Command::new("ffmpeg");
        let url = server.rtmp_url(&format!("live/cam?{plays}"));
        player.args(["-v", "error", "-i", &url, "-c", "copy", "-f", "null", "-"]);
        Self { leave: [rtmp, Program::spawn(&mut player)], _webrtc: [whip, whep], push, flv }
    }

    /// Waits until the server has ended all of them for this reason. Calls `at_end` when one has ended.
    #[track_caller]
    pub(crate) fn wait_for_end(mut self, server: &Server, reason: &str, at_end: impl Fn()) {
        for program in self.leave {
            program.wait(LIMIT);
            at_end();
        }
        let (head, mut body) = self.flv.begin().unwrap();
        let mut all = Vec::new();
        assert_eq!(head.status, 200);
        assert!(body.read_to_end(&mut all).is_err(), "the answer is broken off");
        let (head, _) = self.push.begin().unwrap();
        assert_eq!(head.status, 101);
        let (mut socket, mut all) = self.push.into_parts();
        let _ = socket.read_to_end(&mut all);
        let is_told = all.windows(reason.len()).any(|part| part == reason.as_bytes());
        assert!(is_told, "the viewer is told why");
        for ended in ["whip session over", "rtmp connection ended", "push viewer closed"] {
            let line = server.log_line(LIMIT, |line| line.contains(ended) && line.contains(reason));
            assert!(line.contains("cam"), "{line}");
        }
        at_end();
    }
}
