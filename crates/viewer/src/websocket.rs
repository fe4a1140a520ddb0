//! A WebSocket client (RFC 6455), without I/O: the handshake, a reader of frames, and the few
//! frames that a player sends. Payloads are passed on from the buffer that they were read into.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::url::Url;
use crate::{Error, Kind};

/// The constant in `Sec-WebSocket-Accept` (1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Longest head of the server's answer, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Longest payload of a control frame (5.5).
const MAX_CONTROL: u64 = 125;

/// The handshake: writes the request and checks the answer.
#[derive(Debug)]
pub struct Handshake {
    key: String,
    protocol: &'static str,
    /// An answer that has not come whole yet.
    partial: Vec<u8>,
}

impl Handshake {
    /// Makes a handshake that offers a subprotocol. `nonce` is the key's 16 bytes, different ones
    /// each time.
    pub fn new(nonce: [u8; 16], protocol: &'static str) -> Self {
        Self { key: STANDARD.encode(nonce), protocol, partial: Vec::new() }
    }

    /// The request (4.1).
    pub fn request(&self, url: &Url) -> String {
        format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: streamgauge\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n\
             Sec-WebSocket-Protocol: {}\r\n\r\n",
            url.target(),
            url.authority(),
            self.key,
            self.protocol
        )
    }

    /// Takes bytes of the answer. Returns how many of them belong to the answer, and whether the
    /// server accepted the subprotocol; `None` if the answer has not come whole.
    ///
    /// # Errors
    /// The server refuses ([`Kind::Status`]), or its answer is not a valid one.
    pub fn read(&mut self, input: &[u8]) -> Result<Option<(usize, bool)>, Error> {
        let known = self.partial.len();
        self.partial.extend_from_slice(input);
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut fields);
        let size = match head.parse(&self.partial) {
            Ok(httparse::Status::Complete(size)) => size,
            Ok(httparse::Status::Partial) if self.partial.len() > MAX_HEAD => {
                return Err(garbage("head of an answer too long"));
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(garbage(format!("not an HTTP answer: {error}"))),
        };
        match head.code {
            Some(101) => {}
            status => {
                let status = status.unwrap_or_default();
                return Err(Error::new(Kind::Status, format!("status {status}")));
            }
        }
        let value = |name: &str| {
            let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            field.and_then(|field| std::str::from_utf8(field.value).ok()).map(str::trim)
        };
        let is = |name: &str, wanted: &str| {
            let words = value(name).unwrap_or_default().split(',');
            words.into_iter().any(|word| word.trim().eq_ignore_ascii_case(wanted))
        };
        if !is("upgrade", "websocket") || !is("connection", "upgrade") {
            return Err(garbage("status 101 to something else than WebSocket"));
        }
        if value("sec-websocket-accept") != Some(&accept(&self.key)) {
            return Err(garbage("Sec-WebSocket-Accept that is not the key's"));
        }
        if let Some(extension) = value("sec-websocket-extensions") {
            return Err(garbage(format!("extension that was not offered: {extension}")));
        }
        let accepted = value("sec-websocket-protocol");
        if let Some(other) = accepted.filter(|accepted| *accepted != self.protocol) {
            return Err(garbage(format!("subprotocol that was not offered: {other}")));
        }
        let taken = size.saturating_sub(known);
        let accepted = accepted.is_some();
        self.partial = Vec::new();
        Ok(Some((taken, accepted)))
    }
}

/// Computes the answer of a server that has read the key.
pub fn accept(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.finalize())
}

fn garbage(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(Kind::Garbage, what)
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// UTF-8.
    Text,
    /// Bytes.
    Binary,
}

