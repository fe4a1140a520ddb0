//! Titles: files packaged on the fly, `/vod/PATH.mp4/index.m3u8` and the resources that it names.
//!
//! ```text
//! Request ─ a file of that name? ─▶ files
//!              │ no
//!              ▼
//!         vod::Library ─▶ Title ─┬ hls, dash     rendered once a title
//!                                ├ segments      header bytes ours, sample bytes the file's
//!                                └ push          the same segments, unasked
//! ```
//!
//! # What a segment costs
//!
//! Only the file system knows whether a path still leads to the same files. Asking it may wait for
//! a disk, so another thread does that (and, for a folder, lists it). A thousand viewers of a title
//! would ask a thousand times in as many milliseconds. So a worker remembers for a second which
//! title a path led to. From that it answers requests that name the title's version: a playlist
//! named that version, and its bytes stay the title's whatever happens to the path. This holds for
//! files that are *replaced*: the title still reads the files it has open, so requests for the
//! older version may get that version's bytes for one second more. A file that is *written into* is
//! noticed at once: `fstat(2)`, which waits for no disk, compares the open file with the one that
//! was packaged. `cargo bench -p headwater --bench vod` compares the two ways.

mod dash;
mod hls;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Piece, Representation, Request, Response, Validators};
use live::Delivery;
use media::Kind;
use tokio::task::spawn_blocking;
use vod::{Error, Rendered, Title, Track};

use super::files::{self, Opened};
use super::recent::Recent;
use super::route::Packaged;
use super::told::{self, Watched};
use super::visit::Visit;
use super::{Viewer, may_play, not_found, refused};
use crate::Origin;
use crate::access::Grant;
use crate::path::StreamPath;
use crate::push::Push;
use crate::titles::gather;
use crate::traces::Trace;

/// `Cache-Control` of a resource with its version in the URL: its bytes never change.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// `Cache-Control` of a resource that may change.
const REVALIDATE: &str = "public, max-age=0, must-revalidate";

