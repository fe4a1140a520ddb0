//! HTTP/1.1 answers without I/O: heads, and the ends of bodies (RFC 9112).

use std::mem::MaybeUninit;

use super::target::ByteRange;

/// The longest head that is accepted, in bytes. A connection keeps at most this many bytes of a
/// head that has not come whole.
pub const LONGEST_HEAD: usize = 16 << 10;
/// The most header fields of a head.
const MOST_FIELDS: usize = 100;

/// Why bytes are no answer. The message completes "the answer …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// They do not begin like an answer.
    #[error("does not begin with HTTP/1")]
    NoAnswer,
    /// The head or the chunks are malformed.
    #[error("{0}")]
    Malformed(&'static str),
}

/// The fields of a head that matter here.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// Length in bytes, including the empty line.
    pub length: usize,
    /// The status code, 100 to 999.
    pub status: u16,
    /// How its body ends. An interim answer has none.
    pub body: Body,
    /// Content-Length, if there is one.
    pub content_length: Option<u64>,
    /// Content-Range of a 206: first byte, last byte.
    pub content_range: Option<Result<ByteRange, ()>>,
    /// Length of the whole representation, from Content-Range.
    pub whole: Option<u64>,
    /// Where a redirection leads.
    pub location: Option<String>,
    /// Whether the connection can be used again after this answer.
    pub keeps_alive: bool,
}

impl Head {
    /// Whether the answer is an interim one: 100, 102, 103.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// Reads a head from the front of `bytes`, if it has come whole. `to_head` tells whether it
    /// answers a HEAD request.
    ///
    /// # Errors
    /// [`Bad`], as soon as the error is clear.
    pub fn parse(bytes: &[u8], to_head: bool) -> Result<Option<Self>, Bad> {
        let begun = bytes.len().min(7);
        if !b"HTTP/1."[..begun].eq_ignore_ascii_case(&bytes[..begun]) {
            return Err(Bad::NoAnswer);
        }
        let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut parsed = httparse::Response::new(&mut []);
        let status = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut parsed, bytes, &mut fields)
            .map_err(|error| Bad::Malformed(describe(error)))?;
        let length = match status {
            httparse::Status::Complete(length) if length <= LONGEST_HEAD => length,
            httparse::Status::Partial if bytes.len() < LONGEST_HEAD => return Ok(None),
            _ => return Err(Bad::Malformed("has a head of more than 16 KiB")),
        };
        let status = parsed.code.unwrap_or_default();
        if status < 100 || status == 101 {
            return Err(Bad::Malformed("has a status that was not asked for"));
        }
        let mut head = Self { length, ..Self::new(status) };
        head.keeps_alive = parsed.version == Some(1);
        let mut chunked = false;
        for field in parsed.headers.iter() {
            head.take_field(field.name, field.value, &mut chunked)?;
        }
        head.body = if to_head || status < 200 || matches!(status, 204 | 304) {
            Body::Length(0)
        } else if chunked {
            Body::Chunked(Chunked::default())
        } else if let Some(length) = head.content_length {
            Body::Length(length)
        } else {
            Body::UntilClose
        };
        head.keeps_alive &= !matches!(head.body, Body::UntilClose);
        Ok(Some(head))
    }

    /// Makes a head without fields.
    pub fn new(status: u16) -> Self {
        Self {
            length: 0,
            status,
            body: Body::UntilClose,
            content_length: None,
            content_range: None,
            whole: None,
            location: None,
            keeps_alive: true,
        }
    }

    /// Takes a field, if it matters. `chunked` becomes true if the body is chunked.
    ///
    /// # Errors
    /// [`Bad`]: its value is invalid.
    pub fn take_field(&mut self, name: &str, value: &[u8], chunked: &mut bool) -> Result<(), Bad> {
        // The length distinguishes most fields without a comparison.
        match name.len() {
            14 if name.eq_ignore_ascii_case("content-length") => {
                let length = decimal(value).ok_or(Bad::Malformed("has no valid Content-Length"))?;
                if self.content_length.replace(length).is_some_and(|other| other != length) {
                    return Err(Bad::Malformed("has two lengths"));
                }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Bad::Malformed("has a transfer coding other than chunked"));
                }
                *chunked = true;
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                    if option.eq_ignore_ascii_case(b"close") {
                        self.keeps_alive = false;
                    } else if option.eq_ignore_ascii_case(b"keep-alive") {
                        self.keeps_alive = true;
                    }
                }
            }
            13 if name.eq_ignore_ascii_case("content-range") => {
                let (range, whole) = content_range(value);
                self.content_range = Some(range.ok_or(()));
                self.whole = whole;
            }
            8 if name.eq_ignore_ascii_case("location") => {
                self.location = std::str::from_utf8(value).ok().map(str::to_owned);
            }
            _ => {}
        }
        Ok(())
    }
}

