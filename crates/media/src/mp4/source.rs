use std::borrow::Borrow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use crate::Error;

/// Random access to the bytes of a file: an open file ([`OnDisk`]), memory, or a wrapper around a
/// cache or an object store.
pub trait Source {
    /// Length in bytes. Must not change while an index is being read.
    fn len(&self) -> u64;

    /// Reads exactly `len` bytes from `offset`.
    ///
    /// # Errors
    /// The range cannot be read; [`io::ErrorKind::UnexpectedEof`] where it extends beyond the
    /// source.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Whether there is nothing to read.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An open file. This is the only place in the crate that does I/O, and only when a caller reads.
#[derive(Debug)]
pub struct OnDisk<F> {
    file: F,
    len: u64,
}

impl<F: Borrow<File>> OnDisk<F> {
    /// Wraps an open file with its current length.
    ///
    /// # Errors
    /// The system does not report the length.
    pub fn new(file: F) -> io::Result<Self> {
        let len = file.borrow().metadata()?.len();
        Ok(Self::of(file, len))
    }

    /// Wraps an open file whose length is known.
    pub fn of(file: F, len: u64) -> Self {
        Self { file, len }
    }
}

impl<F: Borrow<File>> Source for OnDisk<F> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        self.file.borrow().read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }
}

/// The given range of `data`; an error where it extends beyond the end.
fn slice(data: &[u8], offset: u64, len: usize) -> io::Result<&[u8]> {
    usize::try_from(offset)
        .ok()
        .and_then(|from| data.get(from..from.checked_add(len)?))
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Source for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        slice(self, offset, len).map(Bytes::copy_from_slice)
    }
}

impl Source for Bytes {
    fn len(&self) -> u64 {
        Bytes::len(self) as u64
    }

    /// Shares the memory and copies nothing.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        slice(self, offset, len).map(|part| self.slice_ref(part))
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        (**self).read_at(offset, len)
    }
}

/// Why a [`Source`] did not yield an index or a sample: its bytes are invalid, or reading them
/// failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not a file this crate can read.
    #[error(transparent)]
    Format(#[from] Error),
    /// The bytes could not be read.
    #[error("reading {len} bytes at byte {at}")]
    Io {
        /// First byte of the range.
        at: u64,
        /// Number of bytes requested.
        len: usize,
        /// Error from the source.
        source: io::Error,
    },
}

/// Bytes kept from one read to the next. Box headers are small and close to each other, and each
/// read of the source has a cost.
pub(super) const WINDOW: usize = 4096;

/// Reads a source from front to back, a window at a time.
pub(super) struct Window<'a, S: ?Sized> {
    source: &'a S,
    /// [`Source::len`], queried once.
    pub(super) len: u64,
    at: u64,
    bytes: Bytes,
}

impl<'a, S: Source + ?Sized> Window<'a, S> {
    pub(super) fn new(source: &'a S) -> Self {
        Self { source, len: source.len(), at: 0, bytes: Bytes::new() }
    }

    /// Returns `len` bytes from `offset`; fewer only where the source ends.
    pub(super) fn get(&mut self, offset: u64, len: usize) -> Result<Bytes, ReadError> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = len.min(left);
        let held = offset
            .checked_sub(self.at)
            .and_then(|skip| usize::try_from(skip).ok())
            .filter(|skip| skip.checked_add(len).is_some_and(|end| end <= self.bytes.len()));
        if let Some(skip) = held {
            return Ok(self.bytes.slice(skip..skip + len));
        }
        let wanted = len.max(WINDOW.min(left));
        let bytes = read_exact(self.source, offset, wanted)?;
        if wanted > WINDOW {
            // Such a large read is not kept: it would hold a whole moov in memory.
            return Ok(bytes.slice(..len));
        }
        self.at = offset;
        self.bytes = bytes;
        Ok(self.bytes.slice(..len))
    }
}

/// Reads from the source and checks that the length is right: a source may misbehave.
pub(super) fn read_exact<S: Source + ?Sized>(
    source: &S,
    at: u64,
    len: usize,
) -> Result<Bytes, ReadError> {
    match source.read_at(at, len) {
        Ok(bytes) if bytes.len() == len => Ok(bytes),
        Ok(_) => Err(ReadError::Io { at, len, source: io::ErrorKind::UnexpectedEof.into() }),
        Err(source) => Err(ReadError::Io { at, len, source }),
    }
}
