//! Where a message's body ends (RFC 9112 6 and 7).

use crate::{Error, Kind};

/// Longest chunk-size line and longest trailer line, in bytes.
const MAX_LINE: u32 = 4096;

/// How much of a body is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunked),
    /// Everything until the connection closes.
    Close,
}

/// Position of the reader in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunked {
    stage: Stage,
    /// Bytes left of the chunk; while its size is read, the size so far.
    left: u64,
    /// Bytes of the line so far.
    line: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Size,
    Extension,
    Data,
    /// The line break behind the data.
    AfterData,
    /// A line of the trailer section; `line` counts its bytes so far.
    Trailer,
    Done,
}

impl Framing {
    /// Starts a chunked body.
    pub(super) fn chunked() -> Self {
        Self::Chunked(Chunked { stage: Stage::Size, left: 0, line: 0 })
    }

    /// Whether the body is over.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.stage == Stage::Done,
            Self::Close => false,
        }
    }

    /// Takes bytes from the front of `input` and passes those of the body to `data`. Bytes that are
    /// left in `input` when the body is over do not belong to it.
    ///
    /// # Errors
    /// The chunks are malformed, or `data` fails.
    pub(super) fn read(
        &mut self,
        input: &mut &[u8],
        data: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Length(left) => {
                let body = take(input, *left);
                *left -= body.len() as u64;
                if body.is_empty() { Ok(()) } else { data(body) }
            }
            Self::Close => {
                let body = std::mem::take(input);
                if body.is_empty() { Ok(()) } else { data(body) }
            }
            Self::Chunked(chunked) => chunked.read(input, data),
        }
    }
}

/// Takes at most this many bytes from the front.
fn take<'a>(input: &mut &'a [u8], most: u64) -> &'a [u8] {
    let taken = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
    let (front, rest) = input.split_at(taken);
    *input = rest;
    front
}

impl Chunked {
    fn read(
        &mut self,
        input: &mut &[u8],
        data: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while self.stage != Stage::Done && !input.is_empty() {
            if self.stage == Stage::Data {
                let body = take(input, self.left);
                self.left -= body.len() as u64;
                if self.left == 0 {
                    self.begin(Stage::AfterData);
                }
                data(body)?;
                continue;
            }
            let [byte, rest @ ..] = input else { return Ok(()) };
            *input = rest;
            self.byte(*byte)?;
        }
        Ok(())
    }

    fn begin(&mut self, stage: Stage) {
        self.stage = stage;
        self.line = 0;
    }

    fn byte(&mut self, byte: u8) -> Result<(), Error> {
        let garbage = |what: &'static str| Err(Error::new(Kind::Garbage, what));
        self.line += 1;
        if self.line > MAX_LINE {
            return garbage("chunk line too long");
        }
        match (self.stage, byte) {
            (Stage::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                if self.left >> 56 != 0 {
                    return garbage("chunk too large");
                }
                self.left = self.left << 4 | u64::from(digit);
            }
            (Stage::Size | Stage::Extension, b'\n') if self.line > 1 => {
                let next = if self.left == 0 { Stage::Trailer } else { Stage::Data };
                self.begin(next);
            }
            (Stage::Size, b'\r' | b';' | b' ' | b'\t') if self.line > 1 => {
                self.stage = Stage::Extension;
            }
            (Stage::Extension, _) => {}
            (Stage::AfterData, b'\r') => {}
            (Stage::AfterData, b'\n') => {
                self.left = 0;
                self.begin(Stage::Size);
            }
            // An empty line ends the trailer section.
            (Stage::Trailer, b'\r') => self.line -= 1,
            (Stage::Trailer, b'\n') if self.line == 1 => self.stage = Stage::Done,
            (Stage::Trailer, b'\n') => self.line = 0,
            (Stage::Trailer, _) => {}
            _ => return garbage("not a chunk"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(framing: &mut Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, usize), Error> {
        let mut body = Vec::new();
        let mut left = 0;
        for piece in pieces {
            let mut input = *piece;
            framing.read(&mut input, &mut |data| {
                body.extend_from_slice(data);
                Ok(())
            })?;
            left += input.len();
        }
        Ok((body, left))
    }

    #[test]
    fn chunks_with_extensions_and_trailers() {
        let text = b"5;a=\"b\"\r\nhello\r\n1\n \r\n005 \r\nworld\r\n0\r\nX: y\r\n\r\nnext";
        for split in [1, 2, 3, 7, text.len()] {
            let mut framing = Framing::chunked();
            let pieces: Vec<_> = text.chunks(split).collect();
            assert_eq!(read(&mut framing, &pieces), Ok((b"hello world".to_vec(), 4)));
            assert!(framing.is_done());
        }
        for bad in [&b"x\r\n"[..], b"\r\n", b"1\r\nab\r\n", b"fffffffffffffffff\r\n"] {
            assert_eq!(read(&mut Framing::chunked(), &[bad]).unwrap_err().kind, Kind::Garbage);
        }
    }

    proptest! {
        #[test]
        fn any_chunking_comes_back(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..10),
            split in 1usize..50,
        ) {
            let mut text = Vec::new();
            for chunk in &chunks {
                text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\n");
            let mut framing = Framing::chunked();
            let pieces: Vec<_> = text.chunks(split).collect();
            prop_assert_eq!(read(&mut framing, &pieces), Ok((chunks.concat(), 0)));
            prop_assert!(framing.is_done());
        }

        #[test]
        fn nothing_panics(text in prop::collection::vec(any::<u8>(), 0..200), length in any::<u64>()) {
            for mut framing in [Framing::chunked(), Framing::Length(length), Framing::Close] {
                let _ = read(&mut framing, &[&text]);
            }
        }
    }
}
