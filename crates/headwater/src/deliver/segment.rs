//! Headers, segments and parts: ranges of the window's bytes.

use std::io;
use std::sync::Arc;

use live::{Region, Segment, Stream, Track, Window};
use protocol::hls;
use tokio::sync::watch;

use super::{edge::Edges, immutable, not_found, patience, unfold::unfold};
use crate::http::{self, Body, Piece, Representation, Request, Response, Validators};

/// `TRACK/init.mp4` and `TRACK/init.MSN.mp4`.
pub(super) fn header(
    request: &Request,
    stream: &Arc<Stream>,
    track: &str,
    msn: Option<u64>,
) -> Response {
    let Some(track) = stream.track(track) else { return not_found() };
    let newest = track.header();
    let window = track.window();
    let header = match msn {
        None => Some(newest),
        Some(msn) if msn == newest.msn => Some(newest),
        Some(msn) => {
            window.all().map(|segment| &segment.header).find(|header| header.msn == msn).cloned()
        }
    };
    let Some(header) = header else { return not_found() };
    // The nameless header is the newest, and may become another.
    let cache = if msn.is_some() { immutable(stream) } else { "public, max-age=1".to_owned() };
    let etag = format!("{}-{}-init", track.name, header.msn);
    whole(request, &etag, "mp4", &track, &cache, &[header.bytes.clone().into()])
}

/// `TRACK/MSN.m4s`: a segment, or as much of it as there is and the rest as it comes.
pub(super) async fn segment(
    request: &Request,
    edges: &Edges,
    stream: &Arc<Stream>,
    track: &str,
    msn: u64,
) -> Response {
    run(request, edges, stream, track, msn, None).await
}

/// Segment `msn`, and after it all that start at `until` or earlier.
async fn run(
    request: &Request,
    edges: &Edges,
    stream: &Arc<Stream>,
    track: &str,
    msn: u64,
    until: Option<i64>,
) -> Response {
    let Some(track) = stream.track(track) else { return not_found() };
    // Whether it is complete is asked of the same window: it may be completed any moment.
    let found = find(edges, stream, &track, msn, |window| {
        Some((Arc::clone(window.segment(msn)?), window.is_complete(msn)))
    });
    let (segment, complete) = match found.await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let goes_on =
        move |segment: &Segment| until.is_some_and(|until| segment.presented_end() <= until);
    let cache = immutable(stream);
    if complete && !goes_on(&segment) {
        let bytes: Vec<_> = segment.parts.iter().map(|part| part.region.clone().into()).collect();
        let etag = format!("{}-{msn}", track.name);
        return whole(request, &etag, "iso.segment", &track, &cache, &bytes);
    }
    // Chunked transfer of the segment being made. Only what is missing is looked for, so a part is
    // sent as soon as it is published.
    let windows = edges.follow(&track);
    let body =
        unfold((windows, msn, 0), false, move |(mut windows, mut msn, mut sent)| async move {
            loop {
                let (parts, complete, goes_on) = {
                    let window = windows.borrow_and_update();
                    let Some(segment) = window.segment(msn) else {
                        if sent == 0 && window.next_msn() == Some(msn) && !window.ended {
                            // It follows on one that was sent, and has not begun.
                            drop(window);
                            if windows.changed().await.is_err() {
                                return Ok(None);
                            }
                            continue;
                        }
                        // An orderly end would say that this is all there was.
                        return Err(io::Error::other(
                            "the segment left the window while it was sent",
                        ));
                    };
                    let new = segment.parts.iter().skip(sent);
                    let parts: Vec<Region> = new.map(|part| part.region.clone()).collect();
                    (
                        parts,
                        window.is_complete(msn) || window.ended,
                        goes_on(segment) && !window.ended,
                    )
                };
                if !parts.is_empty() {
                    let sent = sent + parts.len();
                    return Ok(Some((parts, (windows, msn, sent))));
                }
                if complete && goes_on {
                    (msn, sent) = (msn + 1, 0);
                    continue;
                }
                if complete || windows.changed().await.is_err() {
                    return Ok(None);
                }
            }
        });
    Response::new(200)
        .header("Content-Type", content_type("iso.segment", &track))
        .header("Cache-Control", cache)
        .body(Body::Stream(Box::new(body)))
}

