use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use media::mp4;
use payload::{FileVersion, OpenFile};

/// An MP4 file of a title.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path below the root.
    pub(crate) name: String,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) len: u64,
    pub(crate) stamp: FileVersion,
    /// Why bytes could not be fetched. A file that was not read has no faults of its own.
    pub(crate) failure: OnceLock<Arc<io::Error>>,
}

/// Bytes at the front of a file that tell where its index is.
const HEAD: u64 = 64 << 10;

/// An index of up to this length is fetched at once. The index of a two-hour title has some 5 MB.
const INDEX: u64 = 16 << 20;

impl Source {
    pub(crate) fn head(&self) -> Range<u64> {
        0..self.len.min(HEAD)
    }

    /// Where the index is, as far as the head tells; its beginning where it may be very long.
    pub(crate) fn index(&self) -> Range<u64> {
        let place = mp4::Index::place(self, self.head().end).unwrap_or_default();
        let most = if place.end - place.start > INDEX { HEAD } else { INDEX };
        place.start..place.end.min(place.start + most)
    }
}

impl mp4::Source for Source {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let read = self.file.read_at(offset, len);
        if let Err(error) = &read
            && self.file.is_copied()
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            let _ = self.failure.set(Arc::new(io::Error::new(error.kind(), error.to_string())));
        }
        read
    }
}
