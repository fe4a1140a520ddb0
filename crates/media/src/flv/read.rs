//! Reads FLV files tag by tag.

use bytes::{Buf, Bytes, BytesMut};

use super::TagKind;
use crate::Error;

/// Sizes in bytes: the file header's first version, a tag's header, and the length behind each tag.
const FILE_HEADER: usize = 9;
const TAG_HEADER: usize = 11;
const BACK_LINK: usize = 4;

/// A file header that claims to be longer than this is refused.
const MAX_FILE_HEADER: u32 = 1024;

/// Reads a file, or an HTTP-FLV response, from its start (annex E.2 and E.3).
///
/// Pass bytes to [`handle_bytes`](Self::handle_bytes) as they arrive, then call
/// [`poll_tag`](Self::poll_tag) until it returns `None`. At the end of the input,
/// [`finish`](Self::finish) tells whether the input ended between two tags. The reader holds the
/// bytes that were not yet taken as tags: less than one tag, at most 16 MiB, if tags are taken as
/// soon as they are complete. After an error it returns the same error again, because the next tag
/// cannot be found in garbage.
#[derive(Debug)]
pub struct Reader {
    buffer: BytesMut,
    /// Position of the buffer's first byte in the file.
    position: u64,
    expect: Expect,
    header: Option<Header>,
    wrong_back_links: u64,
}

#[derive(Debug)]
enum Expect {
    Header,
    /// The rest of a file header longer than the first version's.
    Skip(u64),
    /// The length of the tag before, written behind it: 0 at the start.
    BackLink(u32),
    Tag,
    Failed(Error),
}

