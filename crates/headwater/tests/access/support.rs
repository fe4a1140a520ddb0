//! The server, publishers and players, and tokens.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testkit::http::Response;
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
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-re", "-stream_loop", "-1", "-i"]).arg(demo_clip());
    Program::spawn(ffmpeg.args(["-c", "copy", "-f", "flv", &server.rtmp_url(path)]))
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(root.join("../../target/aiortc/bin/python"));
    Program::spawn(command.arg(root.join("tests/webrtc/peer.py")).args([how, url]))
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
