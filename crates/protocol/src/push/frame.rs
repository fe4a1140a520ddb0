//! Frames (RFC 6455 5): reads those of clients and writes those of servers.

use super::{CloseCode, Violation};

/// Longest payload of a control frame (5.5).
pub const MAX_CONTROL: usize = 125;

/// Longest message of a client. Real commands are far shorter.
pub const MAX_MESSAGE: usize = 4096;

/// Most fragments of a message. This limits messages of endless empty fragments.
const MAX_FRAGMENTS: u8 = 64;

/// Type of a frame (5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// A message in UTF-8.
    Text = 1,
    /// A message in bytes.
    Binary = 2,
    /// The peer closes the connection.
    Close = 8,
    /// A ping, which must be answered.
    Ping = 9,
    /// The answer to a ping.
    Pong = 10,
}

/// A message or control frame from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A whole text message.
    Text(String),
    /// A ping, which must be answered with the same payload.
    Ping(Vec<u8>),
    /// A pong, solicited or not.
    Pong,
    /// The client closes the connection. It must be sent the same code.
    Close(Option<u16>),
}

/// Reads the frames of a client.
///
/// It holds at most one message of [`MAX_MESSAGE`] and one control frame, and nothing between
/// messages.
#[derive(Debug, Default)]
pub struct Reader {
    head: [u8; 14],
    len: u8,
    /// Payload bytes that are still missing; `None` between frames.
    left: Option<u16>,
    /// Index of the mask byte for the next payload byte.
    phase: u8,
    /// Whether a text message has begun but not ended.
    begun: bool,
    fragments: u8,
    message: Vec<u8>,
    control: Vec<u8>,
}

