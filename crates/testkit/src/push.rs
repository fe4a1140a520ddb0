//! A client of push: WebSocket (RFC 6455) as browsers speak it, and any other bytes that a test
//! sends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::uninterrupted;

/// How long a client waits for the server.
const LIMIT: Duration = Duration::from_secs(60);

/// The key of RFC 6455's own example.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// The server's answer to [`KEY`].
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A frame from the server: a whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// 1 for text, 2 for binary, 8 for close (5.2).
    pub opcode: u8,
    /// Its payload.
    pub payload: Vec<u8>,
    /// Length of its head in bytes.
    pub head: usize,
}

impl Frame {
    /// The document in a text message.
    ///
    /// # Panics
    /// It is another message.
    #[track_caller]
    pub fn event(&self) -> Value {
        assert_eq!(self.opcode, 1, "{self:?}");
        serde_json::from_slice(&self.payload).expect("a text message is JSON")
    }

    /// The code of a close frame; 0 if it has none.
    ///
    /// # Panics
    /// It is another frame.
    #[track_caller]
    pub fn code(&self) -> u16 {
        assert_eq!(self.opcode, 8, "{:?}", String::from_utf8_lossy(&self.payload));
        self.payload.first_chunk().map_or(0, |code| u16::from_be_bytes(*code))
    }
}

/// The head of the request for a WebSocket.
pub fn request(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\
         Sec-WebSocket-Protocol: headwater.v1\r\n\r\n"
    )
}

/// A connection that is a WebSocket.
#[derive(Debug)]
pub struct Client {
    /// The connection. Bytes written here are not framed.
    pub socket: TcpStream,
    input: Vec<u8>,
}

impl Client {
    /// Connects, and asks for a WebSocket.
    ///
    /// # Panics
    /// The head of the answer is not that of a WebSocket.
    #[track_caller]
    pub fn connect(address: SocketAddr, path: &str) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"), path)
    }

    /// Like [`Client::connect`], on a connection that the test has made.
    ///
    /// # Panics
    /// The same as those of [`Client::connect`].
    #[track_caller]
    pub fn over(socket: TcpStream, path: &str) -> Self {
        socket.set_read_timeout(Some(LIMIT)).expect("not zero");
        socket.set_write_timeout(Some(LIMIT)).expect("not zero");
        let mut client = Self { socket, input: Vec::new() };
        client.socket.write_all(request(path).as_bytes()).expect("the server is there");
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
                return String::from_utf8(head).expect("a head is text");
            }
            assert!(self.fill(), "closed before an answer");
        }
    }

    /// Reads more bytes. Returns false at the end.
    #[track_caller]
    fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        match uninterrupted(|| self.socket.read(&mut buffer)) {
            Ok(read) => {
                self.input.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for the next frame. `None` when the server has closed the connection.
    ///
    /// # Panics
    /// It does not come in time, or what comes is not a frame that a server may send.
    #[expect(clippy::should_implement_trait, reason = "a wait for the peer is no iteration")]
    #[track_caller]
    pub fn next(&mut self) -> Option<Frame> {
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

    /// Waits for the next frame that `wanted` accepts.
    ///
    /// # Panics
    /// It does not come in time.
    #[track_caller]
    pub fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        let deadline = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < deadline, "it does not come");
            let frame = self.next().expect("the connection goes on");
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// Skips to the close frame, and returns its code.
    ///
    /// # Panics
    /// The server does not close the connection after it.
    #[track_caller]
    pub fn closed(&mut self) -> u16 {
        let code = self.until(|frame| frame.opcode == 8).code();
        let _ = self.socket.shutdown(Shutdown::Write);
        assert_eq!(self.next(), None, "something after a close");
        code
    }

    /// Sends a frame, masked. `first` is its first byte: FIN and opcode.
    pub fn send(&mut self, first: u8, payload: &[u8]) {
        // A server that has closed already has said why.
        let _ = self.socket.write_all(&masked(first, payload));
    }

    /// Sends a text message.
    pub fn say(&mut self, text: &str) {
        self.send(0x81, text.as_bytes());
    }
}

/// A client's frame, as it is sent. `first` is its first byte: FIN and opcode.
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
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
