use std::io;
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
