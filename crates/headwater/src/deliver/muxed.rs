//! Endless responses that carry every track: fragmented MP4 and HTTP-FLV.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Body, BodyStream, Piece, Request, Response};
use live::cursor::{Cursor, Next};
use live::{Delivery, Part, Segment, Stream, Track, Viewing};
use media::flv::{Message, Metadata, Packetizer};

use super::unfold::unfold;
use crate::Origin;
use crate::counts::TooSlow;
use live::wait::ready;

/// `live.mp4`: the header of the tracks it carries, then their chunks as they are.
pub(super) async fn mp4(request: &Request, origin: &Arc<Origin>, stream: &Arc<Stream>) -> Response {
    respond(request, origin, stream, Delivery::Mp4, "video/mp4", Mp4).await
}

/// `live.flv`: FLV tags.
pub(super) async fn flv(request: &Request, origin: &Arc<Origin>, stream: &Arc<Stream>) -> Response {
    respond(request, origin, stream, Delivery::Flv, "video/x-flv", Flv).await
}

/// How parts become bytes of a container.
trait Mux: 'static {
    /// What goes before the first part, which is so many seconds behind live.
    fn start(&self, tracks: &[Arc<Track>], behind: f64) -> Result<Bytes, media::Error>;
    /// What a new configuration of a track needs before its parts; `None` where the container
    /// cannot change, and the response ends.
    fn reconfigure(&self, segment: &Segment) -> Option<Result<Bytes, media::Error>>;
    /// A part's bytes.
    fn part(&self, segment: &Segment, part: &Part) -> Result<Bytes, media::Error>;
}

async fn respond<M: Mux>(
    request: &Request,
    origin: &Arc<Origin>,
    stream: &Arc<Stream>,
    delivery: Delivery,
    content_type: &str,
    mux: M,
) -> Response {
    if !ready(stream).await {
        return Response::text(503, "the stream has no media yet").header("Retry-After", 1);
    }
    let Some(mut cursor) = Cursor::new(stream, origin.viewer_limits()) else {
        return Response::text(503, "the stream has no keyframe yet").header("Retry-After", 1);
    };
    let tracks: Vec<_> = cursor.tracks().cloned().collect();
    let behind = cursor.behind();
    let start = match mux.start(&tracks, behind) {
        Ok(start) => start,
        Err(error) => return Response::text(406, error),
    };
    let viewer = Viewer {
        origin: Arc::clone(origin),
        headers: tracks.iter().map(|track| track.header().msn).collect(),
        cursor,
        mux,
        start: Some(start),
        stream: Arc::clone(stream),
        delivery,
        peer: request.peer(),
        _viewing: stream.watch(delivery),
    };
    let body = unfold(viewer, true, |mut viewer| async move {
        Ok(viewer.next().await?.map(|bytes| (bytes, viewer)))
    });
    Response::new(200)
        .header("Content-Type", content_type)
        .header("Cache-Control", "no-store")
        // Seconds of media that come at once: it begins with a keyframe.
        .header("Headwater-Behind", format_args!("{behind:.3}"))
        .body(Body::Stream(Box::new(Watched {
            body,
            origin: Arc::clone(origin),
            stream: Arc::clone(stream),
            delivery,
            peer: request.peer(),
        })))
}

/// Says which viewer it was that took nothing at all, which the connection finds out.
struct Watched<B> {
    body: B,
    origin: Arc<Origin>,
    stream: Arc<Stream>,
    delivery: Delivery,
    peer: SocketAddr,
}

impl<B: BodyStream> BodyStream for Watched<B> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        self.body.poll_next(cx)
    }

    fn drain(&mut self) {
        self.body.drain();
    }

    fn stalled(&mut self) {
        tracing::warn!(
            stream = self.stream.name(), peer = %self.peer, delivery = self.delivery.name(),
            "viewer closed: takes nothing"
        );
        self.origin.slow_viewers.closed(self.delivery, TooSlow::Stalled);
    }
}

/// Parts that go out in one piece at most.
const BATCH: usize = 64;

struct Viewer<M> {
    origin: Arc<Origin>,
    cursor: Cursor,
    mux: M,
    /// Which header each track's parts had last.
    headers: Vec<u64>,
    start: Option<Bytes>,
    stream: Arc<Stream>,
    delivery: Delivery,
    peer: SocketAddr,
    _viewing: Viewing,
}

impl<M: Mux> Viewer<M> {
    async fn next(&mut self) -> io::Result<Option<Vec<Bytes>>> {
        if let Some(start) = self.start.take() {
            return Ok(Some(vec![start]));
        }
        let mut out = Vec::new();
        let mut next = self.cursor.next(|| self.origin.now()).await;
        loop {
            match next {
                Next::Part { track, segment, part } => {
                    if self.headers.get(track) != Some(&segment.header.msn) {
                        let Some(bytes) = self.mux.reconfigure(&segment) else {
                            return Ok((!out.is_empty()).then_some(out));
                        };
                        out.push(bytes.map_err(io::Error::other)?);
                        if let Some(known) = self.headers.get_mut(track) {
                            *known = segment.header.msn;
                        }
                    }
                    out.push(self.mux.part(&segment, &part).map_err(io::Error::other)?);
                }
                Next::Tracks | Next::Switched { .. } => {
                    // No segment has number 0, so each track's header goes out before its parts.
                    self.headers = vec![0; self.cursor.tracks().count()];
                }
                Next::Skipped => {
                    self.origin.slow_viewers.skipped(self.delivery, self.stream.name(), self.peer);
                }
                Next::TooSlow => {
                    tracing::warn!(
                        stream = self.stream.name(), peer = %self.peer,
                        delivery = self.delivery.name(), "viewer closed: reads too slowly"
                    );
                    self.origin.slow_viewers.closed(self.delivery, TooSlow::Behind);
                    return Err(io::Error::other("viewer reads too slowly"));
                }
                Next::Ended => return Ok((!out.is_empty()).then_some(out)),
            }
            // What else is there goes out with it; a burst is bounded by the viewer's queue.
            if out.len() >= BATCH {
                return Ok(Some(out));
            }
            next = match self.cursor.poll(self.origin.now()) {
                Some(more) => more,
                None if out.is_empty() => self.cursor.next(|| self.origin.now()).await,
                None => return Ok(Some(out)),
            };
        }
    }
}