fn describe(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::Status => "has no valid status code",
        httparse::Error::Version => "is of another version of HTTP",
        httparse::Error::TooManyHeaders => "has more than 100 header fields",
        httparse::Error::HeaderName => "has a malformed header name",
        httparse::Error::HeaderValue => "has a malformed header value",
        httparse::Error::NewLine => "has a malformed line end",
        httparse::Error::Token => "has a malformed status line",
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Parses `bytes FIRST-LAST/WHOLE` (RFC 9110, 14.4): the range, and the whole length if known.
fn content_range(value: &[u8]) -> (Option<ByteRange>, Option<u64>) {
    let parts = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.strip_prefix("bytes "))
        .and_then(|text| text.trim().split_once('/'));
    let Some((range, whole)) = parts else { return (None, None) };
    let number = |text: &str| decimal(text.as_bytes());
    let range = range
        .split_once('-')
        .and_then(|(first, last)| Some(ByteRange { first: number(first)?, last: number(last)? }))
        .filter(|range| range.first <= range.last);
    (range, number(whole))
}

/// How the rest of a body ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// After this many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked(Chunked),
    /// With the connection.
    UntilClose,
}

/// The state of the chunked coding (RFC 9112, 7.1).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunked {
    at: At,
}

#[derive(Debug, PartialEq, Eq)]
enum At {
    /// In a chunk's size, after this many digits.
    Size { size: u64, digits: u8 },
    /// After the size, before the end of the line.
    Extension { size: u64, length: u16 },
    /// In a chunk, with this many bytes left.
    Data(u64),
    /// Before the line end after a chunk.
    DataEnd { carriage_return: bool },
    /// In the trailer section: in a line of this length, after this many bytes of the section.
    Trailer { line: u32, length: u32 },
    /// After the end.
    End,
}

impl Default for At {
    fn default() -> Self {
        Self::Size { size: 0, digits: 0 }
    }
}

impl Body {
    /// Whether nothing more belongs to the body.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunked { at: At::End }))
    }

    /// How many of the next bytes are certain to be payload, so that they need not be seen.
    pub fn unseen(&self) -> u64 {
        match self {
            Self::Length(left) | Self::Chunked(Chunked { at: At::Data(left) }) => *left,
            Self::Chunked(_) => 0,
            Self::UntilClose => u64::MAX,
        }
    }

    /// Counts `length` bytes as received, at most [`Body::unseen`].
    pub fn pass_over(&mut self, length: u64) {
        match self {
            Self::Length(left) => *left = left.saturating_sub(length),
            Self::Chunked(chunked) => {
                if let At::Data(left) = &mut chunked.at {
                    *left = left.saturating_sub(length);
                    if *left == 0 {
                        chunked.at = At::DataEnd { carriage_return: false };
                    }
                }
            }
            Self::UntilClose => {}
        }
    }

    /// Takes the bytes of the body from the front of `bytes` and passes on the payload in pieces.
    /// Returns the number of bytes taken.
    ///
    /// # Errors
    /// [`Bad`]: the chunked coding is broken.
    pub fn take(&mut self, bytes: &[u8], payload: &mut dyn FnMut(&[u8])) -> Result<usize, Bad> {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_complete() {
            let rest = &bytes[taken..];
            let unseen = usize::try_from(self.unseen()).unwrap_or(usize::MAX).min(rest.len());
            if unseen > 0 {
                payload(&rest[..unseen]);
                self.pass_over(unseen as u64);
                taken += unseen;
            } else if let Self::Chunked(chunked) = self {
                chunked.step(rest[0])?;
                taken += 1;
            }
        }
        Ok(taken)
    }
}

