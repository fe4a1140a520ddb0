//! Serves headers, segments and parts: ranges of the window's bytes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Body, Piece, Representation, Request, Response, Validators};
use live::{Region, Segment, Stream, Track, Window};
use protocol::hls;
use tokio::sync::watch;

use super::{immutable, no_media, not_found, relay::Relays, unfold::unfold};
use live::wait::{cut_short, is_empty, patience};

/// Serves `TRACK/init.mp4` and `TRACK/init.MSN.mp4`.
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
    // The header without a number is the newest and may be replaced.
    let cache = if msn.is_some() { immutable(stream) } else { "public, max-age=1".to_owned() };
    let etag = format!("{}-{}-init", track.name, header.msn);
    whole(request, &etag, "mp4", &track, &cache, &[header.bytes.clone().into()])
}

/// Serves `TRACK/MSN.m4s`: a segment. If the segment is still being made, its rest follows as it
/// arrives.
pub(super) async fn segment(
    request: &Request,
    relays: &Relays,
    stream: &Arc<Stream>,
    track: &str,
    msn: u64,
) -> Response {
    run(request, relays, stream, track, msn, None).await
}

/// How long a request for a time that no manifest has named waits. ffmpeg asks for the segment
/// after its list again and again. If refused at once, it would ask hundreds of times a second.
const TOO_SOON: Duration = Duration::from_millis(500);

/// A segment's start as a manifest foretold it.
#[derive(Debug, Clone, Copy)]
struct Foretold {
    time: i64,
    /// Period and header of the segment before. The manifest described the foretold segment with
    /// these.
    period: u64,
    header: u64,
}

impl Foretold {
    /// The start that the manifest foretold for the segment after `before`, if it foretold one.
    fn after(before: &Segment) -> Option<Self> {
        let time = before.expected_end?;
        Some(Self { time, period: before.period, header: before.header.msn })
    }

    /// Whether the manifest's description fits this segment. A player that has another header cannot
    /// decode the segment. A player that knows another period plays the segment at the wrong time.
    fn describes(&self, segment: &Segment) -> bool {
        (segment.period, segment.header.msn) == (self.period, self.header)
    }
}

/// Serves segment `msn`. If it was foretold, all later segments that start at the foretold time or
/// earlier follow it.
async fn run(
    request: &Request,
    relays: &Relays,
    stream: &Arc<Stream>,
    track: &str,
    msn: u64,
    foretold: Option<Foretold>,
) -> Response {
    let Some(track) = stream.track(track) else { return not_found() };
    // Both answers come from the same window: the segment may be completed at any moment.
    let found = find(relays, stream, &track, msn, |window| {
        Some((Arc::clone(window.segment(msn)?), window.is_complete(msn)))
    });
    let (segment, complete) = match found.await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let is_other =
        move |segment: &Segment| foretold.is_some_and(|foretold| !foretold.describes(segment));
    if is_other(&segment) {
        return not_found();
    }
    let goes_on = move |segment: &Segment| {
        foretold.is_some_and(|foretold| segment.presented_end() <= foretold.time)
    };
    let cache = immutable(stream);
    if complete && !goes_on(&segment) {
        let bytes: Vec<_> = segment.parts.iter().map(|part| part.region.clone().into()).collect();
        let etag = format!("{}-{msn}", track.name);
        return whole(request, &etag, "iso.segment", &track, &cache, &bytes);
    }
    // Chunked transfer of the segment being made. Each round looks only for the missing parts, so a
    // part is sent as soon as it is published.
    let windows = relays.follow(stream, &track);
    let body =
        unfold((windows, msn, 0), false, move |(mut windows, mut msn, mut sent)| async move {
            loop {
                let (parts, complete, goes_on) = {
                    let window = windows.borrow_and_update();
                    let Some(segment) = window.segment(msn) else {
                        if sent == 0 && window.next_msn() == Some(msn) && !window.ended {
                            // The next segment to send has not begun.
                            drop(window);
                            if windows.changed().await.is_err() {
                                return Ok(None);
                            }
                            continue;
                        }
                        // An orderly end would tell the client that the segment is whole.
                        return Err(io::Error::other(
                            "the segment left the window while it was sent",
                        ));
                    };
                    if is_other(segment) {
                        return Ok(None);
                    }
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
                if complete {
                    return Ok(None);
                }
                if windows.changed().await.is_err() {
                    return Err(io::Error::other("the rest of the segment does not come"));
                }
            }
        });
    Response::new(200)
        .header("Content-Type", content_type("iso.segment", &track))
        .header("Cache-Control", cache)
        .body(Body::Stream(Box::new(body)))
}

/// Serves `TRACK/tTIME.m4s`: the segment with its first sample presented at `time`. DASH names
/// segments this way.
///
/// If keyframes are regular, manifests foretell where the next segment starts
/// ([`Segment::expected_end`]). If that segment then starts at another time, the foretold name
/// still means it. A player that asked for it goes on with the segment after the foretold time, so
/// it also gets every segment that starts before.
pub(super) async fn segment_at(
    request: &Request,
    relays: &Relays,
    stream: &Arc<Stream>,
    name: &str,
    time: i64,
) -> Response {
    let Some(track) = stream.track(name) else { return not_found() };
    let mut windows = relays.follow(stream, &track);
    let deadline = tokio::time::Instant::now() + TOO_SOON;
    loop {
        let (named, is_too_soon) = {
            let window = windows.borrow_and_update();
            let newest = window.all().next_back().map(|segment| segment.presents);
            (named(&window, time), !window.ended && newest.is_none_or(|newest| time > newest))
        };
        if let Some((msn, foretold)) = named {
            return run(request, relays, stream, name, msn, foretold).await;
        }
        if !is_too_soon || change(&mut windows, deadline).await.is_err() {
            return not_found();
        }
    }
}

/// The number of the segment that `time` names. If the segment may start at another time, also what
/// was foretold of it.
fn named(window: &Window, time: i64) -> Option<(u64, Option<Foretold>)> {
    let exact = window.all().rev().find(|segment| segment.presents == time);
    let foretold = || {
        let before = window.all().rev().find(|before| before.expected_end == Some(time))?;
        Some((before.msn + 1, Foretold::after(before)))
    };
    exact.map(|exact| (exact.msn, None)).or_else(foretold)
}

/// Waits until a window changes, or until `deadline`.
pub(super) async fn change(
    windows: &mut watch::Receiver<Arc<Window>>,
    deadline: tokio::time::Instant,
) -> Result<(), Response> {
    match tokio::time::timeout_at(deadline, windows.changed()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Response::text(503, "no media come any more").header("Retry-After", 1)),
        Err(_) => Err(Response::text(503, "the live edge has not moved for too long")
            .header("Retry-After", 1)),
    }
}

