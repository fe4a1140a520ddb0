//! The server, requests of WHIP and WHEP, and aiortc.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use testkit::http::{Client, Response};
use testkit::{NO_ARGUMENTS, Program, Server};

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What OBS and browsers offer, in short: H.264 and Opus, in one bundle. Nobody is behind it.
pub(crate) const OFFER: &str = "v=0\r\n\
    o=- 1 2 IN IP4 127.0.0.1\r\n\
    s=-\r\n\
    t=0 0\r\n\
    a=group:BUNDLE 0 1\r\n\
    a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:\
    10:11:12:13:14:15:16:17:18:19:1A:1B:1C:1D:1E:1F\r\n\
    a=ice-ufrag:peer\r\n\
    a=ice-pwd:0123456789012345678901\r\n\
    a=setup:actpass\r\n\
    m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=mid:0\r\n\
    a=sendrecv\r\n\
    a=rtcp-mux\r\n\
    a=rtpmap:111 opus/48000/2\r\n\
    m=video 9 UDP/TLS/RTP/SAVPF 96\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=mid:1\r\n\
    a=sendrecv\r\n\
    a=rtcp-mux\r\n\
    a=rtpmap:96 H264/90000\r\n\
    a=fmtp:96 profile-level-id=42e01f;packetization-mode=1;level-asymmetry-allowed=1\r\n";

#[track_caller]
pub(crate) fn server(configuration: &str) -> Server {
    let binary = env!("CARGO_BIN_EXE_headwater");
    Server::configured(binary, configuration, NO_ARGUMENTS)
}

#[track_caller]
pub(crate) fn ask(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    client.send(method, path, headers, body).unwrap();
    client.receive().unwrap()
}

#[track_caller]
pub(crate) fn post(server: &Server, path: &str, offer: &str) -> Response {
    ask(server, "POST", path, &[("Content-Type", "application/sdp")], offer.as_bytes())
}

/// A peer by aiortc: `publish` or `play`, for some seconds.
#[track_caller]
pub(crate) fn aiortc(what: &str, url: &str, seconds: u32) -> Program {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/aiortc/bin/python");
    assert!(python.is_file(), "no aiortc: scripts/aiortc.sh installs it");
    let script = root.join("crates/headwater/tests/webrtc/peer.py");
    Program::spawn(Command::new(python).arg(script).args([what, url, &seconds.to_string()]))
}
