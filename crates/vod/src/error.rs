use std::io;
use std::sync::Arc;

use media::mp4;

/// Why there is no title at a path.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing of that name below the root, or nothing that may be reached.
    #[error("not found")]
    NotFound,
    /// There is a file, and it cannot be packaged: cut off, corrupt, or of codecs that CMAF
    /// segments are not made of here.
    #[error("{what}: {reason}")]
    Unreadable {
        /// Path of the file or folder below the root.
        what: String,
        /// What is wrong, and at which byte of the file.
        reason: media::Error,
    },
    /// The file could not be read.
    #[error("{what}: {source}")]
    Io {
        /// Path of the file or folder below the root.
        what: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
}

impl Error {
    /// What a failed system call on `what` means to who asked for it: that a name leads nowhere,
    /// or out of the root, is no failure.
    pub(crate) fn io(what: &str, error: io::Error) -> Self {
        use io::ErrorKind::{
            CrossesDevices, InvalidFilename, InvalidInput, NotADirectory, NotFound,
            PermissionDenied,
        };
        let nowhere = match error.kind() {
            NotFound | NotADirectory | CrossesDevices | InvalidFilename | InvalidInput
            | PermissionDenied => true,
            _ => error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()),
        };
        if nowhere {
            return Self::NotFound;
        }
        Self::Io { what: what.to_owned(), source: Arc::new(error) }
    }

    pub(crate) fn read(what: &str, error: mp4::ReadError) -> Self {
        match error {
            mp4::ReadError::Format(reason) => Self::Unreadable { what: what.to_owned(), reason },
            mp4::ReadError::Io { source, .. } => Self::io(what, source),
        }
    }
}
