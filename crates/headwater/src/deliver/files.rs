//! Files below the VOD root, by range: `/vod/PATH`.
//!
//! The kernel keeps requests inside the root (`openat2` with `RESOLVE_BENEATH`), symbolic links
//! included. What is opened once is what is sent: a file that is replaced meanwhile is another
//! file, one that shrinks ends the connection short.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use media::mp4;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use tokio::task::spawn_blocking;

use super::not_found;
use crate::Origin;
use crate::http::{Piece, Representation, Request, Response, Validators};

/// Manifests of a file packaged on the fly.
const MANIFESTS: [&str; 2] = ["index.m3u8", "manifest.mpd"];

pub(super) async fn respond(request: &Request, origin: &Arc<Origin>) -> Response {
    let Some(path) = request.path().strip_prefix("/vod/") else { return not_found() };
    let root = origin.config.vod.root.clone();
    let wanted = path.to_owned();
    // Opening and reading may wait for a disk, which no event loop may.
    let opened = spawn_blocking(move || open(&root, &wanted)).await;
    let found = match opened {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return refuse(request, &error),
        Err(_) => return Response::text(500, "reading the file failed"),
    };
    let (file, metadata) = match found {
        Found::File(file, metadata) => (file, metadata),
        Found::Unreadable(error) => return Response::text(422, error),
    };
    let modified = metadata.modified().ok();
    let etag = format!(
        "{:x}-{:x}-{:x}.{:x}",
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let representation = Representation {
        length: metadata.len(),
        content_type: content_type(path),
        cache_control: "public, max-age=0, must-revalidate",
        validators: Validators { etag: Some(&etag), modified },
    };
    let file = Arc::new(file);
    representation.respond(request, |range| vec![Piece::File { file: Arc::clone(&file), range }])
}

enum Found {
    File(File, std::fs::Metadata),
    /// The manifest of a file that cannot be packaged, and why.
    Unreadable(media::Error),
}

fn open(root: &Path, path: &str) -> io::Result<Found> {
    let root = rustix::fs::openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let beneath = |path: &str| -> io::Result<(File, std::fs::Metadata)> {
        // NONBLOCK: a FIFO with nobody at its other end must not hold the thread.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve)?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((file, metadata))
    };
    match beneath(path) {
        Ok((file, metadata)) => Ok(Found::File(file, metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            // `movie.mp4/index.m3u8`: what the file itself could be packaged to.
            let Some((container, _)) =
                path.rsplit_once('/').filter(|(_, name)| MANIFESTS.contains(name))
            else {
                return Err(error);
            };
            let (file, metadata) = beneath(container)?;
            match mp4::Index::read(&OnDisk { file, len: metadata.len() }) {
                Err(mp4::ReadError::Format(error)) => Ok(Found::Unreadable(error)),
                Err(mp4::ReadError::Io { source, .. }) => Err(source),
                // A file that is cut off shows it by its tracks: samples lie beyond its end.
                Ok(index) => match index.problem.or_else(|| first_problem(&index.tracks)) {
                    Some(problem) => Ok(Found::Unreadable(problem)),
                    None => Err(error),
                },
            }
        }
        Err(error) => Err(error),
    }
}

fn first_problem(tracks: &[mp4::TrackIndex]) -> Option<media::Error> {
    tracks.iter().find_map(|track| track.problem.clone())
}

fn refuse(request: &Request, error: &io::Error) -> Response {
    use io::ErrorKind::{NotADirectory, NotFound};
    match error.kind() {
        NotFound | NotADirectory => {}
        io::ErrorKind::CrossesDevices => {
            tracing::warn!(peer = %request.peer(), path = request.path(), "leads out of the VOD root");
        }
        _ => tracing::warn!(peer = %request.peer(), path = request.path(), %error, "file"),
    }
    not_found()
}

/// A file as the MP4 reader sees it.
pub(crate) struct OnDisk {
    /// The file.
    pub(crate) file: File,
    /// Its length when it was opened.
    pub(crate) len: u64,
}

impl mp4::Source for OnDisk {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }
}

fn content_type(path: &str) -> &'static str {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "mp4" | "m4v" | "cmfv" => "video/mp4",
        "m4a" | "cmfa" => "audio/mp4",
        "m4s" => "video/iso.segment",
        "mov" => "video/quicktime",
        "ts" => "video/mp2t",
        "flv" => "video/x-flv",
        "webm" => "video/webm",
        "mkv" => "video/x-matroska",
        "mp3" => "audio/mpeg",
        "aac" => "audio/aac",
        "m3u8" => "application/vnd.apple.mpegurl",
        "mpd" => "application/dash+xml",
        "vtt" => "text/vtt; charset=utf-8",
        "html" => "text/html; charset=utf-8",
        "txt" => "text/plain; charset=utf-8",
        "json" => "application/json",
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        _ => "application/octet-stream",
    }
}