/// What the reader found.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The next bytes of a message.
    Data(Message, &'a [u8]),
    /// The end of a message.
    End(Message),
    /// A ping, to be answered with the same payload.
    Ping(&'a [u8]),
    /// A pong.
    Pong,
    /// The server closes the connection: code, if it gives one, and reason.
    Close(Option<u16>, &'a str),
}

/// Reads the frames that a server sends.
#[derive(Debug)]
pub struct Reader {
    /// Size of the longest message accepted, in bytes.
    most: u64,
    /// Bytes read so far.
    at: u64,
    head: [u8; 10],
    len: usize,
    /// Bytes of the payload still to come; `None` between frames.
    left: Option<u64>,
    opcode: u8,
    last: bool,
    message: Option<Message>,
    /// Bytes of the message so far.
    size: u64,
    /// Payload of a control frame, as far as it has come.
    control: Vec<u8>,
}

impl Reader {
    /// Starts before the first frame. A message of more than `most` bytes is an error.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            at: 0,
            head: [0; 10],
            len: 0,
            left: None,
            opcode: 0,
            last: false,
            message: None,
            size: 0,
            control: Vec::new(),
        }
    }

    /// How many bytes it has read.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Takes bytes from the front of `input`, up to the next event. `None` if the rest makes no
    /// event.
    ///
    /// # Errors
    /// A server may not send such bytes: [`Kind::Garbage`].
    pub fn next<'a: 'b, 'b>(
        &'b mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'b>>, Error> {
        loop {
            let Some(left) = self.left else {
                let wanted = self.head_size();
                let part = self.take(input, (wanted - self.len) as u64);
                self.head[self.len..self.len + part.len()].copy_from_slice(part);
                self.len += part.len();
                if self.len < wanted {
                    return Ok(None);
                }
                if self.len == self.head_size() {
                    self.begin()?;
                }
                continue;
            };
            if self.opcode >= 8 {
                let part = self.take(input, left);
                self.left = Some(left - part.len() as u64);
                self.control.extend_from_slice(part);
                if self.left != Some(0) {
                    return Ok(None);
                }
                self.left = None;
                return self.end_control().map(Some);
            }
            // A data frame always belongs to a message.
            let Some(message) = self.message else { return Ok(None) };
            if left > 0 {
                let part = self.take(input, left);
                self.left = Some(left - part.len() as u64);
                return Ok((!part.is_empty()).then_some(Event::Data(message, part)));
            }
            self.left = None;
            if self.last {
                self.message = None;
                self.size = 0;
                return Ok(Some(Event::End(message)));
            }
        }
    }

    fn take<'a>(&mut self, input: &mut &'a [u8], most: u64) -> &'a [u8] {
        let taken = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
        let (front, rest) = input.split_at(taken);
        *input = rest;
        self.at += taken as u64;
        front
    }

    /// Size of the frame's header in bytes, as far as the bytes read so far tell it.
    fn head_size(&self) -> usize {
        match self.head[1] & 0x7F {
            _ if self.len < 2 => 2,
            126 => 4,
            127 => 10,
            _ => 2,
        }
    }

    /// Checks a frame's header that has come whole (5.2).
    fn begin(&mut self) -> Result<(), Error> {
        let [first, second, a, b, rest @ ..] = self.head;
        self.len = 0;
        let (last, opcode) = (first & 0x80 != 0, first & 0x0F);
        if first & 0x70 != 0 {
            return Err(garbage("frame with reserved bits"));
        }
        if second & 0x80 != 0 {
            return Err(garbage("masked frame from a server"));
        }
        let [c, d, e, f, g, h] = rest;
        let (size, least) = match second {
            126 => (u64::from(u16::from_be_bytes([a, b])), 126),
            127 => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 1 << 16),
            short => (u64::from(short), 0),
        };
        if size < least || size >> 63 != 0 {
            return Err(garbage(format!("length of {size} that is not written as it must be")));
        }
        match (opcode, self.message) {
            (0, Some(_)) | (1 | 2, None) | (8..=10, _) => {}
            (0, None) => return Err(garbage("continuation of no message")),
            (1 | 2, Some(_)) => return Err(garbage("message within a message")),
            _ => return Err(garbage(format!("frame of reserved opcode {opcode}"))),
        }
        if opcode >= 8 {
            if size > MAX_CONTROL || !last {
                return Err(garbage("control frame too long or in fragments"));
            }
            self.control.clear();
        } else {
            self.size = self.size.saturating_add(size);
            if self.size > self.most {
                let most = self.most;
                return Err(garbage(format!("message of more than {most} bytes")));
            }
            self.last = last;
            match opcode {
                1 => self.message = Some(Message::Text),
                2 => self.message = Some(Message::Binary),
                _ => {}
            }
        }
        self.opcode = opcode;
        self.left = Some(size);
        Ok(())
    }

    fn end_control(&self) -> Result<Event<'_>, Error> {
        match (self.opcode, &self.control[..]) {
            (9, payload) => Ok(Event::Ping(payload)),
            (10, _) => Ok(Event::Pong),
            (_, []) => Ok(Event::Close(None, "")),
            (_, [a, b, reason @ ..]) => {
                let code = u16::from_be_bytes([*a, *b]);
                // 7.4: other codes are never sent, or not assigned.
                if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                    return Err(garbage(format!("close with code {code}")));
                }
                let reason = std::str::from_utf8(reason)
                    .map_err(|_| garbage("reason of a close that is not UTF-8"))?;
                Ok(Event::Close(Some(code), reason))
            }
            _ => Err(garbage("close with half a code")),
        }
    }
}

