//! Endless responses with all tracks: fragmented MP4 and HTTP-FLV.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Body, BodyStream, Piece, Request, Response};
use live::cursor::{Cursor, Next};
use live::wait::ready;
use live::{Delivery, Header, Part, Segment, Stream, Track, Viewing};
use media::flv::Message;

use super::flv::{converted, metadata, packetizer, sequence_header};
use super::no_media;
use super::unfold::unfold;
use crate::Origin;
use crate::access::Grant;
use crate::broadcast::{Burst, Container, Follower};
use crate::counts::TooSlow;
use crate::path::StreamPath;
use crate::sessions::{Doing, Meter, Session, Who};

/// Serves `live.mp4`: the header of the tracks, then their chunks unchanged.
pub(super) async fn mp4(
    request: &Request,
    origin: &Arc<Origin>,
    stream: &Arc<Stream>,
    grant: Grant,
) -> Response {
    respond(request, origin, (stream, grant), Delivery::Mp4, "video/mp4", Mp4).await
}

/// Serves `live.flv`: FLV tags.
pub(super) async fn flv(
    request: &Request,
    origin: &Arc<Origin>,
    stream: &Arc<Stream>,
    grant: Grant,
) -> Response {
    respond(request, origin, (stream, grant), Delivery::Flv, "video/x-flv", Flv).await
}

/// A container for all tracks in one response.
trait Mux: Container + 'static {
    /// Whether tracks may change their configuration within it. Otherwise the response ends at such
    /// a change.
    const CHANGES: bool;

    /// Makes the bytes before the first part. `headers` are those of the tracks' first parts, which may
    /// not be the newest. `behind` is how many seconds the first part is behind live.
    fn start(
        &self,
        tracks: &[Arc<Track>],
        headers: &[Arc<Header>],
        behind: f64,
    ) -> Result<Bytes, media::Error>;
}

async fn respond<M: Mux>(
    request: &Request,
    origin: &Arc<Origin>,
    (stream, grant): (&Arc<Stream>, Grant),
    delivery: Delivery,
    content_type: &str,
    mux: M,
) -> Response {
    if !ready(stream).await {
        return no_media();
    }
    let Some(mut cursor) = Cursor::new(stream, origin.viewer_limits()) else {
        return Response::text(503, "the stream has no keyframe yet").header("Retry-After", 1);
    };
    let tracks: Vec<_> = cursor.tracks().cloned().collect();
    let headers = cursor.headers();
    let behind = cursor.behind();
    let start = match mux.start(&tracks, &headers, behind) {
        Ok(start) => start,
        Err(error) => return Response::text(406, error),
    };
    let who = Who {
        doing: Doing::Play,
        path: StreamPath::Live(stream.name()).to_string(),
        by: delivery.name(),
        peer: request.peer(),
    };
    let listed = origin.sessions.begin(who, grant);
    listed.meter().is_behind(behind);
    let viewer = Viewer {
        origin: Arc::clone(origin),
        follower: Follower::told(cursor, &headers),
        mux,
        start: Some(start),
        stream: Arc::clone(stream),
        delivery,
        peer: request.peer(),
        meter: listed.meter().clone(),
        _viewing: stream.watch(delivery),
    };
    let body = unfold(viewer, true, |mut viewer| async move {
        Ok(viewer.next().await?.map(|bytes| (bytes, viewer)))
    });
    Response::new(200)
        .header("Content-Type", content_type)
        .header("Cache-Control", "no-store")
        // The response begins with a keyframe. This is the number of seconds of media that come at
        // once.
        .header("Headwater-Behind", format_args!("{behind:.3}"))
        .body(Body::Stream(Box::new(Watched {
            body,
            origin: Arc::clone(origin),
            stream: Arc::clone(stream),
            delivery,
            peer: request.peer(),
            drains: false,
            listed,
        })))
}

