//! Payloads in the form that hyper takes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::ahead::Ahead;
use crate::counters::OwnTally;
use crate::net::Watch;
use crate::refusal::log_short;
use crate::source::{Broken, Sources, Why};
use crate::{Body, BodyStream, Piece};

/// Bytes per block for hyper: the frame size of HTTP/2 that all peers accept (RFC 9113 4.2). Bytes
/// in a file are copied in blocks of this length, one at a time.
const BLOCK: usize = 16 << 10;

/// Progress of a payload, for the code that watches its time limit.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Since when hyper has had a block without asking for another.
    waiting: Cell<Option<Instant>>,
    /// Whether the peer took less than a block of this payload, or no byte of the connection, for too
    /// long.
    stalled: Cell<bool>,
    connection: Rc<Cell<bool>>,
}

impl Progress {
    /// Progress of a new payload on a connection; `connection` is whether the connection is
    /// stalled.
    pub(crate) fn new(connection: &Rc<Cell<bool>>) -> Rc<Self> {
        Rc::new(Self {
            waiting: Cell::default(),
            stalled: Cell::default(),
            connection: Rc::clone(connection),
        })
    }

    /// Since when the payload has waited for the peer, if it waits.
    pub(crate) fn waiting(&self) -> Option<Instant> {
        self.waiting.get()
    }

    /// Gives up the payload.
    pub(crate) fn stall(&self) {
        self.stalled.set(true);
    }

    fn is_stalled(&self) -> bool {
        self.stalled.get() || self.connection.get()
    }
}

/// Payload of a response.
pub(crate) struct Content {
    inner: Inner,
    progress: Option<Rc<Progress>>,
}

enum Inner {
    Nothing,
    Media(Box<Media>),
    Control(axum::body::Body),
}

impl Content {
    /// An empty payload.
    pub(crate) fn empty() -> Self {
        Self { inner: Inner::Nothing, progress: None }
    }

    /// A payload of the control plane.
    pub(crate) fn control(body: axum::body::Body, progress: Rc<Progress>) -> Self {
        Self { inner: Inner::Control(body), progress: Some(progress) }
    }

    /// A payload of the media plane.
    pub(crate) fn media(
        body: Body,
        peer: SocketAddr,
        progress: Rc<Progress>,
        tally: OwnTally,
        drain: Watch,
    ) -> Self {
        let (ready, stream) = match body {
            Body::Empty => return Self::empty(),
            Body::Pieces(pieces) => (pieces.into(), None),
            // hyper checks that a payload has the announced length.
            Body::Stream(stream) | Body::Sized(_, stream) => (VecDeque::new(), Some(stream)),
        };
        let stream = stream.map(|stream| Streaming { stream, drain, told: false });
        let (sources, ahead) = (Sources::default(), Ahead::default());
        let progress = Some(progress);
        let media = Media { ready, sources, ahead, stream, peer, tally };
        Self { inner: Inner::Media(Box::new(media)), progress }
    }
}

/// A payload of the media plane.
struct Media {
    ready: VecDeque<Piece>,
    sources: Sources,
    ahead: Ahead,
    /// Source of further pieces.
    stream: Option<Streaming>,
    peer: SocketAddr,
    tally: OwnTally,
}

struct Streaming {
    stream: Box<dyn BodyStream>,
    drain: Watch,
    told: bool,
}

impl Media {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match self.ready.front_mut() {
                Some(piece) if piece.is_empty() => {
                    self.ready.pop_front();
                }
                Some(Piece::Bytes(bytes)) => {
                    let block = bytes.split_to(bytes.len().min(BLOCK));
                    return Poll::Ready(Some(Ok(block)));
                }
                Some(Piece::Region(region)) => {
                    let bytes = region.to_bytes();
                    self.ready[0] = Piece::Bytes(bytes);
                }
                Some(Piece::File { .. }) => {
                    return match ready!(self.poll_file(cx)) {
                        Ok(block) => Poll::Ready(block.map(Ok)),
                        // hyper ends the response early.
                        Err(broken) => {
                            log_short(self.peer, &broken);
                            Poll::Ready(Some(Err(io::Error::other(broken.to_string()))))
                        }
                    };
                }
                None => {
                    let Some(streaming) = &mut self.stream else { return Poll::Ready(None) };
                    match ready!(streaming.poll_next(cx)) {
                        Some(pieces) => self.ready.extend(pieces?),
                        None => return Poll::Ready(None),
                    }
                }
            }
        }
    }

    /// A block of the file at the front; `None` if the front is not a file.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        let Some(Piece::File { file, range, version }) = self.ready.front_mut() else {
            return Poll::Ready(Ok(None));
        };
        let source = self.sources.of(file, *version)?;
        let resident = ready!(self.ahead.poll(&source, range, &self.tally, cx));
        let resident = resident.map_err(|error| source.broken(Why::Unreadable(error)))?;
        let end = range.end.min(resident).min(range.start + BLOCK as u64);
        let bytes = source.copy_checked(range.start..end)?;
        range.start = end;
        Poll::Ready(Ok(Some(bytes)))
    }
}

impl Streaming {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<Piece>>>> {
        if !self.told && Pin::new(&mut self.drain).poll(cx).is_ready() {
            self.told = true;
            self.stream.drain();
        }
        self.stream.poll_next(cx)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Inner::Media(media) = &mut self.inner
            && let Some(streaming) = &mut media.stream
            && self.progress.as_ref().is_some_and(|progress| progress.is_stalled())
        {
            streaming.stream.stalled();
        }
    }
}

impl hyper::body::Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let frame = match &mut this.inner {
            Inner::Nothing => Poll::Ready(None),
            Inner::Media(media) => media.poll_next(cx).map_ok(Frame::data),
            Inner::Control(body) => Pin::new(body).poll_frame(cx).map_err(io::Error::other),
        };
        if let Some(progress) = &this.progress {
            progress.waiting.set(frame.is_ready().then(Instant::now));
        }
        frame
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Nothing => SizeHint::with_exact(0),
            Inner::Media(media) if media.stream.is_none() => {
                SizeHint::with_exact(media.ready.iter().map(Piece::len).sum())
            }
            Inner::Media(_) => SizeHint::default(),
            Inner::Control(body) => body.size_hint(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Nothing => true,
            Inner::Media(media) => {
                media.stream.is_none() && media.ready.iter().all(Piece::is_empty)
            }
            Inner::Control(body) => body.is_end_stream(),
        }
    }
}