impl Reader {
    /// Takes bytes from the front of `input` up to the next event; `None` once all bytes are taken.
    ///
    /// # Errors
    /// The client sent something that is not allowed. Later bytes cannot be understood.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Violation> {
        loop {
            let Some(left) = self.left else {
                if input.is_empty() {
                    return Ok(None);
                }
                self.read_head(input)?;
                continue;
            };
            let taken = usize::from(left).min(input.len());
            let (front, rest) = input.split_at(taken);
            *input = rest;
            self.unmask(front);
            // `taken` is at most `left`, which is a `u16`.
            let left = left - taken as u16;
            self.left = Some(left);
            if left > 0 {
                return Ok(None);
            }
            self.left = None;
            self.len = 0;
            if let Some(event) = self.end_frame()? {
                return Ok(Some(event));
            }
        }
    }

    fn opcode(&self) -> u8 {
        self.head[0] & 0x0F
    }

    fn is_control(&self) -> bool {
        self.opcode() >= 8
    }

    /// Bytes of the frame's head, as far as the bytes so far tell.
    fn head_size(&self) -> u8 {
        let extended = match self.head[1] & 0x7F {
            _ if self.len < 2 => return 2,
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + extended + 4
    }

    fn read_head(&mut self, input: &mut &[u8]) -> Result<(), Violation> {
        while self.len < self.head_size() {
            let Some((&byte, rest)) = input.split_first() else { return Ok(()) };
            *input = rest;
            self.head[usize::from(self.len)] = byte;
            self.len += 1;
            if self.len == 2 {
                self.check_start()?;
            }
        }
        let size = self.payload_size()?;
        self.left = Some(size);
        self.phase = 0;
        Ok(())
    }

    /// Checks by the first two bytes whether the frame is allowed here.
    fn check_start(&self) -> Result<(), Violation> {
        let [first, second, ..] = self.head;
        let wrong = |what| Err(Violation::new(CloseCode::ProtocolError, what));
        if first & 0x70 != 0 {
            return wrong("reserved bits without an extension");
        }
        if second & 0x80 == 0 {
            return wrong("frame that is not masked");
        }
        let last = first & 0x80 != 0;
        match self.opcode() {
            0 if self.begun => Ok(()),
            0 => wrong("continuation of no message"),
            1 | 2 if self.begun => wrong("message within a message"),
            1 => Ok(()),
            2 => Err(Violation::new(CloseCode::Unsupported, "binary message")),
            8..=10 if !last => wrong("control frame in fragments"),
            8..=10 if second & 0x7F > 125 => wrong("control frame that is too long"),
            8..=10 => Ok(()),
            _ => wrong("reserved opcode"),
        }
    }

    fn payload_size(&self) -> Result<u16, Violation> {
        let [_, second, a, b, c, d, e, f, g, h, ..] = self.head;
        let (size, least) = match second & 0x7F {
            126 => (u64::from(u16::from_be_bytes([a, b])), 126),
            127 => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 1 << 16),
            short => (u64::from(short), 0),
        };
        if size < least || size >> 63 != 0 {
            let what = "length that is not written as it must be";
            return Err(Violation::new(CloseCode::ProtocolError, what));
        }
        let most = MAX_MESSAGE - if self.is_control() { 0 } else { self.message.len() };
        u16::try_from(size)
            .ok()
            .filter(|&size| usize::from(size) <= most)
            .ok_or_else(|| Violation::new(CloseCode::TooBig, "message longer than any command"))
    }

    fn unmask(&mut self, bytes: &[u8]) {
        let end = usize::from(self.head_size());
        let mask = [0, 1, 2, 3].map(|at| self.head[end - 4 + at]);
        let mut phase = self.phase;
        let clear = bytes.iter().map(|byte| {
            let clear = byte ^ mask[usize::from(phase & 3)];
            phase = phase.wrapping_add(1);
            clear
        });
        if self.head[0] & 0x08 != 0 {
            self.control.extend(clear);
        } else {
            self.message.extend(clear);
        }
        self.phase = phase;
    }

    fn end_frame(&mut self) -> Result<Option<Event>, Violation> {
        if self.is_control() {
            let payload = std::mem::take(&mut self.control);
            return Ok(Some(match self.opcode() {
                8 => Event::Close(close_code(&payload)?),
                9 => Event::Ping(payload),
                _ => Event::Pong,
            }));
        }
        self.begun = self.head[0] & 0x80 == 0;
        self.fragments = if self.begun { self.fragments + 1 } else { 0 };
        if self.fragments > MAX_FRAGMENTS {
            return Err(Violation::new(CloseCode::TooBig, "message in too many fragments"));
        }
        if self.begun {
            return Ok(None);
        }
        let text = String::from_utf8(std::mem::take(&mut self.message));
        let text =
            text.map_err(|_| Violation::new(CloseCode::InvalidData, "text that is not UTF-8"))?;
        Ok(Some(Event::Text(text)))
    }
}

/// Reads the payload of a close frame (5.5.1).
fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let wrong = |what| Err(Violation::new(CloseCode::ProtocolError, what));
    match payload {
        [] => Ok(None),
        [_] => wrong("close with half a code"),
        [a, b, reason @ ..] => {
            let code = u16::from_be_bytes([*a, *b]);
            // 7.4: codes that are never sent, or not assigned.
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return wrong("close with a code that may not be sent");
            }
            if std::str::from_utf8(reason).is_err() {
                let what = "reason of a close that is not UTF-8";
                return Err(Violation::new(CloseCode::InvalidData, what));
            }
            Ok(Some(code))
        }
    }
}

/// Head of a server's frame. Each frame is the only one of its message. The head has 2 bytes, 4 for
/// a payload of more than 125 bytes, and 10 for more than 65,535.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    bytes: [u8; 10],
    len: u8,
}

impl Head {
    /// The head for a payload of `size` bytes.
    pub fn new(opcode: Opcode, size: usize) -> Self {
        let mut bytes = [0; 10];
        bytes[0] = 0x80 | opcode as u8;
        let len = match (u8::try_from(size), u16::try_from(size)) {
            (Ok(size), _) if size <= 125 => {
                bytes[1] = size;
                2
            }
            (_, Ok(size)) => {
                bytes[1] = 126;
                bytes[2..4].copy_from_slice(&size.to_be_bytes());
                4
            }
            _ => {
                bytes[1] = 127;
                bytes[2..].copy_from_slice(&(size as u64).to_be_bytes());
                10
            }
        };
        Self { bytes, len }
    }
}

