//! Files below a folder.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// How often a path that goes through `..` of a link is looked up again, when a folder was renamed
/// during the lookup.
const RETRIES: usize = 8;

/// A folder whose files are served. The kernel keeps paths inside it, symbolic links included
/// (`openat2` with `RESOLVE_BENEATH`).
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// A root at `path`. The folder need not exist yet: each access opens it again.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file for reading. Blocks.
    ///
    /// # Errors
    /// The error of the system; [`io::ErrorKind::NotFound`] also where `path` names something other
    /// than a file, [`io::ErrorKind::CrossesDevices`] where it leads out of the root.
    pub fn open(&self, path: &str) -> io::Result<(File, Metadata)> {
        let (file, metadata) = self.find(path, Wait::AsLongAsItTakes)?;
        if metadata.is_file() { Ok((file, metadata)) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Opens a file or a folder for reading.
    ///
    /// # Errors
    /// The error of the system; [`io::ErrorKind::CrossesDevices`] where `path` leads out of the
    /// root. Where opening would have to wait and `wait` forbids it, an error that
    /// [`Wait::is_needed`] accepts.
    pub fn find(&self, path: &str, wait: Wait) -> io::Result<(File, Metadata)> {
        // NONBLOCK: a FIFO without a writer must not block the thread.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.beneath(path, flags, wait)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }

    /// Metadata of a file or a folder. Blocks.
    ///
    /// # Errors
    /// The same as those of [`find`](Self::find).
    pub fn stat(&self, path: &str) -> io::Result<Metadata> {
        self.beneath(path, OFlags::PATH, Wait::AsLongAsItTakes)?.metadata()
    }

    /// Names of the entries of a folder, in no order; `None` if there are more than `most`. Blocks.
    ///
    /// # Errors
    /// The same as those of [`find`](Self::find).
    pub fn list(&self, folder: &str, most: usize) -> io::Result<Option<Vec<String>>> {
        let folder =
            self.beneath(folder, OFlags::RDONLY | OFlags::DIRECTORY, Wait::AsLongAsItTakes)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            if names.len() == most {
                return Ok(None);
            }
            // A name that is not UTF-8 cannot be requested.
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(Some(names))
    }

    fn beneath(&self, path: &str, flags: OFlags, wait: Wait) -> io::Result<File> {
        let cached = match wait {
            Wait::Never => ResolveFlags::CACHED,
            Wait::AsLongAsItTakes => ResolveFlags::empty(),
        };
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat2(CWD, &self.path, folder, Mode::empty(), cached)?;
        let path = if path.is_empty() { "." } else { path };
        let resolve = cached | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        let mut opened = open();
        for _ in 0..RETRIES {
            if wait == Wait::Never || !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
            opened = open();
        }
        Ok(opened?.into())
    }
}

/// Whether opening may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Opens only what the kernel has in memory.
    Never,
    /// Opens anything, and waits for the disk if necessary.
    AsLongAsItTakes,
}

impl Wait {
    /// Whether an attempt with [`Never`](Self::Never) failed because it would have had to wait, or
    /// because the kernel does not support such attempts (`RESOLVE_CACHED` needs Linux 5.12).
    pub fn is_needed(error: &io::Error) -> bool {
        matches!(Errno::from_io_error(error), Some(Errno::AGAIN | Errno::INVAL | Errno::NOSYS))
    }
}