/// Logs the viewer when the connection finds that it takes no byte. Breaks the response off where the server drains, but
/// the stream goes on at other nodes.
struct Watched<B> {
    body: B,
    origin: Arc<Origin>,
    stream: Arc<Stream>,
    delivery: Delivery,
    peer: SocketAddr,
    drains: bool,
    listed: Session,
}

impl<B: BodyStream> BodyStream for Watched<B> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        if let Poll::Ready(over) = self.listed.poll_over(cx) {
            let (stream, peer) = (self.stream.name(), self.peer);
            tracing::info!(stream, %peer, delivery = self.delivery.name(), "viewer closed: {over}");
            return Poll::Ready(Some(Err(io::Error::other(over.to_string()))));
        }
        let next = self.body.poll_next(cx);
        if let Poll::Ready(Some(Ok(pieces))) = &next {
            self.listed.meter().add(pieces.iter().map(Piece::len).sum());
        }
        // Players take an orderly end for that of the stream, and do not come again.
        if let Poll::Ready(None) = next
            && self.drains
            && self.origin.goes_on_elsewhere(&self.stream)
        {
            return Poll::Ready(Some(Err(io::Error::other("the stream goes on at another node"))));
        }
        next
    }

    fn drain(&mut self) {
        self.drains = true;
        self.body.drain();
    }

    fn stalled(&mut self) {
        tracing::warn!(
            stream = self.stream.name(), peer = %self.peer, delivery = self.delivery.name(),
            "viewer closed: takes nothing"
        );
        self.listed.because("takes nothing");
        let path = self.listed.path();
        self.origin.slow_viewers.closed(self.delivery, path, self.peer, TooSlow::Stalled);
    }
}

struct Viewer<M> {
    origin: Arc<Origin>,
    follower: Follower,
    mux: M,
    start: Option<Bytes>,
    stream: Arc<Stream>,
    delivery: Delivery,
    peer: SocketAddr,
    meter: Meter,
    _viewing: Viewing,
}

impl<M: Mux> Viewer<M> {
    async fn next(&mut self) -> io::Result<Option<Vec<Bytes>>> {
        if let Some(start) = self.start.take() {
            return Ok(Some(vec![start]));
        }
        let mut out = Burst::default();
        let mut next = self.follower.cursor.next(|| self.origin.now()).await;
        self.meter.is_behind(self.follower.cursor.behind());
        loop {
            match next {
                Next::Part { track, segment, part } => {
                    if !M::CHANGES && !self.follower.knows(track, &segment.header) {
                        return Ok(out.into_pieces());
                    }
                    let part = (track, &*segment, &*part);
                    let written = self.follower.write(&self.mux, part, |piece| out.push(piece));
                    written.map_err(io::Error::other)?;
                }
                Next::Tracks | Next::Switched { .. } => self.follower.forget_headers(),
                Next::Skipped => {
                    self.origin.slow_viewers.skipped(self.delivery, self.stream.name(), self.peer);
                }
                Next::TooSlow => {
                    tracing::warn!(
                        stream = self.stream.name(), peer = %self.peer,
                        delivery = self.delivery.name(), "viewer closed: reads too slowly"
                    );
                    let path = StreamPath::Live(self.stream.name()).to_string();
                    let counts = &self.origin.slow_viewers;
                    counts.closed(self.delivery, &path, self.peer, TooSlow::Behind);
                    return Err(io::Error::other("viewer reads too slowly"));
                }
                Next::Ended => return Ok(out.into_pieces()),
            }
            // Parts that are already there go out in the same write.
            if out.is_full() {
                return Ok(out.into_pieces());
            }
            next = match self.follower.cursor.poll(self.origin.now()) {
                Some(more) => more,
                None if out.is_empty() => self.follower.cursor.next(|| self.origin.now()).await,
                None => return Ok(out.into_pieces()),
            };
        }
    }
}

struct Mp4;

impl Mux for Mp4 {
    const CHANGES: bool = false;

    fn start(
        &self,
        _: &[Arc<Track>],
        headers: &[Arc<Header>],
        _: f64,
    ) -> Result<Bytes, media::Error> {
        let tracks: Vec<_> = headers.iter().map(|header| &header.track).collect();
        media::cmaf::header(&tracks)
    }
}

