//! The titles, folder by folder.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use live::UnixMicros;
use media::Kind;
use payload::{Piece, Wait};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use vod::{Error, Title, Track};

use super::streams::TrackInfo;
use super::{Control, Observer, api, has, json, rfc3339};
use crate::Origin;

/// Most titles and folders in one answer.
const MOST: usize = 1000;

/// Most names that are looked at for one answer. A folder may have very many files that are no titles.
const LOOKED_AT: usize = 10_000;

/// How many requests read the disk at once. Each holds a thread that media may need.
const TURNS: usize = 2;

/// The path of the root.
const ROOT: &str = "vod";

/// Frames of at least this width are enough for a poster, in pixels.
const POSTER: u32 = 320;

/// Largest keyframe that is sent as a poster, in bytes.
const LARGEST: u64 = 4 << 20;

/// A refusal: its status, and a line.
type Refused = (StatusCode, &'static str);

const NO_FOLDER: Refused = (StatusCode::NOT_FOUND, "no such folder, or it cannot be read\n");
const NO_TITLE: Refused = (StatusCode::NOT_FOUND, "no such title, or it cannot be read\n");
const NO_POSTER: Refused = (StatusCode::NOT_FOUND, "no picture of such a title\n");
const TOO_MANY: Refused =
    (StatusCode::UNPROCESSABLE_ENTITY, "the folder has too many names to list\n");
const FAILED: Refused = (StatusCode::INTERNAL_SERVER_ERROR, "reading failed\n");

pub(super) fn turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(TURNS))
}

/// What a client asks for.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    folder: String,
    after: String,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { folder: ROOT.to_owned(), after: String::new() }
    }
}

/// Titles and folders in a folder below the VOD root.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Titles")]
pub(super) struct TitleList {
    /// The folder: `vod`, or `vod/PATH`.
    folder: String,
    /// Whether it has so few files that they may be renditions of one title, which is played by the folder's path.
    is_title: bool,
    /// At most 1,000 files and folders, by name.
    titles: Vec<TitleInfo>,
    /// The name after which to go on. `null` if this is all.
    next: Option<String>,
}

