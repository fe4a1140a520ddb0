//! A WebSocket client that does as it is told, right or wrong.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::Server;

/// No wait in these tests is longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// RFC 6455's own key, and what answers it.
pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub(crate) const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A server with the demo stream and these lines of configuration.
#[track_caller]
pub(crate) fn server(tables: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("headwater.toml");
    std::fs::write(&path, tables).unwrap();
    let arguments = [OsStr::new("--demo"), OsStr::new("--config"), path.as_os_str()];
    let server = Server::start(env!("CARGO_BIN_EXE_headwater"), arguments);
    server.get_until("/live/demo/index.m3u8", LIMIT, |answer| answer.status() == 200);
    server
}

/// A frame from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
    /// Bytes of its head.
    pub(crate) head: usize,
}

impl Frame {
    /// A text message.
    #[track_caller]
    pub(crate) fn event(&self) -> Value {
        assert_eq!(self.opcode, 1, "{self:?}");
        serde_json::from_slice(&self.payload).unwrap()
    }

    pub(crate) fn code(&self) -> u16 {
        assert_eq!(self.opcode, 8, "{:?}", String::from_utf8_lossy(&self.payload));
        self.payload.first_chunk().map_or(0, |code| u16::from_be_bytes(*code))
    }
}

/// The request for a WebSocket.
pub(crate) fn request(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\
         Sec-WebSocket-Protocol: headwater.v1\r\n\r\n"
    )
}

pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    input: Vec<u8>,
}

impl Client {
    /// Shakes hands; the head of the answer must be that of a WebSocket.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr, path: &str) -> Self {
        Self::over(TcpStream::connect(address).unwrap(), path)
    }

    #[track_caller]
    pub(crate) fn over(socket: TcpStream, path: &str) -> Self {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        let mut client = Self { socket, input: Vec::new() };
        client.socket.write_all(request(path).as_bytes()).unwrap();
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
        assert!(head.contains(&format!("Sec-WebSocket-Accept: {ACCEPT}\r\n")), "{head}");
        assert!(head.contains("Sec-WebSocket-Protocol: headwater.v1\r\n"), "{head}");
        assert!(!head.to_lowercase().contains("sec-websocket-extensions"), "{head}");
        client
    }

    fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.input.split_off(end + 4);
                let head = std::mem::replace(&mut self.input, rest);
                return String::from_utf8(head).unwrap();
            }
            assert!(self.fill(), "closed before an answer");
        }
    }

    /// Reads more; false at the end.
    #[track_caller]
    fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        match self.socket.read(&mut buffer) {
            Ok(read) => {
                self.input.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next frame; `None` when the server has closed the connection.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            if !self.fill() {
                assert!(self.input.is_empty(), "closed in the middle of a frame");
                return None;
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let [first, second, ..] = self.input[..] else { return None };
        assert_eq!(first & 0xF0, 0x80, "one frame a message, no extension");
        assert!(second < 128, "servers do not mask");
        let (head, size) = match second {
            126 => (4, usize::from(u16::from_be_bytes(*self.input.get(2..4)?.first_chunk()?))),
            127 => (10, u64::from_be_bytes(*self.input.get(2..10)?.first_chunk()?) as usize),
            short => (2, usize::from(short)),
        };
        let payload = self.input.get(head..head + size)?.to_vec();
        self.input.drain(..head + size);
        Some(Frame { opcode: first & 0x0F, payload, head })
    }

    /// The next frame that `wanted` says, within the time limit.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        let deadline = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < deadline, "it does not come");
            let frame = self.next().expect("the connection goes on");
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// Skips to the close frame; its code. The connection must be closed after it.
    #[track_caller]
    pub(crate) fn closed(&mut self) -> u16 {
        let code = self.until(|frame| frame.opcode == 8).code();
        let _ = self.socket.shutdown(Shutdown::Write);
        assert_eq!(self.next(), None, "something after a close");
        code
    }

    /// Sends a frame, masked.
    pub(crate) fn send(&mut self, first: u8, payload: &[u8]) {
        // A server that has closed already has said why.
        let _ = self.socket.write_all(&masked(first, payload));
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.send(0x81, text.as_bytes());
    }
}

/// A client's frame.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        short @ 0..126 => out.push(0x80 | short as u8),
        medium @ 126..65_536 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    let mask = [0x12, 0xF4, 0x56, 0x78];
    out.extend_from_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// Number of the track that a chunk is of (14496-12, 8.8.7).
#[track_caller]
pub(crate) fn track_of(chunk: &[u8]) -> u32 {
    let at = chunk.windows(4).position(|four| four == b"tfhd").expect("a chunk");
    u32::from_be_bytes(*chunk[at + 8..].first_chunk().unwrap())
}

/// Decode time of a chunk's first sample, in its track's timescale (14496-12, 8.8.12).
#[track_caller]
pub(crate) fn time_of(chunk: &[u8]) -> u64 {
    let at = chunk.windows(4).position(|four| four == b"tfdt").expect("a chunk");
    match chunk[at + 4] {
        0 => u32::from_be_bytes(*chunk[at + 8..].first_chunk().unwrap()).into(),
        _ => u64::from_be_bytes(*chunk[at + 8..].first_chunk().unwrap()),
    }
}

/// A value of `/metrics`.
pub(crate) fn metric(server: &Server, name: &str) -> u64 {
    let metrics = server.metrics();
    let line = metrics.text().lines().find(|line| line.starts_with(&format!("{name} ")));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[track_caller]
pub(crate) fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "not what was waited for in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