impl Container for Mp4 {
    fn header(&self, _: &Cursor, _: &Segment, _: &Part) -> Result<Option<Bytes>, media::Error> {
        Ok(None)
    }

    fn part(&self, _: &Segment, part: &Part, out: &mut Vec<Bytes>) -> Result<bool, media::Error> {
        out.push(part.region.to_bytes());
        Ok(true)
    }
}

struct Flv;

impl Mux for Flv {
    const CHANGES: bool = true;

    fn start(
        &self,
        tracks: &[Arc<Track>],
        headers: &[Arc<Header>],
        behind: f64,
    ) -> Result<Bytes, media::Error> {
        let has = |kind| tracks.iter().any(|track| track.kind == kind);
        let mut out =
            media::flv::file_header(has(media::Kind::Audio), has(media::Kind::Video)).to_vec();
        out.extend_from_slice(&Message::metadata(0, &metadata(tracks, behind))?.tag());
        for header in headers {
            out.extend_from_slice(&packetizer(&header.track)?.sequence_header(0)?.tag());
        }
        Ok(out.into())
    }
}

impl Container for Flv {
    fn header(
        &self,
        _: &Cursor,
        segment: &Segment,
        part: &Part,
    ) -> Result<Option<Bytes>, media::Error> {
        Ok(Some(sequence_header(segment, part)?.tag()))
    }

