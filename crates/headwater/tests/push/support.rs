//! A server with the demo stream, and a client by others.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::{Program, Server};

/// The longest wait in these tests, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Starts a server with the demo stream and these lines of configuration. Waits for its media.
#[track_caller]
pub(crate) fn server(tables: &str) -> Server {
    let tables = with_rare_pings(tables);
    let server = Server::configured(env!("CARGO_BIN_EXE_headwater"), &tables, ["--demo"]);
    server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
    server
}

/// These lines of configuration, with so much time between pings that none comes, unless the lines
/// say otherwise. Most tests do not answer pings, and a busy machine lets a test last long.
pub(crate) fn with_rare_pings(tables: &str) -> String {
    if tables.contains("[push]") {
        return tables.to_owned();
    }
    format!("{tables}\n[push]\nping_interval = \"5m\"\n")
}

/// A value of `/metrics`, or 0 if there is none of that name yet.
#[track_caller]
pub(crate) fn metric(server: &Server, name: &str) -> u64 {
    server.metrics().metric(name).unwrap_or(0)
}

/// Python's `websockets` reads the given number of messages of media, or all, and writes each message, after its kind and
/// its length.
const RECEIVE: &str = r#"
import asyncio, math, ssl, struct, sys, websockets
async def receive(url, path, count, certificate=None):
    trust = ssl.create_default_context(cafile=certificate) if certificate else None
    with open(path, "wb") as out:
        async with websockets.connect(url, subprotocols=["headwater.v1"], max_size=None, ssl=trust) as socket:
            assert socket.subprotocol == "headwater.v1", socket.subprotocol
            assert not socket.extensions, socket.extensions
            try:
                while count > 0:
                    message = await asyncio.wait_for(socket.recv(), 60)
                    count -= isinstance(message, bytes)
                    kind, data = (b"t", message.encode()) if isinstance(message, str) else (b"b", message)
                    out.write(kind + struct.pack(">I", len(data)) + data)
            except websockets.ConnectionClosed:
                assert math.isinf(count) and socket.close_code == 1000, socket.close_code
asyncio.run(receive(sys.argv[1], sys.argv[2], float(sys.argv[3]), *sys.argv[4:]))
"#;

/// The events and binary messages that a client got.
pub(crate) struct Got {
    pub(crate) events: Vec<Value>,
    pub(crate) media: Vec<Vec<u8>>,
}

impl Got {
    /// Receives so many messages of media, or all, with Debian's Python, which has the library.
    #[track_caller]
    pub(crate) fn receive(url: &str, count: Option<usize>, certificate: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("raw");
        let count = count.map_or("inf".to_owned(), |count| count.to_string());
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-I", "-c", RECEIVE, url]).arg(&file).arg(count).args(certificate);
        Program::output(&mut python, LIMIT);
        let bytes = std::fs::read(&file).unwrap();
        let mut got = Self { events: Vec::new(), media: Vec::new() };
        let mut rest = &bytes[..];
        while let Some((&kind, after)) = rest.split_first() {
            let (size, after) = after.split_first_chunk::<4>().unwrap();
            let (message, after) = after.split_at(u32::from_be_bytes(*size) as usize);
            match kind {
                b't' => got.events.push(serde_json::from_slice(message).unwrap()),
                _ => got.media.push(message.to_vec()),
            }
            rest = after;
        }
        got
    }
}
