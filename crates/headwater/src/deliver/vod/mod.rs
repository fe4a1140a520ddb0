//! Titles: files packaged on the fly, `/vod/PATH.mp4/index.m3u8` and what follows from it.
//!
//! ```text
//! Request ─ a file of that name? ─▶ files
//!              │ no
//!              ▼
//!         vod::Library ─▶ Title ─┬ hls, dash     rendered once a title
//!                                └ segments      header bytes ours, sample bytes the file's
//! ```
//!
//! # What a segment costs
//!
//! Whether a path still leads to the same files only the file system knows, and asking it may wait
//! for a disk, so another thread is asked (and, for a folder, lists it). A thousand viewers of a
//! title would do that a thousand times in as many milliseconds. So a worker remembers for a second
//! which title a path led to, and answers from that what is asked for by the title's version: a
//! playlist named it so, and its bytes are the title's whatever becomes of the name. That holds for
//! files that are *replaced*: the title goes on reading the ones it has open, so an older version's
//! name may be answered for a second more, with that version's bytes. A file that is *written into*
//! is noticed at once: what is open is compared with what was packaged by `fstat(2)`, which waits
//! for no disk. `cargo bench -p headwater --bench vod` tells the two ways apart.

mod dash;
mod hls;
mod viewers;

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use live::{Delivery, UnixMicros};
use media::Kind;
use tokio::task::spawn_blocking;
use vod::{Error, Rendered, Title, Track};

use super::route::Packaged;
use super::{files, not_found};
use crate::Origin;
use crate::http::{self, Piece, Representation, Request, Response, Validators};

pub use viewers::Viewers;

/// How long a worker takes a path to lead to the same title.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Titles that a worker remembers.
const MOST: usize = 1024;

/// Of what is named by its version: those bytes and no other, for ever.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// Of what may be another tomorrow.
const REVALIDATE: &str = "public, max-age=0, must-revalidate";

/// Which titles a worker has just seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// By path. What the library has let go of is not kept alive.
    titles: Rc<RefCell<HashMap<Box<str>, Seen>>>,
}

/// A title, and when its path led to it.
#[derive(Debug)]
struct Seen {
    title: Weak<Title>,
    at: UnixMicros,
}

impl Recent {
    fn find(&self, path: &str, now: UnixMicros) -> Option<Arc<Title>> {
        let titles = self.titles.borrow();
        let seen = titles.get(path)?;
        (now.since(seen.at) < REMEMBERED).then(|| seen.title.upgrade())?
    }

    fn remember(&self, path: &str, title: &Arc<Title>, now: UnixMicros) {
        let mut titles = self.titles.borrow_mut();
        if titles.len() >= MOST {
            titles.retain(|_, seen| now.since(seen.at) < REMEMBERED);
        }
        if titles.len() < MOST {
            titles.insert(path.into(), Seen { title: Arc::downgrade(title), at: now });
        }
    }
}

/// Answers a request for `resource` of what may be a title at `path`.
pub(super) async fn respond(
    request: &Request,
    origin: &Arc<Origin>,
    recent: &Recent,
    path: &str,
    resource: Packaged<'_>,
) -> Response {
    let (version, now) = (request.parameter("v"), origin.now());
    let is_named = |title: &Title| version.as_deref() == Some(&title.version.to_string());
    if let Some(title) = recent.find(path, now).filter(|title| is_named(title))
        && title.is_intact()
    {
        return answer(request, origin, &title, true, resource).unwrap_or_else(not_found);
    }
    // An already segmented title: its files go first.
    if let Some(response) = files::respond(request, origin).await {
        return response;
    }
    let (library, wanted) = (Arc::clone(origin), path.to_owned());
    let title = match spawn_blocking(move || library.titles.title(&wanted)).await {
        Ok(Ok(title)) => title,
        Ok(Err(error)) => return refuse(request, &error),
        Err(_) => return Response::text(500, "reading the file failed"),
    };
    recent.remember(path, &title, now);
    let named = is_named(&title);
    // Manifests are what versions are learned from.
    let any = version.is_none() || matches!(resource, Packaged::Multivariant | Packaged::Manifest);
    if !named && !any {
        return not_found();
    }
    answer(request, origin, &title, named, resource).unwrap_or_else(not_found)
}

fn refuse(request: &Request, error: &Error) -> Response {
    match error {
        Error::NotFound => not_found(),
        Error::Unreadable { .. } => {
            tracing::warn!(peer = %request.peer(), path = request.path(), %error, "not packaged");
            Response::text(422, error).header("Cache-Control", "no-cache")
        }
        _ => {
            tracing::error!(peer = %request.peer(), path = request.path(), %error, "title");
            Response::text(500, "reading the file failed").header("Cache-Control", "no-store")
        }
    }
}