/// Answers a request for `resource` of the title at `path`, if there is one.
pub(super) async fn respond(
    request: &Request,
    origin: &Arc<Origin>,
    recent: &Recent,
    files: &Opened,
    (push, viewer): (&Rc<Push>, Viewer<'_>),
    (path, resource): (&str, Packaged<'_>),
) -> Response {
    if let Packaged::Beacon = resource
        && (request.method() == Method::Post || told::is_told(request))
    {
        return beacon(request, origin, recent, path).await;
    }
    let Viewer { grant, signed, visit, trace } = viewer;
    let push = (push, grant, trace);
    let (version, now) = (request.parameter("v"), origin.now());
    let is_named = |title: &Title| version.as_deref() == Some(&title.version.to_string());
    if let Some(title) = recent.find(path, now).filter(|title| is_named(title))
        && title.is_intact()
    {
        return reply(request, origin, push, (&title, visit), true, resource).await;
    }
    // A title may already be segmented: its files go first. In a store, nothing is below an object
    // that has a title of this version.
    let known = origin.titles.known(path);
    if known.is_none() {
        origin.titles.foresee(path);
    }
    if let Some(title) = known.and_then(Result::ok).filter(|title| is_named(title)) {
        return reply(request, origin, push, (&title, visit), true, resource).await;
    }
    let file = match is_object(origin, path).await {
        true => None,
        false => files::respond(request, origin, files, recent).await,
    };
    // A store that is away does not say that there is no file, but the cache may have the title.
    let is_unknown =
        |file: &Response| file.status() == 503 && origin.titles.root().objects().is_some();
    let unknown = match file {
        Some(file) if !is_unknown(&file) => {
            // A permission for the title `a` is none for the file `a/index.m3u8`.
            let own = StreamPath::parse(request.path());
            let own = own.unwrap_or(StreamPath::Vod(path));
            return match may_play(origin, request, (own, false), signed).await {
                Ok(_) => file,
                Err(refusal) => refused(refusal),
            };
        }
        unknown => unknown,
    };
    let title = match recent.look_up(origin, path).await {
        Ok(title) => title,
        Err(error) => return unknown.unwrap_or_else(|| refuse(request, origin, &error)),
    };
    let named = is_named(&title);
    // Clients learn versions from manifests, so these need none.
    let any = version.is_none() || matches!(resource, Packaged::Multivariant | Packaged::Manifest);
    if !named && !any {
        return unknown.unwrap_or_else(not_found);
    }
    reply(request, origin, push, (&title, visit), named, resource).await
}

/// Answers what a player tells of itself.
async fn beacon(request: &Request, origin: &Arc<Origin>, recent: &Recent, path: &str) -> Response {
    match recent.look_up(origin, path).await {
        Ok(title) => {
            let watched = Watched::Title(&title.path, viewer(request, &title));
            told::by_beacon(request, watched, origin)
        }
        Err(error) => refuse(request, origin, &error),
    }
}

/// Whether the path leads to an object of a store. Then no file is below the path.
async fn is_object(origin: &Origin, path: &str) -> bool {
    let Some(objects) = origin.titles.root().objects() else { return false };
    let found = match objects.known(path) {
        Some(known) => known,
        None => objects.look_up(path).await,
    };
    found.is_ok_and(|metadata| metadata.is_file())
}

fn refuse(request: &Request, origin: &Origin, error: &Error) -> Response {
    match error {
        Error::NotFound => not_found(),
        // The library has logged this once.
        Error::Unreadable { .. } => Response::text(422, error).header("Cache-Control", "no-cache"),
        _ => {
            // What a store does not answer is logged there, and less often.
            if origin.titles.root().objects().is_none() {
                tracing::error!(peer = %request.peer(), path = request.path(), %error, "title");
            }
            unreadable(origin)
        }
    }
}

/// Whether reading failed because the file was replaced or deleted.
fn is_over(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StaleNetworkFileHandle | io::ErrorKind::NotFound)
}

/// Answers who asks for bytes that cannot be read. A store may be back soon.
fn unreadable(origin: &Origin) -> Response {
    let response = match origin.titles.root().objects() {
        Some(_) => Response::text(503, "the file cannot be fetched now").header("Retry-After", 5),
        None => Response::text(500, "reading the file failed"),
    };
    response.header("Cache-Control", "no-store")
}

/// Answers after slow work was done on another thread.
async fn reply(
    request: &Request,
    origin: &Origin,
    push: (&Rc<Push>, Grant, &mut Trace),
    (title, visit): (&Arc<Title>, Option<&Visit<'_>>),
    named: bool,
    resource: Packaged<'_>,
) -> Response {
    if let Packaged::Push = resource {
        let (push, grant, trace) = push;
        return push.play(request, title, grant, trace);
    }
    let entries = |track: &Track| track.segment_count() + track.iframe_count();
    let is_large = || title.tracks.iter().map(entries).sum::<u32>() > LARGE;
    if let Some(name) = playlist_name(resource)
        && !title.is_rendered(&name)
        && is_large()
    {
        let title = Arc::clone(title);
        // If this fails, the code below writes it.
        let _ = spawn_blocking(move || written(&title, &name)).await;
    }
    let track = |name| title.track(name);
    let segment = match resource {
        Packaged::Segment { track: name, number } => track(name).and_then(|t| t.segment(number)),
        Packaged::IFrame { track: name, number } => track(name).and_then(|t| t.iframe(number)),
        _ => None,
    };
    let segment = match segment {
        Some(pieces) if request.method() == Method::Get => match gather(title, pieces).await {
            Ok(pieces) => Some(pieces),
            // A read may be the first to find that a store has another version. Players learn the
            // new version from a playlist.
            Err(error) if named && is_over(&error) => return not_found(),
            Err(_) => return unreadable(origin),
        },
        found => found,
    };
    answer(request, origin, (title, visit), named, resource, segment).unwrap_or_else(not_found)
}

/// If a title has more segments and I-frames than this, its playlists are written on another thread
/// than the event loop.
const LARGE: u32 = 4096;

/// Keys in a title's cache. No track has such a name, whatever is requested.
const INDEX: &str = "/index";
const MANIFEST: &str = "/manifest";

/// The key of a playlist or manifest in its title's cache.
fn playlist_name(resource: Packaged<'_>) -> Option<String> {
    Some(match resource {
        Packaged::Multivariant => INDEX.to_owned(),
        Packaged::Manifest => MANIFEST.to_owned(),
        Packaged::MediaPlaylist { track } => track.to_owned(),
        Packaged::IFramePlaylist { track } => format!("{track}/i"),
        _ => return None,
    })
}

/// The playlist or manifest with this key, if the title has it.
fn written(title: &Title, name: &str) -> Option<Rendered> {
    Some(match name {
        INDEX => title.rendered(name, || hls::multivariant(title).into()),
        MANIFEST => title.rendered(name, || dash::manifest(title).into()),
        _ => {
            if let Some(track) = name.strip_suffix("/i") {
                let track = title.track(track).filter(|track| track.iframe_count() > 0)?;
                title.rendered(name, || hls::i_frames(title, track).into())
            } else if let Some(track) = title.track(name) {
                title.rendered(name, || hls::media(title, track).into())
            } else {
                let text = title.text(name)?;
                title.rendered(name, || hls::text(title, text).into())
            }
        }
    })
}

/// Answers from memory, if the title has the resource. `named`: the request names the title's
/// version. `segment`: the pieces of the requested segment or I-frame.
fn answer(
    request: &Request,
    origin: &Origin,
    (title, visit): (&Title, Option<&Visit<'_>>),
    named: bool,
    resource: Packaged<'_>,
    segment: Option<Vec<Piece>>,
) -> Option<Response> {
    let cache = if named { IMMUTABLE } else { REVALIDATE };
    let viewer = viewer(request, title);
    let watched = Watched::Title(&title.path, viewer);
    let shows = |delivery| {
        if let Some(visit) = visit {
            visit.shows(delivery);
        }
    };
    let opened = |delivery| {
        shows(delivery);
        if told::with(request, watched, Some(delivery), origin) {
            return;
        }
        let name = StreamPath::Vod(&title.path).to_string();
        origin.title_viewers.opened(viewer, &name, delivery, origin.now());
    };
    let watches = || {
        if !told::with(request, watched, None, origin) {
            // The viewer is known: its session begins again after a pause.
            origin.title_viewers.watches(viewer, origin.now()).map(shows);
        }
    };
    let media = |kind, suffix: &str, name: &str, pieces: Vec<Piece>| {
        watches();
        let etag = format!("{}-{name}", title.version);
        whole(request, &format!("{kind}/{suffix}"), cache, &etag, &pieces)
    };
    let text = |text: &str, name: &str, bytes: Bytes| {
        watches();
        let etag = format!("{}-{text}-{name}", title.version);
        whole(request, "text/vtt; charset=utf-8", cache, &etag, &[bytes.into()])
    };
    if let Some(name) = playlist_name(resource) {
        let rendered = written(title, &name)?;
        let by_dash = matches!(resource, Packaged::Manifest);
        opened(if by_dash { Delivery::Dash } else { Delivery::Hls });
        return Some(manifest(request, if by_dash { DASH } else { HLS }, &rendered));
    }
    Some(match resource {
        Packaged::Header { track } => {
            let track = title.track(track)?;
            let name = format!("{}-init", track.name);
            media(kind(track), "mp4", &name, vec![Piece::Bytes(track.header())])
        }
        Packaged::Segment { track, number } => {
            let track = title.track(track)?;
            let name = format!("{}-{number}", track.name);
            if let (Some(visit), Kind::Video) = (visit, track.media.kind()) {
                let is_video = |track: &&Track| track.media.kind() == Kind::Video;
                let several = || title.tracks.iter().filter(is_video).nth(1).is_some();
                visit.gets(&track.name, several);
            }
            media(kind(track), "iso.segment", &name, segment?)
        }
        Packaged::IFrame { track, number } => {
            let track = title.track(track)?;
            let name = format!("{}-i{number}", track.name);
            media(kind(track), "iso.segment", &name, segment?)
        }
        Packaged::Text { track, number } => {
            let found = title.text(track)?;
            text(track, &number.to_string(), found.segment(number)?)
        }
        Packaged::WholeText { track } => text(track, "all", title.text(track)?.all()),
        // These are answered above.
        Packaged::Multivariant
        | Packaged::Manifest
        | Packaged::MediaPlaylist { .. }
        | Packaged::IFramePlaylist { .. }
        | Packaged::Push
        | Packaged::Beacon => return None,
    })
}

const HLS: &str = "application/vnd.apple.mpegurl";
const DASH: &str = "application/dash+xml";

/// Answers with a playlist or manifest.
fn manifest(request: &Request, content_type: &str, rendered: &Rendered) -> Response {
    let etag = format!("{:016x}", rendered.hash);
    whole(request, content_type, REVALIDATE, &etag, &[rendered.bytes.clone().into()])
}

/// Answers with complete bytes; ranges and conditions apply.
fn whole(
    request: &Request,
    content_type: &str,
    cache_control: &str,
    etag: &str,
    pieces: &[Piece],
) -> Response {
    let length = http::length(pieces);
    let validators = Validators { etag: Some(etag), modified: None };
    Representation { length, content_type, cache_control, validators, fields: None }
        .respond(request, |range| http::slice(pieces, &range))
}

fn kind(track: &Track) -> &'static str {
    match track.media.kind() {
        Kind::Audio => "audio",
        _ => "video",
    }
}

/// Identifies one player of a title.
fn viewer(request: &Request, title: &Title) -> u64 {
    let mut hasher = DefaultHasher::new();
    super::player(request).hash(&mut hasher);
    title.path.hash(&mut hasher);
    hasher.finish()
}
