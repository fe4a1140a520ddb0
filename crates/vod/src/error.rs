use std::io;
use std::sync::Arc;

use media::mp4;

/// Why there is no title at a path.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing has that name below the root, or it must not be reached.
    #[error("not found")]
    NotFound,
    /// The file exists but cannot be packaged: it is cut off, corrupt, or has codecs that CMAF
    /// segments here cannot hold.
    #[error("{what}: {reason}")]
    Unreadable {
        /// Path of the file or folder below the root.
        what: String,
        /// What is wrong, and the position in the file.
        reason: media::Error,
    },
    /// The file could not be read.
    #[error("{what}: {source}")]
    Io {
        /// Path of the file or folder below the root.
        what: String,
        /// Error of the system.
        source: Arc<io::Error>,
    },
}

impl Error {
    /// Turns a failed system call on `what` into an error for the caller. A name that leads
    /// nowhere, or out of the root, is not a failure.
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