/// Answers from memory, if the title has that resource. `named`: the request names its version.
fn answer(
    request: &Request,
    origin: &Origin,
    title: &Title,
    named: bool,
    resource: Packaged<'_>,
) -> Option<Response> {
    let cache = if named { IMMUTABLE } else { REVALIDATE };
    let viewer = viewer(request, title);
    let opened = |delivery| {
        let name = format!("vod/{}", title.path);
        origin.title_viewers.opened(viewer, &name, delivery, origin.now());
    };
    let media = |kind, suffix: &str, name: &str, pieces: Vec<vod::Piece>| {
        origin.title_viewers.watches(viewer, origin.now());
        let pieces: Vec<Piece> = pieces.into_iter().map(piece).collect();
        let etag = format!("{}-{name}", title.version);
        whole(request, &format!("{kind}/{suffix}"), cache, &etag, &pieces)
    };
    let text = |text: &str, name: &str, bytes: Bytes| {
        origin.title_viewers.watches(viewer, origin.now());
        let etag = format!("{}-{text}-{name}", title.version);
        whole(request, "text/vtt; charset=utf-8", cache, &etag, &[bytes.into()])
    };
    Some(match resource {
        Packaged::Multivariant => {
            opened(Delivery::Hls);
            let render = || hls::multivariant(title).into();
            manifest(request, HLS, &title.rendered("index.m3u8", render))
        }
        Packaged::Manifest => {
            opened(Delivery::Dash);
            let render = || dash::manifest(title).into();
            manifest(request, DASH, &title.rendered("manifest.mpd", render))
        }
        Packaged::MediaPlaylist { track: name } => {
            let rendered = if let Some(track) = title.track(name) {
                title.rendered(name, || hls::media(title, track).into())
            } else {
                let text = title.text(name)?;
                title.rendered(name, || hls::text(title, text).into())
            };
            opened(Delivery::Hls);
            manifest(request, HLS, &rendered)
        }
        Packaged::IFramePlaylist { track } => {
            let track = title.track(track).filter(|track| track.iframe_count() > 0)?;
            opened(Delivery::Hls);
            let render = || hls::i_frames(title, track).into();
            manifest(request, HLS, &title.rendered(&format!("{}/i", track.name), render))
        }
        Packaged::Header { track } => {
            let track = title.track(track)?;
            let name = format!("{}-init", track.name);
            media(kind(track), "mp4", &name, vec![vod::Piece::Bytes(track.header())])
        }
        Packaged::Segment { track, number } => {
            let track = title.track(track)?;
            let name = format!("{}-{number}", track.name);
            media(kind(track), "iso.segment", &name, track.segment(number)?)
        }
        Packaged::IFrame { track, number } => {
            let track = title.track(track)?;
            let name = format!("{}-i{number}", track.name);
            media(kind(track), "iso.segment", &name, track.iframe(number)?)
        }
        Packaged::Text { track, number } => {
            let found = title.text(track)?;
            text(track, &number.to_string(), found.segment(number)?)
        }
        Packaged::WholeText { track } => text(track, "all", title.text(track)?.all()),
    })
}

const HLS: &str = "application/vnd.apple.mpegurl";
const DASH: &str = "application/dash+xml";

/// Answers with a playlist or manifest.
fn manifest(request: &Request, content_type: &str, rendered: &Rendered) -> Response {
    let etag = format!("{:016x}", rendered.hash);
    whole(request, content_type, REVALIDATE, &etag, &[rendered.bytes.clone().into()])
}

/// Answers with bytes, whole or in ranges; conditions apply.
fn whole(
    request: &Request,
    content_type: &str,
    cache_control: &str,
    etag: &str,
    pieces: &[Piece],
) -> Response {
    let length = http::length(pieces);
    let validators = Validators { etag: Some(etag), modified: None };
    Representation { length, content_type, cache_control, validators }
        .respond(request, |range| http::slice(pieces, &range))
}

fn piece(piece: vod::Piece) -> Piece {
    match piece {
        vod::Piece::Bytes(bytes) => Piece::Bytes(bytes),
        vod::Piece::File { file, range } => Piece::File { file, range },
    }
}

fn kind(track: &Track) -> &'static str {
    match track.media.kind() {
        Kind::Audio => "audio",
        _ => "video",
    }
}

/// Stands for one player of a title.
fn viewer(request: &Request, title: &Title) -> u64 {
    let mut hasher = DefaultHasher::new();
    super::player(request).hash(&mut hasher);
    title.path.hash(&mut hasher);
    hasher.finish()
}