/// Makes the answer to a ping, masked as a client's frames must be.
pub fn pong(payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    control(10, payload, mask)
}

/// Makes a close frame, masked in the same way.
pub fn close(code: u16, mask: [u8; 4]) -> Vec<u8> {
    control(8, &code.to_be_bytes(), mask)
}

fn control(opcode: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    // Payloads never exceed `MAX_CONTROL`.
    let size = u8::try_from(payload.len()).unwrap_or(0) & 0x7F;
    let mut frame = vec![0x80 | opcode, 0x80 | size];
    frame.extend_from_slice(&mask);
    let masked = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    frame.extend(masked.take(size.into()));
    frame
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 6455 1.3.
    #[test]
    fn the_key_of_the_specification() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn answers_to_the_handshake() {
        let answer = |more: &str, accept: &str| {
            format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n\
                 Connection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n{more}\r\n"
            )
        };
        let handshake = || Handshake::new(*b"the sample nonce", "headwater.v1");
        let right = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        let good = answer("", right);
        for split in 1..good.len() {
            let (front, back) = good.split_at(split);
            let mut handshake = handshake();
            assert_eq!(handshake.read(front.as_bytes()), Ok(None));
            let back = [back.as_bytes(), b"\x82"].concat();
            assert_eq!(handshake.read(&back), Ok(Some((back.len() - 1, false))));
        }
        let accepted = answer("Sec-WebSocket-Protocol: headwater.v1\r\n", right);
        assert_eq!(handshake().read(accepted.as_bytes()), Ok(Some((accepted.len(), true))));
        for (bad, kind) in [
            (answer("", "s3pPLMBiTxaQ9kYGzzhZRbK+xOO="), Kind::Garbage),
            (answer("Sec-WebSocket-Extensions: permessage-deflate\r\n", right), Kind::Garbage),
            (answer("Sec-WebSocket-Protocol: chat\r\n", right), Kind::Garbage),
            (good.replace("WebSocket\r\n", "h2c\r\n"), Kind::Garbage),
            (good.replace("101 Switching Protocols", "404 Not Found"), Kind::Status),
            ("SSH-2.0-x\r\n\r\n".to_owned(), Kind::Garbage),
            ("HTTP/1.1 101 x\r\n".to_owned() + &"x: y\r\n".repeat(5000), Kind::Garbage),
        ] {
            assert_eq!(handshake().read(bad.as_bytes()).unwrap_err().kind, kind, "{bad}");
        }
    }

    #[derive(Debug, PartialEq)]
    enum Seen {
        Message(Message, Vec<u8>),
        Ping(Vec<u8>),
        Close(Option<u16>, String),
    }

    fn read(bytes: &[u8], split: usize) -> Result<Vec<Seen>, Error> {
        let mut reader = Reader::new(1 << 20);
        let (mut seen, mut message) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(split) {
            let mut input = piece;
            while let Some(event) = reader.next(&mut input)? {
                match event {
                    Event::Data(_, data) => message.extend_from_slice(data),
                    Event::End(kind) => {
                        seen.push(Seen::Message(kind, std::mem::take(&mut message)));
                    }
                    Event::Ping(payload) => seen.push(Seen::Ping(payload.to_vec())),
                    Event::Pong => {}
                    Event::Close(code, reason) => {
                        seen.push(Seen::Close(code, reason.to_owned()));
                    }
                }
            }
            assert!(input.is_empty());
        }
        assert_eq!(reader.position(), bytes.len() as u64);
        Ok(seen)
    }

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match payload.len() {
            short @ 0..126 => out.push(short as u8),
            medium @ 126..65_536 => {
                out.push(126);
                out.extend_from_slice(&(medium as u16).to_be_bytes());
            }
            long => {
                out.push(127);
                out.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn fragments_with_control_frames_between_them() {
        let bytes = [
            frame(0x01, b"he"),
            frame(0x89, b"are you there"),
            frame(0x00, b""),
            frame(0x8A, b""),
            frame(0x80, b"llo"),
            frame(0x82, b""),
            frame(0x82, &[7; 70_000]),
            frame(0x88, &[3, 232, b'b', b'y', b'e']),
        ]
        .concat();
        for split in [1, 2, 3, 1000, bytes.len()] {
            let seen = read(&bytes, split).unwrap();
            assert_eq!(
                seen,
                [
                    Seen::Ping(b"are you there".to_vec()),
                    Seen::Message(Message::Text, b"hello".to_vec()),
                    Seen::Message(Message::Binary, Vec::new()),
                    Seen::Message(Message::Binary, vec![7; 70_000]),
                    Seen::Close(Some(1000), "bye".to_owned()),
                ]
            );
        }
    }

    #[test]
    fn forbidden_server_frames_are_refused() {
        for (bytes, what) in [
            (vec![0xC2, 0], "reserved bits"),
            (vec![0x82, 0x81, 1, 2, 3, 4, 5], "masked"),
            (vec![0x83, 0], "opcode 3"),
            (vec![0x8B, 0], "opcode 11"),
            (vec![0x80, 0], "continuation"),
            ([frame(0x02, b"a"), frame(0x82, b"b")].concat(), "within"),
            (vec![0x89, 126, 0, 126], "control"),
            (vec![0x09, 0], "control"),
            (vec![0x82, 126, 0, 125], "length"),
            (vec![0x82, 127, 0, 0, 0, 0, 0, 0, 255, 255], "length"),
            (vec![0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], "length"),
            (vec![0x82, 127, 0, 0, 0, 0, 0, 16, 0, 1], "more than"),
            (frame(0x88, &[3]), "half"),
            (frame(0x88, &[3, 237]), "1005"),
            (frame(0x88, &[3, 232, 0xFF]), "UTF-8"),
        ] {
            let error = read(&bytes, 1).unwrap_err();
            assert_eq!(error.kind, Kind::Garbage);
            assert!(error.what.contains(what), "{what}: {error}");
        }
        // A message that never ends.
        let endless = [frame(0x02, &[0; 65_535]), frame(0x00, &[0; 65_535]).repeat(16)].concat();
        assert!(read(&endless, 1000).unwrap_err().what.contains("more than"));
    }

    #[test]
    fn sent_frames_are_masked() {
        let mask = [1, 2, 3, 4];
        assert_eq!(pong(&[1, 2, 3, 4, 5], mask), [0x8A, 0x85, 1, 2, 3, 4, 0, 0, 0, 0, 4]);
        assert_eq!(close(1000, [0; 4]), [0x88, 0x82, 0, 0, 0, 0, 3, 232]);
        assert_eq!(pong(&[0; 125], mask).len(), 131);
    }

    proptest! {
        #[test]
        fn nothing_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..300), split in 1usize..20,
        ) {
            let _ = read(&bytes, split);
            let _ = Handshake::new([0; 16], "x").read(&bytes);
        }
    }
}