/// Contents of the file header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whether audio tags are announced. Files may contain other tags than they announce.
    pub audio: bool,
    /// Whether video tags are announced.
    pub video: bool,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Type of the tag.
    pub kind: TagKind,
    /// Timestamp in milliseconds, all 32 bits.
    pub timestamp: u32,
    /// Content of the tag, shared with the buffer it was read into.
    pub payload: Bytes,
    /// Where the tag's header starts, in bytes from the start of the file.
    pub position: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A reader at the start of a file.
    pub fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            position: 0,
            expect: Expect::Header,
            header: None,
            wrong_back_links: 0,
        }
    }

    /// Takes the next bytes of the file, in any amount.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        if !matches!(self.expect, Expect::Failed(_)) {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next tag, or `None` until more bytes arrive. It does not wait for the length behind the
    /// tag.
    ///
    /// # Errors
    /// The file is not FLV or breaks its rules. The error names the position, and is returned again
    /// by later calls.
    pub fn poll_tag(&mut self) -> Result<Option<Tag>, Error> {
        let result = self.step();
        if let Err(error) = &result {
            self.expect = Expect::Failed(error.clone());
            self.buffer = BytesMut::new();
        }
        result
    }

    /// The file header, once it was read.
    pub fn header(&self) -> Option<Header> {
        self.header
    }

    /// How many of the lengths behind tags were wrong. Only reading backwards needs them, so a
    /// wrong one is accepted.
    pub fn wrong_back_links(&self) -> u64 {
        self.wrong_back_links
    }

    /// Says that the input has ended. Tags that are complete must have been taken before.
    ///
    /// # Errors
    /// The input ended within the file header or a tag. A missing length behind the last tag is no
    /// error.
    pub fn finish(&self) -> Result<(), Error> {
        let left = self.buffer.len();
        let cut_off = |what, needed| Err(Error::cut_off(what, self.position, needed, left as u64));
        match &self.expect {
            Expect::Failed(error) => Err(error.clone()),
            Expect::Header => cut_off("FLV header", FILE_HEADER as u64),
            Expect::Skip(rest) => cut_off("FLV header", *rest),
            Expect::BackLink(_) | Expect::Tag if left == 0 => Ok(()),
            Expect::BackLink(_) => cut_off("FLV previous tag size", BACK_LINK as u64),
            Expect::Tag => {
                let needed = match self.buffer.as_ref() {
                    &[_, a, b, c, ..] => {
                        TAG_HEADER as u64 + u64::from(u32::from_be_bytes([0, a, b, c]))
                    }
                    _ => TAG_HEADER as u64,
                };
                cut_off("FLV tag", needed)
            }
        }
    }

    fn advance(&mut self, count: usize) {
        self.buffer.advance(count);
        self.position += count as u64;
    }

    fn step(&mut self) -> Result<Option<Tag>, Error> {
        loop {
            match self.expect {
                Expect::Failed(ref error) => return Err(error.clone()),
                Expect::Header => {
                    let Some(&[f, l, v, version, flags, ref offset @ ..]) =
                        self.buffer.first_chunk::<FILE_HEADER>()
                    else {
                        let known = self.buffer.len().min(3);
                        if self.buffer.get(..known) != b"FLV".get(..known) {
                            return Err(Error::malformed("no FLV signature", 0));
                        }
                        return Ok(None);
                    };
                    if [f, l, v] != *b"FLV" {
                        return Err(Error::malformed("no FLV signature", 0));
                    }
                    if version != 1 {
                        return Err(Error::unsupported(format!("FLV version {version}"), 3));
                    }
                    let offset = u32::from_be_bytes(*offset);
                    if offset > MAX_FILE_HEADER {
                        return Err(Error::Limit {
                            what: "FLV header length".into(),
                            at: 5,
                            value: offset.into(),
                            limit: MAX_FILE_HEADER.into(),
                        });
                    }
                    let Some(rest) = u64::from(offset).checked_sub(FILE_HEADER as u64) else {
                        return Err(Error::malformed("FLV header length of less than 9", 5));
                    };
                    self.header = Some(Header { audio: flags & 4 != 0, video: flags & 1 != 0 });
                    self.advance(FILE_HEADER);
                    self.expect = Expect::Skip(rest);
                }
                Expect::Skip(0) => self.expect = Expect::BackLink(0),
                Expect::Skip(rest) => {
                    // The rest is at most 1024, so it fits.
                    let count = self.buffer.len().min(rest as usize);
                    if count == 0 {
                        return Ok(None);
                    }
                    self.advance(count);
                    self.expect = Expect::Skip(rest - count as u64);
                }
                Expect::BackLink(length) => {
                    let Some(&link) = self.buffer.first_chunk::<BACK_LINK>() else {
                        return Ok(None);
                    };
                    if u32::from_be_bytes(link) != length {
                        self.wrong_back_links += 1;
                    }
                    self.advance(BACK_LINK);
                    self.expect = Expect::Tag;
                }
                Expect::Tag => return self.tag(),
            }
        }
    }

    fn tag(&mut self) -> Result<Option<Tag>, Error> {
        let position = self.position;
        let Some(&first) = self.buffer.first() else {
            return Ok(None);
        };
        // The first byte already tells the type, so garbage does not make the reader wait for 16
        // MiB.
        if first & 0x20 != 0 {
            return Err(Error::unsupported("encrypted FLV tag", position));
        }
        let Some(kind) = TagKind::from_type(first & 0x1f).filter(|_| first & 0xc0 == 0) else {
            return Err(Error::malformed(format!("FLV tag of type {first}"), position));
        };
        let Some(&[_, s2, s1, s0, t2, t1, t0, t3, _, _, _]) =
            self.buffer.first_chunk::<TAG_HEADER>()
        else {
            return Ok(None);
        };
        let size = u32::from_be_bytes([0, s2, s1, s0]);
        let whole = TAG_HEADER + size as usize;
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let mut bytes = self.buffer.split_to(whole);
        self.position += whole as u64;
        bytes.advance(TAG_HEADER);
        self.expect = Expect::BackLink(TAG_HEADER as u32 + size);
        Ok(Some(Tag {
            kind,
            timestamp: u32::from_be_bytes([t3, t2, t1, t0]),
            payload: bytes.freeze(),
            position,
        }))
    }
}