/// A file that may be a title, or a folder.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Title")]
pub(super) struct TitleInfo {
    /// Its path: `vod/PATH`.
    path: String,
    /// What it is.
    kind: TitleKind,
    /// Bytes of a file. `null` for a folder.
    size: Option<u64>,
    /// When it was last changed. `null` if this is not known.
    #[schemars(extend("format" = "date-time"))]
    modified: Option<String>,
    /// Viewers now; of a folder, also those of all that is in it.
    viewers: usize,
    /// What is in it. `null` in lists, if nobody has opened it lately.
    opened: Option<Opened>,
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TitleKind {
    /// A file with a name as movies have them.
    File,
    /// A folder. It may be a title, too.
    Folder,
}

/// What is in a title.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OpenedTitle")]
struct Opened {
    /// How long it plays. `null` if it cannot be played.
    duration_seconds: Option<f64>,
    /// Its tracks: video by falling bitrate, then audio.
    tracks: Vec<TrackInfo>,
    /// Whether `/api/v1/posters/PATH` has a picture of it.
    poster: bool,
    /// Why it cannot be played. `null` if it can.
    refusal: Option<String>,
}

/// Lists a folder.
pub(super) async fn list(
    State(control): State<Arc<Control>>,
    _: Observer,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Response {
    let Ok(Query(wanted)) = wanted else {
        let why = "folder and after are named once at most\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    answer(&control, move |origin| folder(origin, &wanted.folder, &wanted.after)).await
}

/// Opens a title, and tells what is in it.
pub(super) async fn single(
    State(control): State<Arc<Control>>,
    _: Observer,
    path: Result<Path<String>, PathRejection>,
) -> Response {
    // What is no Unicode names nothing here.
    let Ok(Path(path)) = path else { return NO_TITLE.into_response() };
    answer(&control, move |origin| title(origin, &path)).await
}

/// Answers with the poster of a title. Operators get it even if they may not play the title. It counts no viewer.
pub(super) async fn show(
    State(control): State<Arc<Control>>,
    _: Observer,
    headers: HeaderMap,
    path: Result<Path<String>, PathRejection>,
) -> Response {
    let Ok(Path(path)) = path else { return NO_POSTER.into_response() };
    match look(&control, move |origin| poster(origin, &path)).await {
        Ok((etag, bytes)) => {
            let told =
                [(header::ETAG, etag.as_str()), (header::CACHE_CONTROL, "private, no-cache")];
            match has(&headers, &etag) {
                true => (StatusCode::NOT_MODIFIED, told).into_response(),
                false => (told, [(header::CONTENT_TYPE, "video/mp4")], bytes).into_response(),
            }
        }
        Err(refused) => refused.into_response(),
    }
}

async fn answer<T: Serialize + Send + 'static>(
    control: &Control,
    find: impl FnOnce(&Origin) -> Result<T, Refused> + Send + 'static,
) -> Response {
    match look(control, |origin| find(origin).map(|found| json(&found))).await {
        Ok(found) => api(found, true),
        Err(refused) => refused.into_response(),
    }
}

/// Looks at the disk when it is this one's turn.
async fn look<T: Send + 'static>(
    control: &Control,
    find: impl FnOnce(&Origin) -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    let turn = Arc::clone(&control.looks).acquire_owned().await.map_err(|_| FAILED)?;
    let origin = Arc::clone(&control.origin);
    let looked = spawn_blocking(move || {
        let _turn = turn;
        find(&origin)
    });
    looked.await.unwrap_or(Err(FAILED))
}

/// The path below the root. `None` if viewers could not name it.
fn below_root(path: &str) -> Option<&str> {
    if path == ROOT {
        return Some("");
    }
    path.strip_prefix("vod/").filter(|path| path.split('/').all(is_shown))
}

/// Whether a name is one that is listed: requests can have it, and it is not hidden.
fn is_shown(name: &str) -> bool {
    let is_strange = |b: u8| b == b'\\' || b.is_ascii_control();
    !name.is_empty() && !name.starts_with('.') && !name.bytes().any(is_strange)
}

fn folder(origin: &Origin, path: &str, after: &str) -> Result<TitleList, Refused> {
    let below = below_root(path).ok_or(NO_FOLDER)?;
    let mut list =
        TitleList { folder: path.to_owned(), is_title: false, titles: Vec::new(), next: None };
    let folder = match origin.titles.folder(below) {
        Ok(folder) => folder,
        // The root need not exist yet.
        Err(Error::NotFound) if below.is_empty() => return Ok(list),
        Err(Error::NotFound) => return Err(NO_FOLDER),
        Err(error) => {
            tracing::warn!(folder = path, %error, "folder");
            return Err(FAILED);
        }
    };
    let names = folder.names().ok_or(TOO_MANY)?;
    // The root itself is no title.
    list.is_title = folder.is_title() && !below.is_empty();
    let viewers = viewers(origin, path);
    let first = names.partition_point(|name| name.as_str() <= after);
    let mut left = names[first..].iter();
    for (looked_at, name) in left.by_ref().enumerate() {
        let count = viewers.get(name).copied().unwrap_or_default();
        list.titles
            .extend(is_shown(name).then(|| entry(origin, &join(path, name), count)).flatten());
        if list.titles.len() == MOST || looked_at + 1 == LOOKED_AT {
            list.next = left.next().map(|_| name.clone());
            break;
        }
    }
    Ok(list)
}

fn join(folder: &str, name: &str) -> String {
    format!("{folder}/{name}")
}

/// Describes the file or folder at a path, if a viewer could play something there.
fn entry(origin: &Origin, path: &str, viewers: usize) -> Option<TitleInfo> {
    let below = below_root(path)?;
    // It asks as a viewer's request would: links that lead out of the root lead nowhere.
    let metadata = origin.titles.root().stat(below, Wait::AsLongAsItTakes).ok()?;
    let kind = match metadata.kind {
        payload::Kind::File if vod::is_movie(below.rsplit('/').next()?) => TitleKind::File,
        payload::Kind::Folder => TitleKind::Folder,
        _ => return None,
    };
    let modified = metadata.modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let modified = modified.and_then(|at| u64::try_from(at.as_micros()).ok());
    let opened = origin.titles.kept(below);
    Some(TitleInfo {
        path: path.to_owned(),
        size: (kind == TitleKind::File).then_some(metadata.len),
        kind,
        modified: modified.map(|at| rfc3339(UnixMicros(at))),
        viewers,
        opened: opened.and_then(|opened| describe(&opened)),
    })
}

fn title(origin: &Origin, path: &str) -> Result<TitleInfo, Refused> {
    let below = below_root(path).filter(|below| !below.is_empty()).ok_or(NO_TITLE)?;
    let (folder, name) = path.rsplit_once('/').ok_or(NO_TITLE)?;
    let count = viewers(origin, folder).remove(name).unwrap_or_default();
    let found = entry(origin, path, count).ok_or(NO_TITLE)?;
    let opened = match describe(&origin.titles.title(below)) {
        Some(opened) => opened,
        None if found.kind == TitleKind::Folder => return Err(NO_TITLE),
        None => return Err(FAILED),
    };
    Ok(TitleInfo { opened: Some(opened), ..found })
}

/// Viewers of each file and folder in a folder, by its name.
fn viewers(origin: &Origin, folder: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for ((title, _), count) in origin.title_viewers.count(origin.now()) {
        let below = title.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        if let Some(name) = below.and_then(|rest| rest.split('/').next()) {
            *counts.entry(name.to_owned()).or_default() += count;
        }
    }
    counts
}

/// What is in a title. `None` if it could not be opened, which may be otherwise next time.
fn describe(opened: &Result<Arc<Title>, Error>) -> Option<Opened> {
    match opened {
        Ok(title) => Some(Opened {
            duration_seconds: Some((title.duration.as_secs_f64() * 1000.0).round() / 1000.0),
            tracks: title.tracks.iter().map(track).collect(),
            poster: poster_frame(title).is_some(),
            refusal: None,
        }),
        Err(Error::Unreadable { reason, .. }) => Some(Opened {
            duration_seconds: None,
            tracks: Vec::new(),
            poster: false,
            refusal: Some(reason.to_string()),
        }),
        Err(_) => None,
    }
}

fn track(track: &Track) -> TrackInfo {
    let rate = track.frame_rate.map(|rate| (rate.frames, rate.seconds));
    TrackInfo::new(&track.name, &track.media, track.bandwidth.average, rate)
}

/// A keyframe of the smallest rendition that is large enough. Beginnings are often black, so it is one a tenth of the
/// title later.
fn poster_frame(title: &Title) -> Option<(&Track, u32)> {
    let is_video = |track: &&Track| track.media.kind() == Kind::Video && track.iframe_count() > 0;
    let videos = || title.tracks.iter().filter(is_video);
    let width = |track: &&Track| track.resolution().map_or(0, |(width, _)| width);
    let enough = videos().filter(|track| width(track) >= POSTER).min_by_key(width);
    let track = enough.or_else(|| videos().max_by_key(width))?;
    let time = title.duration / 10;
    let before = track.iframes().take_while(|it| title.presentation_time(track, it.start) <= time);
    let number = before.count().saturating_sub(1);
    Some((track, u32::try_from(number).ok()?))
}

/// The poster of a title as fragmented MP4, with its version.
fn poster(origin: &Origin, path: &str) -> Result<(String, Bytes), Refused> {
    let below = below_root(path).filter(|below| !below.is_empty()).ok_or(NO_POSTER)?;
    let title = origin.titles.title(below).map_err(|error| match error {
        Error::NotFound | Error::Unreadable { .. } => NO_POSTER,
        _ => FAILED,
    })?;
    let (track, number) = poster_frame(&title).ok_or(NO_POSTER)?;
    let frame = track.iframe(number).ok_or(NO_POSTER)?;
    let pieces: Vec<_> = std::iter::once(Piece::Bytes(track.header())).chain(frame).collect();
    if pieces.iter().map(Piece::len).sum::<u64>() > LARGEST {
        return Err(NO_POSTER);
    }
    let read = vod::gather(pieces, LARGEST).map_err(|_| FAILED)?;
    let bytes: Vec<&[u8]> = read.iter().filter_map(bytes_of).collect();
    // Somebody may have written into the file meanwhile.
    if !title.is_intact() || bytes.len() < read.len() {
        return Err(FAILED);
    }
    Ok((format!("\"{}-poster\"", title.version), bytes.concat().into()))
}

fn bytes_of(piece: &Piece) -> Option<&[u8]> {
    if let Piece::Bytes(bytes) = piece { Some(bytes) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_viewers_are_looked_at() {
        for (path, below) in [
            ("vod", Some("")),
            ("vod/a", Some("a")),
            ("vod/a b/ü%2f.mp4", Some("a b/ü%2f.mp4")),
            ("", None),
            ("vod/", None),
            ("vod//a", None),
            ("vod/a/", None),
            ("vodka", None),
            ("/vod/a", None),
            ("live/a", None),
            ("vod/..", None),
            ("vod/a/../b", None),
            ("vod/.hidden/a.mp4", None),
            ("vod/a\0b", None),
            ("vod/a\nb", None),
            ("vod/a\\b", None),
        ] {
            assert_eq!(below_root(path), below, "{path:?}");
        }
    }
}