impl Chunked {
    /// Takes a byte that is not payload.
    fn step(&mut self, byte: u8) -> Result<(), Bad> {
        const BAD: Bad = Bad::Malformed("has a malformed chunk");
        self.at = match (&self.at, byte) {
            (At::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                if *digits == 16 {
                    return Err(BAD);
                }
                At::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (At::Size { digits: 0, .. }, _) => return Err(BAD),
            (At::Size { size, .. }, b'\r' | b';' | b' ' | b'\t') => {
                At::Extension { size: *size, length: 0 }
            }
            (At::Extension { size: 0, .. }, b'\n') => At::Trailer { line: 0, length: 0 },
            (At::Extension { size, .. }, b'\n') => At::Data(*size),
            (At::Extension { size, length }, _) if *length < 1024 => {
                At::Extension { size: *size, length: length + 1 }
            }
            (At::DataEnd { carriage_return: false }, b'\r') => {
                At::DataEnd { carriage_return: true }
            }
            (At::DataEnd { carriage_return: true }, b'\n') => At::default(),
            (At::Trailer { line: 0, .. }, b'\n') => At::End,
            (At::Trailer { length, .. }, _) if *length as usize == LONGEST_HEAD => return Err(BAD),
            (At::Trailer { length, .. }, b'\n') => At::Trailer { line: 0, length: length + 1 },
            (At::Trailer { line, length }, b'\r') => {
                At::Trailer { line: *line, length: length + 1 }
            }
            (At::Trailer { line, length }, _) => At::Trailer { line: line + 1, length: length + 1 },
            _ => return Err(BAD),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(text: &str) -> Head {
        Head::parse(text.as_bytes(), false).unwrap().unwrap()
    }

    #[test]
    fn bodies_end_as_rfc_9112_6_3_says() {
        for (text, body, keeps_alive) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Body::Length(5), true),
            (
                "HTTP/1.1 200\r\ncontent-length: 5\r\nConnection: Close\r\n\r\n",
                Body::Length(5),
                false,
            ),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Body::Length(5), false),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: x, keep-alive\r\n\r\n",
                Body::Length(5),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                Body::Chunked(Chunked::default()),
                true,
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", Body::UntilClose, false),
            ("HTTP/1.1 304 N\r\nContent-Length: 5\r\n\r\n", Body::Length(0), true),
            ("HTTP/1.1 204 N\r\n\r\n", Body::Length(0), true),
            ("HTTP/1.1 103 E\r\nLink: x\r\n\r\n", Body::Length(0), true),
        ] {
            let head = head(text);
            assert_eq!((&head.body, head.keeps_alive), (&body, keeps_alive), "{text}");
            assert_eq!(head.length, text.len());
        }
        let to_head = Head::parse(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true);
        let to_head = to_head.unwrap().unwrap();
        assert_eq!((to_head.body, to_head.content_length), (Body::Length(0), Some(5)));
    }