impl AsRef<[u8]> for Head {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A server's frame: a short message or a control frame.
pub fn frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    [Head::new(opcode, payload.len()).as_ref(), payload].concat()
}

/// A close frame with a code and a reason for humans, which is cut where the frame would be too
/// long.
pub fn close(code: CloseCode, reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(MAX_CONTROL - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let payload = [&code.number().to_be_bytes(), &reason.as_bytes()[..end]].concat();
    frame(Opcode::Close, &payload)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame of a client.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let head = Head::new(Opcode::Text, payload.len());
        let mut out = head.as_ref().to_vec();
        out[0] = first;
        out[1] |= 0x80;
        let mask = [0xA1, 0x02, 0xF3, 0x44];
        out.extend_from_slice(&mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        out
    }

    fn read(bytes: &[u8], split: usize) -> Result<Vec<Event>, Violation> {
        let mut reader = Reader::default();
        let mut events = Vec::new();
        for piece in bytes.chunks(split) {
            let mut input = piece;
            while let Some(event) = reader.next(&mut input)? {
                events.push(event);
            }
            assert!(input.is_empty());
        }
        Ok(events)
    }

    #[test]
    fn fragments_with_control_frames_between_them() {
        let bytes = [
            masked(0x01, b"{\"se"),
            masked(0x89, b"are you there"),
            masked(0x00, b""),
            masked(0x8A, b""),
            masked(0x80, b"ek\":1}"),
            masked(0x81, b""),
            masked(0x81, &[b'x'; 300]),
            masked(0x88, &[3, 232, b'b', b'y', b'e']),
        ]
        .concat();
        for split in [1, 2, 3, 7, bytes.len()] {
            assert_eq!(
                read(&bytes, split).unwrap(),
                [
                    Event::Ping(b"are you there".to_vec()),
                    Event::Pong,
                    Event::Text("{\"seek\":1}".to_owned()),
                    Event::Text(String::new()),
                    Event::Text("x".repeat(300)),
                    Event::Close(Some(1000)),
                ]
            );
        }
    }

    /// Violations by section of RFC 6455, each with the close code that answers it.
    #[test]
    fn forbidden_client_frames_are_refused() {
        use CloseCode::{InvalidData, ProtocolError, TooBig, Unsupported};
        let long = |size: u64| {
            let mut frame = vec![0x81, 0xFF];
            frame.extend_from_slice(&size.to_be_bytes());
            frame.extend_from_slice(&[0; 4]);
            frame
        };
        let split = "é".as_bytes();
        for (section, bytes, code) in [
            ("5.1 not masked", vec![0x81, 0x01, b'x'], ProtocolError),
            ("5.2 RSV1", masked(0xC1, b"x"), ProtocolError),
            ("5.2 RSV2", masked(0xA1, b"x"), ProtocolError),
            ("5.2 RSV3", masked(0x91, b"x"), ProtocolError),
            ("5.2 opcode 3", masked(0x83, b""), ProtocolError),
            ("5.2 opcode 7", masked(0x87, b""), ProtocolError),
            ("5.2 opcode 11", masked(0x8B, b""), ProtocolError),
            ("5.2 opcode 15", masked(0x8F, b""), ProtocolError),
            ("5.2 16 bits for a short one", vec![0x81, 0xFE, 0, 125, 0, 0, 0, 0], ProtocolError),
            ("5.2 64 bits for a short one", long(65_535), ProtocolError),
            ("5.2 64 bits, the highest set", long(1 << 63), ProtocolError),
            ("5.4 continuation of nothing", masked(0x80, b"x"), ProtocolError),
            (
                "5.4 message within one",
                [masked(1, b"x"), masked(0x81, b"y")].concat(),
                ProtocolError,
            ),
            ("5.4 control in fragments", masked(0x09, b"x"), ProtocolError),
            ("5.5 control of 126", masked(0x89, &[0; 126]), ProtocolError),
            ("5.5 close of 126", masked(0x88, &[0; 126]), ProtocolError),
            ("5.5.1 half a code", masked(0x88, &[3]), ProtocolError),
            ("7.4.1 code 1005", masked(0x88, &[3, 237]), ProtocolError),
            ("7.4.1 code 1006", masked(0x88, &[3, 238]), ProtocolError),
            ("7.4.2 code 999", masked(0x88, &[3, 231]), ProtocolError),
            ("7.4.2 code 2999", masked(0x88, &[11, 183]), ProtocolError),
            ("5.5.1 reason", masked(0x88, &[3, 232, 0xFF]), InvalidData),
            ("8.1 text", masked(0x81, &[0xC3, 0x28]), InvalidData),
            ("8.1 cut short", masked(0x81, &split[..1]), InvalidData),
            ("binary", masked(0x82, b"x"), Unsupported),
            ("one byte more", masked(0x81, &[b'x'; MAX_MESSAGE + 1]), TooBig),
            ("a great many", long(1 << 40), TooBig),
            (
                "too much in fragments",
                [masked(1, &[b'x'; MAX_MESSAGE]), masked(0x80, b"x")].concat(),
                TooBig,
            ),
        ] {
            for split in [1, bytes.len()] {
                let violation = read(&bytes, split).unwrap_err();
                assert_eq!(violation.code, code, "{section}: {violation}");
            }
        }
        let endless = [masked(1, b""), masked(0, b"").repeat(100)].concat();
        assert_eq!(read(&endless, 7).unwrap_err().code, TooBig);
        // Characters may be split between fragments.
        let halves = [masked(0x01, &split[..1]), masked(0x80, &split[1..])].concat();
        assert_eq!(read(&halves, 1).unwrap(), [Event::Text("é".to_owned())]);
        let most = masked(0x81, &[b'x'; MAX_MESSAGE]);
        assert_eq!(read(&most, 100).unwrap().len(), 1);
    }

    #[test]
    fn frame_heads_are_as_long_as_specified() {
        for (size, head) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10), (5 << 20, 10)] {
            assert_eq!(Head::new(Opcode::Binary, size).as_ref().len(), head, "{size}");
        }
        assert_eq!(Head::new(Opcode::Binary, 65_536).as_ref(), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(frame(Opcode::Text, b"hi"), b"\x81\x02hi");
        assert_eq!(close(CloseCode::TooBig, "no"), b"\x88\x04\x03\xF1no");
        let cut = close(CloseCode::Normal, &"é".repeat(100));
        assert_eq!(cut.len(), 2 + 2 + 122);
        assert!(std::str::from_utf8(&cut[4..]).is_ok());
    }

    proptest! {
        #[test]
        fn nothing_panics_or_grows(bytes in prop::collection::vec(any::<u8>(), 0..600), split in 1usize..20) {
            let mut reader = Reader::default();
            for piece in bytes.chunks(split) {
                let mut input = piece;
                loop {
                    match reader.next(&mut input) {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => return Ok(()),
                    }
                }
                prop_assert!(reader.message.len() <= MAX_MESSAGE);
                prop_assert!(reader.control.len() <= MAX_CONTROL);
            }
        }

        #[test]
        fn client_messages_are_read_at_any_split(
            texts in prop::collection::vec(".{0,200}", 0..6), cut in 16usize..80, split in 1usize..40,
        ) {
            let mut bytes = Vec::new();
            for text in &texts {
                let pieces: Vec<_> = text.as_bytes().chunks(cut).collect();
                for (at, piece) in pieces.iter().enumerate() {
                    let last = if at + 1 == pieces.len() { 0x80 } else { 0 };
                    bytes.extend(masked(last | u8::from(at == 0), piece));
                }
                if pieces.is_empty() {
                    bytes.extend(masked(0x81, b""));
                }
            }
            let expected: Vec<_> = texts.into_iter().map(Event::Text).collect();
            prop_assert_eq!(read(&bytes, split).unwrap(), expected);
        }
    }
}
