//! Detects whether a file has changed.

use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// Tells one content of a file from another, by inode, length and time of last modification. An
/// object has a hash of its entity tag in the place of the inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    inode: u64,
    size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl FileVersion {
    /// The version of a file with these metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }

    /// The version of an object: a hash of what identifies its content, its length, and the seconds
    /// since 1970 of its last modification.
    pub fn of_object(hash: u64, size: u64, seconds: i64) -> Self {
        Self { inode: hash, size, seconds, nanoseconds: 0 }
    }

    /// The current version of an open file.
    ///
    /// # Errors
    /// The system does not report the metadata.
    pub fn now(file: &File) -> io::Result<Self> {
        Ok(Self::of_stat(&rustix::fs::fstat(file)?))
    }

    // The width of these integer types differs between platforms.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    fn of_stat(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            size: stat.st_size as u64,
            seconds: stat.st_mtime as i64,
            nanoseconds: stat.st_mtime_nsec as i64,
        }
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the content was last changed before this time.
    pub fn is_before(&self, time: SystemTime) -> bool {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        (self.seconds, self.nanoseconds) < (seconds, since.subsec_nanos().into())
    }

    /// The version as numbers, for a hash.
    pub fn words(&self) -> [u64; 4] {
        let (seconds, nanoseconds) = (self.seconds, self.nanoseconds);
        [self.inode, self.size, seconds.cast_unsigned(), nanoseconds.cast_unsigned()]
    }

    /// An entity tag (RFC 9110 8.8.3), without its quotes.
    pub fn etag(&self) -> String {
        let Self { inode, size, seconds, nanoseconds } = self;
        format!("{inode:x}-{size:x}-{seconds:x}.{nanoseconds:x}")
    }
}

/// State of the file at a path. It changes when the file is replaced, written to or renamed, or
/// when its permissions change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    device: u64,
    version: FileVersion,
    /// Time of the last status change: seconds and nanoseconds.
    changed: (i64, i64),
}

impl FileState {
    /// The state of a file with these metadata.
    pub fn of(metadata: &Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Self { device: metadata.dev(), version: FileVersion::of(metadata), changed }
    }

    /// The current state of the file at `path`; links are followed. Takes one system call.
    ///
    /// # Errors
    /// There is no file, or the system does not report its metadata.
    // The width of these integer types differs between platforms.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    pub fn at(path: &CStr) -> io::Result<Self> {
        let now = rustix::fs::stat(path)?;
        let version = FileVersion::of_stat(&now);
        let changed = (now.st_ctime as i64, now.st_ctime_nsec as i64);
        Ok(Self { device: now.st_dev, version, changed })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_path_and_its_open_file_agree_until_either_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let at = || FileState::at(&CString::new(path.as_os_str().as_bytes()).unwrap()).unwrap();
        let open = File::open(&path).unwrap();
        let (state, version) = (FileState::of(&open.metadata().unwrap()), FileVersion::now(&open));
        assert_eq!(at(), state);
        std::fs::write(folder.path().join("b"), "two").unwrap();
        std::fs::rename(folder.path().join("b"), &path).unwrap();
        assert_ne!(at(), state);
        // The version of the open file has not changed.
        assert_eq!(FileVersion::now(&open).unwrap(), version.unwrap());
    }
}