    #[test]
    fn ranges_and_redirections_are_kept() {
        let partial = head("HTTP/1.1 206 P\r\nContent-Range: bytes 5-9/100\r\n\r\n");
        assert_eq!(partial.content_range, Some(Ok(ByteRange { first: 5, last: 9 })));
        assert_eq!(partial.whole, Some(100));
        let unknown = head("HTTP/1.1 206 P\r\nContent-Range: bytes 5-9/*\r\n\r\n");
        assert_eq!((unknown.content_range.unwrap().is_ok(), unknown.whole), (true, None));
        for wrong in ["bytes 9-5/100", "items 1-2/3", "bytes */100", "bytes=1-2/3", ""] {
            let head = head(&format!("HTTP/1.1 206 P\r\nContent-Range: {wrong}\r\n\r\n"));
            assert_eq!(head.content_range, Some(Err(())), "{wrong}");
        }
        let moved = head("HTTP/1.1 302 F\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(moved.location.as_deref(), Some("/x"));
    }

    #[test]
    fn a_head_in_parts_is_waited_for_and_garbage_is_not() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for end in 0..38 {
            assert_eq!(Head::parse(&text[..end], false), Ok(None), "{end}");
        }
        assert!(Head::parse(text, false).unwrap().is_some());
        for garbage in ["x", "HTTX", "HTTP/2 200\r\n", "\r\n\r\nHTTP/1.1 200 OK"] {
            assert_eq!(Head::parse(garbage.as_bytes(), false), Err(Bad::NoAnswer), "{garbage}");
        }
        for malformed in [
            "HTTP/1.1 2x0 OK\r\n\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        ] {
            let found = Head::parse(malformed.as_bytes(), false);
            assert!(matches!(found, Err(Bad::Malformed(_))), "{malformed}: {found:?}");
        }
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; LONGEST_HEAD]].concat();
        assert!(Head::parse(&endless, false).is_err());
    }

    fn dechunk(coded: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), Bad> {
        let mut body = Body::Chunked(Chunked::default());
        let (mut payload, mut taken) = (Vec::new(), 0);
        for piece in coded.chunks(step) {
            let of_piece = body.take(piece, &mut |bytes| payload.extend_from_slice(bytes))?;
            taken += of_piece;
            if of_piece < piece.len() {
                break;
            }
        }
        Ok((payload, taken, body.is_complete()))
    }

    #[test]
    fn chunks_are_told_from_payload_however_they_come() {
        let coded = b"4;name=value\r\nhell\r\n1\r\no\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1 ";
        for step in 1..coded.len() {
            let (payload, taken, complete) = dechunk(coded, step).unwrap();
            assert_eq!((payload.as_slice(), complete), (&b"hello"[..], true));
            assert_eq!(taken, coded.len() - b"HTTP/1.1 ".len());
        }
        for broken in [
            "x\r\n",
            "\r\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "11111111111111111\r\n",
            "-1\r\n",
            "1x\r\n",
        ] {
            assert!(dechunk(broken.as_bytes(), 1).is_err(), "{broken}");
        }
        let endless = [b"0\r\n".as_slice(), &[b'x'; LONGEST_HEAD + 1]].concat();
        assert!(dechunk(&endless, 100).is_err());
    }

    proptest! {
        #[test]
        fn nothing_a_server_sends_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), step in 1usize..50) {
            let _ = Head::parse(&bytes, false);
            let answer = [b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes].concat();
            let _ = Head::parse(&answer, true);
            let _ = dechunk(&bytes, step);
        }

        #[test]
        fn any_chunking_gives_the_payload_back(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..8), step in 1usize..64) {
            let mut coded = Vec::new();
            for chunk in &chunks {
                coded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                coded.extend_from_slice(chunk);
                coded.extend_from_slice(b"\r\n");
            }
            coded.extend_from_slice(b"0\r\n\r\n");
            let (payload, taken, complete) = dechunk(&coded, step).unwrap();
            prop_assert_eq!(payload, chunks.concat());
            prop_assert_eq!(taken, coded.len());
            prop_assert!(complete);
        }
    }
}