    fn part(
        &self,
        segment: &Segment,
        part: &Part,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, media::Error> {
        converted(&part.flv, segment, part, Message::tag, out)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::Waker;
    use std::time::Duration;

    use live::{PublisherInfo, UnixMicros};
    use media::Sample;

    use super::*;
    use crate::config::{Config, Size};
    use crate::deliver::hls::tests::codecs;

    /// A viewer that has the headers.
    fn viewer<M: Mux>(origin: &Arc<Origin>, stream: &Arc<Stream>, mux: M) -> Viewer<M> {
        let mut cursor = Cursor::new(stream, origin.viewer_limits()).unwrap();
        let headers = cursor.headers();
        Viewer {
            origin: Arc::clone(origin),
            follower: Follower::told(cursor, &headers),
            mux,
            start: None,
            stream: Arc::clone(stream),
            delivery: Delivery::Mp4,
            peer: (Ipv4Addr::LOCALHOST, 0).into(),
            meter: Meter::default(),
            _viewing: stream.watch(Delivery::Mp4),
        }
    }

    /// Viewers share tags, whether memory for live streams is used up or not.
    #[tokio::test]
    async fn viewers_of_flv_share_tags_and_wait_where_there_is_no_memory_for_them() {
        let mut config = Config::default();
        config.live.memory = Size::from_mib(16);
        let origin = Arc::new(Origin::new(config));
        let now = UnixMicros(1_700_000_000_000_000);
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = origin.registry.publish("x", info, now).unwrap();
        publisher.track(0, codecs().0, 1000, *b"und", now).unwrap();
        let stream = Arc::clone(publisher.stream());
        let mut publish = |frame: u32| {
            let data = vec![7; 10_000].into();
            let (dts, sync) = (i64::from(frame) * 40, frame.is_multiple_of(50));
            let sample = Sample { dts, cts: 0, duration: 0, sync, data };
            publisher.sample(0, sample, now.after(Duration::from_millis(40) * frame))
        };
        // These references hold the parts that left the window, so shorter windows free no memory.
        let mut held = Vec::new();
        let full = (0..5000).find(|&frame| {
            held.push(stream.track("v0").map(|track| track.window()));
            publish(frame).is_err()
        });
        let full = full.unwrap();
        let mut viewers: Vec<_> = (0..10).map(|_| viewer(&origin, &stream, Flv)).collect();
        for viewer in &mut viewers {
            let next = pin!(viewer.next()).poll(&mut Context::from_waker(Waker::noop()));
            assert!(next.is_pending(), "there is no room");
        }
        assert!(origin.registry.memory().used <= 16 << 20);
        drop(held);
        for frame in full + 1..full + 60 {
            publish(frame).unwrap();
        }
        let mut shared = Vec::new();
        for viewer in &mut viewers {
            let parts = viewer.next().await.unwrap().unwrap();
            shared.push(parts.iter().map(|part| part.as_ptr()).collect::<Vec<_>>());
        }
        assert!(shared[0].len() > 2 && shared.iter().all(|parts| *parts == shared[0]));
        assert!(origin.registry.memory().used <= 16 << 20);
    }

    #[tokio::test]
    async fn a_viewer_that_joins_many_parts_after_the_keyframe_gets_each() {
        let origin = Arc::new(Origin::new(Config::default()));
        let mut now = UnixMicros(1_700_000_000_000_000);
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = origin.registry.publish("x", info, now).unwrap();
        let video = codecs().0;
        publisher.track(0, video, 1000, *b"und", now).unwrap();
        for frame in 0..900u32 {
            now.0 += 33_333;
            let data = Bytes::copy_from_slice(&frame.to_be_bytes());
            let (dts, sync) = (i64::from(frame) * 100 / 3, frame == 0);
            publisher.sample(0, Sample { dts, cts: 0, duration: 0, sync, data }, now).unwrap();
        }
        drop(publisher);
        origin.registry.sweep(now);
        origin.registry.sweep(now.after(Duration::from_secs(31)));

        let stream = origin.registry.stream("x").unwrap();
        let mut viewer = viewer(&origin, &stream, Mp4);
        let behind = viewer.follower.cursor.behind();
        assert!((behind - 30.0).abs() < 0.1, "{behind} s behind");
        let mut frames = Vec::new();
        while let Some(parts) = viewer.next().await.unwrap() {
            for part in parts {
                let chunk = media::cmaf::chunks(&part, None).next().unwrap().unwrap();
                frames.extend(chunk.samples.into_iter().map(|sample| sample.data));
            }
        }
        let frames: Vec<u32> =
            frames.iter().map(|data| u32::from_be_bytes(data[..].try_into().unwrap())).collect();
        assert_eq!(frames, (0..900).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_new_viewer_has_the_headers_of_its_first_parts() {
        let origin = Arc::new(Origin::new(Config::default()));
        let start = UnixMicros(1_700_000_000_000_000);
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = origin.registry.publish("x", info, start).unwrap();
        let audio = |config: &'static [u8]| {
            media::Codec::Aac(media::codec::aac::Config::parse(Bytes::from_static(config)).unwrap())
        };
        publisher.track(0, codecs().0, 1000, *b"und", start).unwrap();
        publisher.track(1, audio(b"\x11\x90"), 1000, *b"und", start).unwrap();
        let mut units = 0;
        for frame in 0..170u32 {
            let now = start.after(Duration::from_millis(40) * frame);
            let millis = i64::from(frame) * 40;
            let sample =
                |dts, sync| Sample { dts, cts: 0, duration: 0, sync, data: b"data"[..].into() };
            publisher.sample(0, sample(millis, frame.is_multiple_of(100)), now).unwrap();
            if frame == 150 {
                publisher.track(1, audio(b"\x11\x88"), 1000, *b"und", now).unwrap();
            }
            while units * 64 / 3 <= millis {
                publisher.sample(1, sample(units * 64 / 3, true), now).unwrap();
                units += 1;
            }
        }
        let stream = Arc::clone(publisher.stream());
        let mut viewer = viewer(&origin, &stream, Mp4);
        let headers = viewer.follower.cursor.headers();
        let newest: Vec<_> = viewer.follower.cursor.tracks().map(|track| track.header()).collect();
        assert!(headers.iter().zip(&newest).any(|(first, newest)| first.msn != newest.msn));
        let parts = viewer.next().await.unwrap().unwrap();
        assert!(parts.len() > 10, "{} parts", parts.len());
    }
}