/// `TRACK/tTIME.m4s`: the segment whose first sample is shown at `time`, as DASH names it.
///
/// Manifests foretell where the segment after the one being made starts, where keyframes are regular
/// ([`Segment::expected_end`]). Where it then starts at another time, it is meant all the same. A player
/// that asked for it goes on with what starts after the foretold time, so it is given what starts
/// before.
pub(super) async fn segment_at(
    request: &Request,
    edges: &Edges,
    stream: &Arc<Stream>,
    name: &str,
    time: i64,
) -> Response {
    let Some(track) = stream.track(name) else { return not_found() };
    let found = {
        let window = edges.follow(&track).borrow_and_update().clone();
        let exact = window.all().rev().find(|segment| segment.presents == time);
        let foretold = || window.all().rev().find(|before| before.expected_end == Some(time));
        match (exact, foretold) {
            (Some(exact), _) => Some((exact.msn, None)),
            (None, foretold) => foretold().map(|before| (before.msn + 1, Some(time))),
        }
    };
    match found {
        Some((msn, until)) => run(request, edges, stream, name, msn, until).await,
        None => not_found(),
    }
}

/// Waits for the next change of a window, until `deadline`.
pub(super) async fn change(
    windows: &mut watch::Receiver<Arc<Window>>,
    deadline: tokio::time::Instant,
) -> Result<(), Response> {
    match tokio::time::timeout_at(deadline, windows.changed()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Response::text(503, "the live edge has not moved for too long")
            .header("Retry-After", 1)),
    }
}

/// `TRACK/MSN.PART.m4s`: a part; the next one is waited for.
pub(super) async fn part(
    request: &Request,
    edges: &Edges,
    stream: &Arc<Stream>,
    track: &str,
    msn: u64,
    part: usize,
) -> Response {
    let Some(track) = stream.track(track) else { return not_found() };
    let limit = hls::advance_part_limit(part_micros(stream, &track));
    let found = find(edges, stream, &track, msn, |window| {
        let parts = window.segment(msn).map_or(&[][..], |segment| &segment.parts);
        match parts.get(part) {
            Some(part) => Some(Ok(part.clone())),
            None if window.is_complete(msn) || window.ended => Some(Err(never(stream))),
            None if part as u64 >= limit.saturating_add(parts.len() as u64) => Some(Err(too_far())),
            None => None,
        }
    })
    .await;
    match found {
        Ok(Ok(found)) => {
            let etag = format!("{}-{msn}-{part}", track.name);
            let bytes = [found.region.clone().into()];
            whole(request, &etag, "iso.segment", &track, &immutable(stream), &bytes)
        }
        Ok(Err(response)) | Err(response) => response,
    }
}

/// The answer for a part that its segment ended without. Whoever follows the playlist's hints asks for one
/// at the end of each segment: a cache may keep the answer like any other that stays true.
fn never(stream: &Stream) -> Response {
    Response::text(404, "its segment ended before this part")
        .header("Cache-Control", immutable(stream))
}

/// The longest a part of the track may be, in microseconds; what is aimed at while that is unknown.
pub(super) fn part_micros(stream: &Stream, track: &Track) -> u64 {
    let timescale = u64::from(track.header().track.timescale.max(1));
    match track.part_limit() {
        Some(limit) => u64::from(limit) * 1_000_000 / timescale,
        None => u64::try_from(stream.settings().part_target.as_micros()).unwrap_or(u64::MAX),
    }
}

/// Looks for something of segment `msn`, waiting while the segment is near enough to come.
async fn find<T>(
    edges: &Edges,
    stream: &Stream,
    track: &Arc<Track>,
    msn: u64,
    mut look: impl FnMut(&Window) -> Option<T>,
) -> Result<T, Response> {
    let mut windows = edges.follow(track);
    let deadline = tokio::time::Instant::now() + patience(stream);
    loop {
        {
            let window = windows.borrow_and_update();
            if let Some(found) = look(&window) {
                return Ok(found);
            }
            let next = window.next_msn().unwrap_or(track.header().msn);
            if msn < next || window.ended {
                return Err(not_found());
            }
            if msn > next + 1 {
                return Err(too_far());
            }
        }
        change(&mut windows, deadline).await?;
    }
}

pub(super) fn too_far() -> Response {
    Response::text(400, "too far ahead of the live edge")
}

fn content_type(suffix: &str, track: &Track) -> String {
    let kind = if track.kind == media::Kind::Audio { "audio" } else { "video" };
    format!("{kind}/{suffix}")
}

/// Answers with bytes that are all there: ranges and conditions apply.
fn whole(
    request: &Request,
    etag: &str,
    suffix: &str,
    track: &Track,
    cache_control: &str,
    pieces: &[Piece],
) -> Response {
    let length = http::length(pieces);
    let content_type = content_type(suffix, track);
    let validators = Validators { etag: Some(etag), modified: None };
    Representation { length, content_type: &content_type, cache_control, validators }
        .respond(request, |range| http::slice(pieces, &range))
}