struct Mp4;

impl Mux for Mp4 {
    fn start(&self, tracks: &[Arc<Track>], _: f64) -> Result<Bytes, media::Error> {
        let headers: Vec<_> = tracks.iter().map(|track| track.header()).collect();
        let tracks: Vec<_> = headers.iter().map(|header| &header.track).collect();
        media::cmaf::header(&tracks)
    }

    fn reconfigure(&self, _: &Segment) -> Option<Result<Bytes, media::Error>> {
        None
    }

    fn part(&self, _: &Segment, part: &Part) -> Result<Bytes, media::Error> {
        Ok(part.region.to_bytes())
    }
}

struct Flv;

impl Mux for Flv {
    fn start(&self, tracks: &[Arc<Track>], behind: f64) -> Result<Bytes, media::Error> {
        let has = |kind| tracks.iter().any(|track| track.kind == kind);
        let mut out =
            media::flv::file_header(has(media::Kind::Audio), has(media::Kind::Video)).to_vec();
        let headers: Vec<_> = tracks.iter().map(|track| track.header()).collect();
        out.extend_from_slice(&Message::metadata(0, &metadata(tracks, behind))?.tag());
        for header in headers {
            out.extend_from_slice(&packetizer(&header.track)?.sequence_header(0)?.tag());
        }
        Ok(out.into())
    }

    fn reconfigure(&self, segment: &Segment) -> Option<Result<Bytes, media::Error>> {
        let header = || {
            let time = milliseconds(segment.start, &segment.header.track);
            Ok(packetizer(&segment.header.track)?.sequence_header(time)?.tag())
        };
        Some(header())
    }

    fn part(&self, segment: &Segment, part: &Part) -> Result<Bytes, media::Error> {
        if let Some(known) = part.flv.get() {
            return Ok(known.clone());
        }
        let mut tags = Vec::new();
        for message in messages(segment, part)? {
            tags.extend_from_slice(&message.tag());
        }
        Ok(part.flv.keep(part, tags.into()))
    }
}

/// How `track`'s samples are written as FLV tags and RTMP messages.
pub fn packetizer(track: &media::Track) -> Result<Packetizer, media::Error> {
    Packetizer::new(0, &track.codec, track.timescale)
}

/// A part's samples as FLV tags or RTMP messages.
pub fn messages(segment: &Segment, part: &Part) -> Result<Vec<Message>, media::Error> {
    let packetizer = packetizer(&segment.header.track)?;
    let bytes = part.region.to_bytes();
    let mut out = Vec::with_capacity(part.samples.len());
    for layout in &part.samples {
        let start = layout.offset as usize;
        out.push(packetizer.sample(&media::Sample {
            dts: layout.dts,
            cts: layout.cts,
            duration: 0,
            sync: layout.sync,
            data: bytes.slice(start..start + layout.size as usize),
        })?);
    }
    Ok(out)
}

/// `onMetaData` for a viewer of `tracks` that begins so many seconds `behind` live.
pub fn metadata(tracks: &[Arc<Track>], behind: f64) -> Metadata {
    let headers: Vec<_> = tracks.iter().map(|track| track.header()).collect();
    let mut metadata = Metadata::describe(headers.iter().map(|header| &header.track.codec));
    metadata.behind = Some((behind * 1000.0).round() / 1000.0);
    for track in tracks {
        let rate = track.bitrate().map(|(mean, _)| mean as f64 / 1000.0);
        match track.kind {
            media::Kind::Video => metadata.video_data_rate = rate,
            _ => metadata.audio_data_rate = rate,
        }
    }
    metadata
}

/// A track's time in milliseconds.
pub fn milliseconds(time: i64, track: &media::Track) -> i64 {
    live::rescale(time, track.timescale, 1000)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use live::{PublisherInfo, UnixMicros};
    use media::Sample;

    use super::*;
    use crate::config::Config;
    use crate::deliver::hls::tests::codecs;

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
        origin.registry.sweep(now.after(std::time::Duration::from_secs(31)));

        let stream = origin.registry.stream("x").unwrap();
        let mut cursor = Cursor::new(&stream, origin.viewer_limits()).unwrap();
        assert!((cursor.behind() - 30.0).abs() < 0.1, "{} s behind", cursor.behind());
        let mut viewer = Viewer {
            origin: Arc::clone(&origin),
            headers: cursor.tracks().map(|track| track.header().msn).collect(),
            cursor,
            mux: Mp4,
            start: None,
            stream: Arc::clone(&stream),
            delivery: Delivery::Mp4,
            peer: (Ipv4Addr::LOCALHOST, 0).into(),
            _viewing: stream.watch(Delivery::Mp4),
        };
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
}
