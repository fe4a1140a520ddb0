//! Serves files below the VOD root, with ranges: `/vod/PATH`.
//!
//! The kernel keeps requests inside the root (`openat2` with `RESOLVE_BENEATH`), and this covers
//! symbolic links. If the kernel has the path in memory, the event loop opens the file itself;
//! otherwise a blocking thread does. A response sends the file that was opened, even if another
//! file replaces it meanwhile. [`http`](crate::http) tells how the bytes reach the socket, and what
//! happens if the file is written to.
//!
//! An object of a store is looked up without a thread. Its first bytes are fetched before the answer
//! begins, so that a store that is away gives a 503.

mod listing;
mod media_type;
mod opened;
mod progressive;

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use http::net::LogLimit;
use http::{Method, Piece, Request, Response};
use opened::Found;
pub(super) use opened::Opened;
use payload::{Metadata, Objects, OpenFile, Root, Wait};
use rustix::io::Errno;
use tokio::task::spawn_blocking;

use super::not_found;
use super::recent::Recent;
use crate::Origin;
use crate::path::StreamPath;
use crate::titles::fetched;

/// `Cache-Control` of a resource that may be replaced at any time.
const REVALIDATE: &str = "public, max-age=0, must-revalidate";

/// An answer with bytes of an object begins when this many are here, or all if it is shorter.
const FIRST: u64 = 1 << 20;

/// Content security policy of a folder's page: it can only be looked at.
const LISTING: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Answers a request for a file, or for a folder if folders are listed. `None` if there is neither
/// at that path: it may be a title's resource.
pub(super) async fn respond(
    request: &Request,
    origin: &Arc<Origin>,
    known: &Opened,
    titles: &Recent,
) -> Option<Response> {
    let Some(StreamPath::Vod(path)) = StreamPath::parse(request.path()) else { return None };
    if let Some(found) = known.find(path, request.received()) {
        return Some(file(request, origin, titles, path, &found).await);
    }
    let root = origin.titles.root();
    let opened = match root.objects() {
        Some(objects) => {
            if objects.known(path).is_none()
                && let Some(from) = first_byte(request)
            {
                objects.foresee(path, from);
            }
            find_object(objects, path).await
        }
        None => find_file(root, path).await,
    };
    match opened {
        Ok((Some(opened), metadata)) if metadata.is_file() => {
            if let Some(folder) = root.folder() {
                known.keep(folder, path, &opened, metadata);
            }
            let found = Found::new(path, opened, metadata);
            Some(file(request, origin, titles, path, &found).await)
        }
        Ok((_, metadata)) if metadata.is_dir() && origin.config.vod.listing => {
            // Waits without a thread.
            if let Some(objects) = root.objects()
                && let Err(error) = objects.list(path.trim_end_matches('/'), "").await
            {
                return refuse(request, &error);
            }
            let (root, path) = (root.clone(), path.to_owned());
            let json = listing::wants_json(request);
            let listed = spawn_blocking(move || listing::list(&root, &path, json)).await;
            Some(match listed.map_err(io::Error::other).flatten() {
                Ok(Some((content_type, text))) => Response::new(200)
                    .header("Content-Type", content_type)
                    .header("Cache-Control", REVALIDATE)
                    .header("Vary", "Accept")
                    .header("X-Content-Type-Options", "nosniff")
                    .header("Content-Security-Policy", LISTING)
                    .body(text),
                Ok(None) => {
                    let most = listing::MOST;
                    Response::text(
                        403,
                        format_args!("the folder has more than {most} names, too many to list"),
                    )
                    .header("Cache-Control", REVALIDATE)
                }
                Err(error) => {
                    let path = request.path();
                    tracing::warn!(peer = %request.peer(), path, %error, "folder");
                    Response::text(500, "reading the folder failed")
                }
            })
        }
        Ok(_) => None,
        Err(error) => refuse(request, &error),
    }
}

/// What a path leads to. Only a file need be open.
type Opening = io::Result<(Option<Arc<OpenFile>>, Metadata)>;

/// Opens a file of this machine, on another thread if it may wait for a disk.
async fn find_file(root: &Root, path: &str) -> Opening {
    let opened = match root.find(path, Wait::Never) {
        Err(error) if Wait::is_needed(&error) => {
            let (root, path) = (root.clone(), path.to_owned());
            let found = spawn_blocking(move || root.find(&path, Wait::AsLongAsItTakes)).await;
            found.map_err(io::Error::other).flatten()
        }
        opened => opened,
    };
    opened.map(|(file, metadata)| (Some(file), metadata))
}

