//! Headers, segments and parts: ranges of the window's bytes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Body, Piece, Representation, Request, Response, Validators};
use live::{Region, Segment, Stream, Track, Window};
use protocol::hls;
use tokio::sync::watch;

use super::{immutable, no_media, not_found, relay::Relays, unfold::unfold};
use live::wait::{cut_short, is_empty, patience};

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
    relays: &Relays,
    stream: &Arc<Stream>,
    track: &str,
    msn: u64,
) -> Response {
    run(request, relays, stream, track, msn, None).await
}

/// How long a request waits for a time that no manifest has named yet. ffmpeg asks for the segment after its list
/// again and again, hundreds of times a second if it is refused at once.
const TOO_SOON: Duration = Duration::from_millis(500);

/// Where a manifest said that a segment would start.
#[derive(Debug, Clone, Copy)]
struct Foretold {
    time: i64,
    /// Period and header of the segment before, which the manifest described it with.
    period: u64,
    header: u64,
}

impl Foretold {
    /// Where the manifest said that the segment after `before` would start, if it said so.
    fn after(before: &Segment) -> Option<Self> {
        let time = before.expected_end?;
        Some(Self { time, period: before.period, header: before.header.msn })
    }

    /// Whether the manifest described this segment. A player cannot decode it with another header, nor place
    /// it in another period.
    fn describes(&self, segment: &Segment) -> bool {
        (segment.period, segment.header.msn) == (self.period, self.header)
    }
}

/// Segment `msn`; where it was foretold, after it all that start then or earlier.
async fn run(
    request: &Request,
    relays: &Relays,
    stream: &Arc<Stream>,
    track: &str,
    msn: u64,
    foretold: Option<Foretold>,
) -> Response {
    let Some(track) = stream.track(track) else { return not_found() };
    // Whether it is complete is asked of the same window: it may be completed any moment.
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
    // Chunked transfer of the segment being made. Only what is missing is looked for, so a part is
    // sent as soon as it is published.
    let windows = relays.follow(&track);
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
    relays: &Relays,
    stream: &Arc<Stream>,
    name: &str,
    time: i64,
) -> Response {
    let Some(track) = stream.track(name) else { return not_found() };
    let mut windows = relays.follow(&track);
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

/// The number of the segment that is named by `time`, and what was foretold of it if it may start elsewhere.
fn named(window: &Window, time: i64) -> Option<(u64, Option<Foretold>)> {
    let exact = window.all().rev().find(|segment| segment.presents == time);
    let foretold = || {
        let before = window.all().rev().find(|before| before.expected_end == Some(time))?;
        Some((before.msn + 1, Foretold::after(before)))
    };
    exact.map(|exact| (exact.msn, None)).or_else(foretold)
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

/// The same of a window that has no complete segment, while somebody publishes.
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

/// `TRACK/MSN.PART.m4s`: a part; the next one is waited for.
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
    relays: &Relays,
    stream: &Stream,
    track: &Arc<Track>,
    msn: u64,
    mut look: impl FnMut(&Window) -> Option<T>,
) -> Result<T, Response> {
    let mut windows = relays.follow(track);
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

    /// A publisher of frames with a keyframe every 4 s, which is known by now, up to 1 s after the newest.
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

    /// Asks for the segment that was foretold, while `publish` goes on; see [`asked_for`].
    async fn asked(publisher: &mut Publisher, publish: impl FnOnce(&mut Publisher)) -> (u16, u64) {
        let window = publisher.stream().track("v0").unwrap().window();
        let time = window.open.as_ref().unwrap().expected_end.unwrap();
        asked_for(time, publisher, async |publisher| publish(publisher)).await
    }

    /// Asks for the segment of this time, while `publish` goes on: the answer's status, and how many bytes
    /// come of a segment that is being made until a second passes without any.
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

    /// Bytes of the track's segment that is so many before its newest.
    fn newest(publisher: &Publisher, back: usize) -> u64 {
        let window = publisher.stream().track("v0").unwrap().window();
        window.all().rev().nth(back).unwrap().len() as u64
    }

    async fn local(test: impl Future<Output = ()>) {
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_foretold_comes_and_so_does_what_is_shown_before_it() {
        local(async {
            let publisher = &mut regular();
            let answer = asked(publisher, |publisher| frames(publisher, 21_000..25_000, 4000));
            assert_eq!(answer.await, (200, newest(publisher, 0)));
            // A keyframe that comes too soon: the segment that it begins, and the one that was meant.
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
    async fn what_nobody_can_have_named_yet_is_waited_for_a_moment() {
        local(async {
            let publisher = &mut regular();
            // Two segments on: the one in between is not there either.
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

    /// What a manifest says of a segment holds with the header and the period that it says it of.
    #[tokio::test(start_paused = true)]
    async fn what_was_foretold_is_nothing_of_another_header_or_period() {
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
            // Also where one that belongs comes before: that one and no more.
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