/// Does the same for a window without a complete segment, while somebody publishes.
pub(super) async fn first(
    stream: &Stream,
    track: &Track,
    windows: &mut watch::Receiver<Arc<Window>>,
    deadline: tokio::time::Instant,
) -> Result<(), Response> {
    tokio::select! {
        biased;
        changed = change(windows, deadline) => changed,
        () = cut_short(stream, |_| is_empty(track)) => Err(no_media()),
    }
}

/// Serves `TRACK/MSN.PART.m4s`: a part. If it is the next part, the response waits for it.
pub(super) async fn part(
    request: &Request,
    relays: &Relays,
    stream: &Arc<Stream>,
    track: &str,
    msn: u64,
    part: usize,
) -> Response {
    let Some(track) = stream.track(track) else { return not_found() };
    let limit = hls::advance_part_limit(part_micros(stream, &track));
    let found = find(relays, stream, &track, msn, |window| {
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

/// Answers for a part that its segment ended without. A player that follows the playlist's hints
/// asks for one at the end of each segment. The answer stays true, so caches may keep it.
fn never(stream: &Stream) -> Response {
    Response::text(404, "its segment ended before this part")
        .header("Cache-Control", immutable(stream))
}

/// The longest part that the track may have, in microseconds. While that is unknown, the target
/// duration.
pub(super) fn part_micros(stream: &Stream, track: &Track) -> u64 {
    let timescale = u64::from(track.header().track.timescale.max(1));
    match track.part_limit() {
        Some(limit) => u64::from(limit) * 1_000_000 / timescale,
        None => u64::try_from(stream.settings().part_target.as_micros()).unwrap_or(u64::MAX),
    }
}

/// Looks for something in segment `msn`. Waits if the segment is due soon.
async fn find<T>(
    relays: &Relays,
    stream: &Arc<Stream>,
    track: &Arc<Track>,
    msn: u64,
    mut look: impl FnMut(&Window) -> Option<T>,
) -> Result<T, Response> {
    let mut windows = relays.follow(stream, track);
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

/// Answers with complete bytes; ranges and conditions apply.
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
    Representation { length, content_type: &content_type, cache_control, validators, fields: None }
        .respond(request, |range| http::slice(pieces, &range))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use bytes::{Bytes, BytesMut};
    use live::{Publisher, PublisherInfo, Registry, Settings, UnixMicros};
    use media::{Codec, Sample, codec};

    use super::*;

    const NOW: UnixMicros = UnixMicros(1_700_000_000_000_000);

    /// Milliseconds from one frame to the next.
    const FRAME: i64 = 40;

    /// A publisher with a keyframe every 4 s. It has sent enough to be known as regular, up to 1 s
    /// after its newest keyframe.
    fn regular() -> Publisher {
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = Registry::new(Settings::default()).publish("x", info, NOW).unwrap();
        configure(&mut publisher, 31);
        frames(&mut publisher, 0..21_000, 4000);
        publisher
    }

    fn configure(publisher: &mut Publisher, level: u8) {
        let config = codec::avc::Config::parse(testkit::avc_record(level).into()).unwrap();
        publisher.track(0, Codec::Avc(config), 1000, *b"und", NOW).unwrap();
    }

    fn frames(publisher: &mut Publisher, millis: std::ops::Range<i64>, distance: i64) {
        for dts in millis.step_by(usize::try_from(FRAME).unwrap()) {
            let sync = dts % distance == 0;
            let data = Bytes::from_static(&[0; 64]);
            publisher.sample(0, Sample { dts, cts: 0, duration: 0, sync, data }, NOW).unwrap();
        }
    }

    /// Asks for the foretold segment while `publish` runs; see [`asked_for`].
    async fn asked(publisher: &mut Publisher, publish: impl FnOnce(&mut Publisher)) -> (u16, u64) {
        let window = publisher.stream().track("v0").unwrap().window();
        let time = window.open.as_ref().unwrap().expected_end.unwrap();
        asked_for(time, publisher, async |publisher| publish(publisher)).await
    }

    /// Asks for the segment at `time` while `publish` runs. Returns the status, and the number of
    /// bytes received until no more come for a second.
    async fn asked_for(
        time: i64,
        publisher: &mut Publisher,
        publish: impl AsyncFnOnce(&mut Publisher),
    ) -> (u16, u64) {
        let stream = Arc::clone(publisher.stream());
        let mut head = BytesMut::from("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let request = Request::parse(&mut head, peer, 100).unwrap().unwrap();
        let relays = Relays::default();
        let (response, ()) =
            tokio::join!(segment_at(&request, &relays, &stream, "v0", time), publish(publisher));
        let status = response.status();
        let mut body = Body::Empty;
        let _ = response.map_body(|whole| std::mem::replace(&mut body, whole));
        let Body::Stream(mut body) = body else { return (status, 0) };
        let mut bytes = 0;
        let mut next = async || std::future::poll_fn(|cx| body.poll_next(cx)).await;
        while let Ok(Some(pieces)) = tokio::time::timeout(Duration::from_secs(1), next()).await {
            bytes += http::length(&pieces.unwrap());
        }
        (status, bytes)
    }

    /// Bytes of the segment that is `back` before the track's newest.
    fn newest(publisher: &Publisher, back: usize) -> u64 {
        let window = publisher.stream().track("v0").unwrap().window();
        window.all().rev().nth(back).unwrap().len() as u64
    }

    async fn local(test: impl Future<Output = ()>) {
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn foretold_segments_come_with_all_that_start_before_them() {
        local(async {
            let publisher = &mut regular();
            let answer = asked(publisher, |publisher| frames(publisher, 21_000..25_000, 4000));
            assert_eq!(answer.await, (200, newest(publisher, 0)));
            // A keyframe comes too soon: the answer is the segment that it begins and the foretold
            // one.
            let publisher = &mut regular();
            let answer = asked(publisher, |publisher| {
                frames(publisher, 21_000..21_520, 4000);
                frames(publisher, 21_520..24_000, 21_520);
                frames(publisher, 24_000..25_000, 4000);
            });
            let both = answer.await;
            assert_eq!(both, (200, newest(publisher, 1) + newest(publisher, 0)));
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn times_that_no_manifest_has_named_are_waited_for_a_moment() {
        local(async {
            let publisher = &mut regular();
            // Two segments ahead: the one between does not exist yet either.
            let newest_start =
                publisher.stream().track("v0").unwrap().window().open.as_ref().unwrap().presents;
            let two_on = newest_start + 8 * 90_000;
            let later = asked_for(two_on, publisher, async |publisher| {
                frames(publisher, 21_000..25_000, 4000);
                tokio::time::sleep(TOO_SOON / 2).await;
                frames(publisher, 25_000..29_000, 4000);
            });
            assert_eq!(later.await, (200, newest(publisher, 0)));
            for (time, wait) in [(two_on + 1, TOO_SOON), (two_on - 1, Duration::ZERO)] {
                let asked = tokio::time::Instant::now();
                assert_eq!(asked_for(time, publisher, async |_| {}).await, (404, 0));
                assert_eq!(asked.elapsed(), wait, "{time}");
            }
        })
        .await;
    }

    /// A manifest foretells a segment with a certain header and period. With others, the foretold
    /// name is void.
    #[tokio::test(start_paused = true)]
    async fn foretold_names_are_void_with_another_header_or_period() {
        local(async {
            let publisher = &mut regular();
            let answer = asked(publisher, |publisher| {
                configure(publisher, 40);
                frames(publisher, 24_000..25_000, 4000);
            });
            assert_eq!(answer.await, (404, 0));
            let publisher = &mut regular();
            let answer = asked(publisher, |publisher| frames(publisher, 92_000..93_000, 4000));
            assert_eq!(answer.await, (404, 0));
            // If a fitting segment comes first, the answer is that segment and no more.
            let publisher = &mut regular();
            let answer = asked(publisher, |publisher| {
                frames(publisher, 21_000..21_520, 4000);
                frames(publisher, 21_520..24_000, 21_520);
                configure(publisher, 40);
                frames(publisher, 24_000..25_000, 4000);
            });
            assert_eq!(answer.await, (200, newest(publisher, 1)));
        })
        .await;
    }
}
