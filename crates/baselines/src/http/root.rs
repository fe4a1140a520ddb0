//! The served folder. The kernel keeps every path inside it.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// An open folder.
#[derive(Debug)]
pub(crate) struct Root(OwnedFd);

impl Root {
    /// Opens a folder.
    ///
    /// # Errors
    /// The path is not a folder, or cannot be entered.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens the regular file at `path`, which is relative to the folder.
    ///
    /// # Errors
    /// There is no readable file, or it is outside of the folder, possibly through a symbolic link.
    pub(crate) fn file(&self, path: &[u8]) -> io::Result<(File, Metadata)> {
        // NONBLOCK: a FIFO without a writer must not block the thread.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let path = OsStr::from_bytes(path);
        let file = File::from(rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve)?);
        let metadata = file.metadata()?;
        if metadata.is_file() { Ok((file, metadata)) } else { Err(ErrorKind::NotFound.into()) }
    }
}

/// The media type of a file, by the end of its name.
pub(crate) fn media_type(path: &[u8]) -> &'static str {
    let extension = Path::new(OsStr::from_bytes(path)).extension().unwrap_or_default();
    match extension.to_ascii_lowercase().to_str().unwrap_or_default() {
        "mp4" | "m4v" => "video/mp4",
        "m4a" => "audio/mp4",
        "m4s" => "video/iso.segment",
        "ts" => "video/mp2t",
        "flv" => "video/x-flv",
        "webm" => "video/webm",
        "m3u8" => "application/vnd.apple.mpegurl",
        "mpd" => "application/dash+xml",
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "txt" => "text/plain; charset=utf-8",
        "json" => "application/json",
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        _ => "application/octet-stream",
    }
}