/// Which byte of a file an answer to this request begins with; `None` where it may have none, or where only the file's
/// length tells.
fn first_byte(request: &Request) -> Option<u64> {
    let is_condition =
        |(name, _): (&str, _)| name.get(..3).is_some_and(|n| n.eq_ignore_ascii_case("if-"));
    if request.method() != Method::Get || request.headers().any(is_condition) {
        return None;
    }
    let Some(range) = request.header("range") else { return Some(0) };
    range.strip_prefix("bytes=")?.split('-').next()?.parse().ok()
}

/// Opens an object.
async fn find_object(objects: &Arc<dyn Objects>, path: &str) -> Opening {
    let name = path.trim_end_matches('/');
    match objects.open(name).await? {
        (Some(_), _) if name.len() < path.len() => Err(io::ErrorKind::NotADirectory.into()),
        opened => Ok(opened),
    }
}

/// Answers with a file, or the requested part of it.
async fn file(
    request: &Request,
    origin: &Arc<Origin>,
    titles: &Recent,
    path: &str,
    found: &Found,
) -> Response {
    let renewed;
    let (mut found, mut response) = (found, send(request, found));
    if found.file.is_copied() && request.method() == Method::Get {
        let mut begun = begin(&response).await;
        // The object was replaced since it was looked up. The new one is looked up once.
        if begun.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StaleNetworkFileHandle)
            && let Some(objects) = origin.titles.root().objects()
            && let Ok((Some(file), metadata)) = find_object(objects, path).await
        {
            renewed = Found::new(path, file, metadata);
            (found, response) = (&renewed, send(request, &renewed));
            begun = begin(&response).await;
        }
        if let Err(error) = begun {
            return refuse(request, &error).unwrap_or_else(not_found);
        }
    }
    progressive::pace(request, origin, titles, (path, found), response)
}

/// Fetches the first bytes of a response.
async fn begin(response: &Response) -> io::Result<()> {
    fetched(&http::slice(response.pieces(), &(0..FIRST))).await
}

fn send(request: &Request, found: &Found) -> Response {
    let Found { file, metadata, bytes, .. } = found;
    let (version, representation) = (metadata.version, found.representation());
    let piece = |range: Range<u64>| match bytes {
        // The range is within the bytes, whose length is a usize.
        Some(bytes) => Piece::Bytes(bytes.slice(range.start as usize..range.end as usize)),
        None => Piece::File { file: Arc::clone(file), range, version: Some(version) },
    };
    let response = representation.respond(request, |range| vec![piece(range)]);
    let response = response.header("X-Content-Type-Options", "nosniff");
    if media_type::is_passive(representation.content_type) {
        return response;
    }
    // Anybody who may put files here must not act in the name of the dashboard, which has the same
    // origin. With this policy, a document gets an origin of its own and runs no scripts.
    response.header("Content-Security-Policy", "sandbox")
}

/// Answers a request that cannot be served. `None` if the file does not exist.
fn refuse(request: &Request, error: &io::Error) -> Option<Response> {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    match error.kind() {
        NotFound | NotADirectory | InvalidFilename => return None,
        io::ErrorKind::CrossesDevices => {
            tracing::warn!(peer = %request.peer(), path = request.path(), "leads out of the VOD root");
        }
        _ if is_ours(error) => {
            thread_local! {
                static LOG: RefCell<LogLimit> = const { RefCell::new(LogLimit::rare()) };
            }
            if let Some(others) = LOG.with_borrow_mut(|log| log.take(Instant::now())) {
                let path = request.path();
                tracing::error!(peer = %request.peer(), path, %error, others, "file not opened");
            }
            let response = Response::text(503, "the file cannot be opened now");
            return Some(response.header("Retry-After", 5).header("Cache-Control", "no-store"));
        }
        _ => tracing::warn!(peer = %request.peer(), path = request.path(), %error, "file"),
    }
    Some(not_found())
}

/// Whether the error is the server's or the disk's. Then the file may well exist, and no client or
/// cache may be told that it does not.
fn is_ours(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_none_or(|errno| {
        let ours = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::NOBUFS,
            Errno::IO,
            Errno::STALE,
            Errno::TIMEDOUT,
            Errno::AGAIN,
            Errno::INTR,
        ];
        ours.contains(&errno)
    })
}
