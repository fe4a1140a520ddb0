//! Boxes in memory, ISO/IEC 14496-12 4.2, and the numbers in them.

use crate::Error;

/// A four-character code for messages: bytes that are not printable ASCII become `?`.
pub(super) fn name(kind: [u8; 4]) -> String {
    kind.iter()
        .map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '?' })
        .collect()
}

/// Contents of a box header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) kind: [u8; 4],
    /// Bytes of the header: 8, 16 with a 64-bit size, 16 more for `uuid`.
    pub(super) len: u64,
    /// Bytes of the whole box; `None` where it extends to the end of its container.
    pub(super) size: Option<u64>,
}

impl Header {
    /// Longest box header in bytes.
    pub(super) const MAX: usize = 32;

    /// Reads the header at the start of `data`, whose first byte is at `at`.
    pub(super) fn parse(data: &[u8], at: u64) -> Result<Self, Error> {
        let mut body = Body { data, at, start: at, whole: data.len() as u64, kind: *b"head" };
        let size = body.u32()?;
        let kind = body.array::<4>()?;
        let mut len = 8;
        let size = match size {
            0 => None,
            1 => {
                len += 8;
                Some(body.u64()?)
            }
            size => Some(u64::from(size)),
        };
        if kind == *b"uuid" {
            len += 16;
        }
        match size {
            // Some writers give a `free` box a size that is less than its header. Skipping only the
            // header, and reading what follows as boxes, loses nothing.
            Some(size) if size < len && matches!(&kind, b"free" | b"skip") => {
                Ok(Self { kind, len, size: Some(len) })
            }
            Some(size) if size < len => Err(Error::malformed(
                format!("box {}: size {size} is less than its header", name(kind)),
                at,
            )),
            _ => Ok(Self { kind, len, size }),
        }
    }
}

/// The unread rest of a box's payload. Reads never go beyond it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body<'a> {
    /// Bytes left to read.
    pub(super) data: &'a [u8],
    /// Position of `data` in the file.
    pub(super) at: u64,
    /// Position of the box in the file.
    pub(super) start: u64,
    /// Size of the whole box.
    pub(super) whole: u64,
    pub(super) kind: [u8; 4],
}

impl<'a> Body<'a> {
    /// An error about this box, at the current reading position.
    pub(super) fn malformed(&self, what: impl std::fmt::Display) -> Error {
        Error::malformed(format!("{}: {what}", name(self.kind)), self.at)
    }

    fn short(&self, wanted: usize) -> Error {
        let read = self.at.saturating_sub(self.start);
        let needed = read.saturating_add(wanted as u64);
        Error::cut_off(format!("box {}", name(self.kind)), self.start, needed, self.whole)
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.data.split_at_checked(len).ok_or_else(|| self.short(len))?;
        self.data = rest;
        self.at += len as u64;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.data.split_first_chunk::<N>().ok_or_else(|| self.short(N))?;
        self.data = rest;
        self.at += N as u64;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_be_bytes)
    }

    /// Version and flags of a full box, 14496-12 4.2.2.
    pub(super) fn version_flags(&mut self) -> Result<(u8, u32), Error> {
        let word = self.u32()?;
        Ok(((word >> 24) as u8, word & 0x00ff_ffff))
    }

    /// A 64-bit number in version 1, a 32-bit one in version 0.
    pub(super) fn u32_or_u64(&mut self, version: u8) -> Result<u64, Error> {
        if version == 0 { self.u32().map(u64::from) } else { self.u64() }
    }

    /// Reads `count` records of `N` bytes each. An error, before anything is allocated, where the
    /// box does not hold that many.
    pub(super) fn records<const N: usize>(&mut self, count: u32) -> Result<&'a [[u8; N]], Error> {
        let room = self.data.as_chunks::<N>().0;
        room.get(..count as usize).ok_or_else(|| {
            self.malformed(format_args!("{count} entries announced, {} present", room.len()))
        })
    }

    /// The boxes inside, in order. Iteration ends after the first broken one. Bytes that are too
    /// few for another header (QuickTime's four zero bytes) are ignored.
    pub(super) fn children(self) -> Children<'a> {
        Children { rest: self }
    }

    /// The user type of a child that is a `uuid` box.
    pub(super) fn user_type(self, child: &Body) -> Option<[u8; 16]> {
        // The user type is the end of the header.
        let from = child.at.checked_sub(16)?.checked_sub(self.at)?;
        let data = self.data.get(usize::try_from(from).ok()?..)?;
        data.first_chunk().copied().filter(|_| child.kind == *b"uuid")
    }

    /// The first child of this kind.
    pub(super) fn child(self, kind: &[u8; 4]) -> Result<Option<Body<'a>>, Error> {
        for child in self.children() {
            let child = child?;
            if child.kind == *kind {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    /// The first child of this kind. An error where there is none.
    pub(super) fn required(self, kind: &[u8; 4]) -> Result<Body<'a>, Error> {
        self.child(kind)?.ok_or_else(|| {
            let what = format!("{}: no {} inside", name(self.kind), name(*kind));
            Error::malformed(what, self.start)
        })
    }
}

/// See [`Body::children`].
pub(super) struct Children<'a> {
    rest: Body<'a>,
}

impl<'a> Children<'a> {
    fn read(&mut self) -> Result<Body<'a>, Error> {
        let rest = self.rest;
        let header = Header::parse(rest.data, rest.at)?;
        let left = rest.data.len() as u64;
        let size = header.size.unwrap_or(left);
        let too_long = || Error::cut_off(format!("box {}", name(header.kind)), rest.at, size, left);
        let whole = usize::try_from(size)
            .ok()
            .and_then(|size| rest.data.get(..size))
            .ok_or_else(too_long)?;
        let data = whole.get(header.len as usize..).ok_or_else(too_long)?;
        self.rest.data = rest.data.get(whole.len()..).unwrap_or_default();
        self.rest.at += size;
        let at = rest.at + header.len;
        Ok(Body { data, at, start: rest.at, whole: size, kind: header.kind })
    }
}

impl<'a> Iterator for Children<'a> {
    type Item = Result<Body<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.data.len() < 8 {
            return None;
        }
        let child = self.read();
        if child.is_err() {
            self.rest.data = &[];
        }
        Some(child)
    }
}
