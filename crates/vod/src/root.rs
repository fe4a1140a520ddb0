//! The folder that everything is below, and what is known of a file without reading it.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use media::mp4;
use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};

/// A folder whose files are served. The kernel keeps paths inside it, symbolic links included
/// (`openat2` with `RESOLVE_BENEATH`).
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// The folder at `path`, which need not exist yet: it is opened with each file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] also where `path` names something other
    /// than a file, [`io::ErrorKind::CrossesDevices`] where it leads out of the root.
    pub fn open(&self, path: &str) -> io::Result<(File, Metadata)> {
        // NONBLOCK: a FIFO with nobody at its other end must not hold the thread.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.beneath(path, flags)?;
        let metadata = file.metadata()?;
        if metadata.is_file() { Ok((file, metadata)) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// What the system knows of `path`, be it a file or a folder.
    pub(crate) fn stat(&self, path: &str) -> io::Result<Metadata> {
        self.beneath(path, OFlags::PATH)?.metadata()
    }

    /// Names of what a folder holds, in no order; `None` of one with more than `most` entries.
    pub(crate) fn list(&self, folder: &str, most: usize) -> io::Result<Option<Vec<String>>> {
        let folder = self.beneath(folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            if names.len() == most {
                return Ok(None);
            }
            // A name that is not UTF-8 cannot be asked for.
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(Some(names))
    }

    fn beneath(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &self.path, folder, Mode::empty())?;
        let path = if path.is_empty() { "." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        Ok(rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve)?.into())
    }
}

/// What tells one content of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }

    /// Whether the content was last changed before this time.
    pub(crate) fn is_before(&self, time: SystemTime) -> bool {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        (self.seconds, self.nanoseconds) < (seconds, since.subsec_nanos().into())
    }

    /// As numbers, for a hash.
    pub(crate) fn words(&self) -> [u64; 4] {
        let (seconds, nanoseconds) = (self.seconds, self.nanoseconds);
        [self.inode, self.size, seconds.cast_unsigned(), nanoseconds.cast_unsigned()]
    }
}

/// An open file as the MP4 reader sees it.
pub(crate) struct OnDisk<'a> {
    pub(crate) file: &'a File,
    /// Its length when it was opened.
    pub(crate) len: u64,
}

impl mp4::Source for OnDisk<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        read_at(self.file, offset, len)
    }
}

/// Exactly `len` bytes of a file.
pub(crate) fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes.into())
}
