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

/// How many bytes at the end of a region are copied. hyper may keep the last blocks of a payload
/// until the connection ends: of HTTP/2 `h2::SEND` and a block. If they were shared, each could keep
/// 1 MiB of a live window. The blocks before them are shared, because hyper asks for the last ones
/// only after it has sent those.
const COPIED: usize = 4 * BLOCK;

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
            Body::Pieces(mut pieces) => {
                pieces.retain(|piece| !piece.is_empty());
                (pieces.into(), None)
            }
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
            // The time limit of a payload ends when hyper has sent its last block, and hyper sends a
            // block when the peer has room for its first byte. So the last byte is a block of its own.
            let is_last = self.stream.is_none() && self.ready.len() == 1;
            match self.ready.front_mut() {
                Some(piece) if piece.is_empty() => {
                    self.ready.pop_front();
                }
                Some(Piece::Bytes(bytes)) => {
                    let most = if is_last { (bytes.len() - 1).max(1) } else { bytes.len() };
                    let block = bytes.split_to(most.min(BLOCK));
                    return Poll::Ready(Some(Ok(block)));
                }
                Some(Piece::Region(region)) => {
                    let (block, rest) = (region.slice(0..BLOCK), region.slice(BLOCK..region.len()));
                    let block = match region.len() <= COPIED {
                        true => Bytes::copy_from_slice(block.as_ref()),
                        false => block.to_bytes(),
                    };
                    *region = rest;
                    self.put_first(block);
                }
                Some(Piece::File { .. }) => match ready!(self.poll_file(cx)) {
                    Ok(block) => self.put_first(block),
                    // hyper ends the response early.
                    Err(broken) => {
                        log_short(self.peer, &broken);
                        return Poll::Ready(Some(Err(io::Error::other(broken.to_string()))));
                    }
                },
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

    /// Puts a block before the rest of the piece that it was taken from.
    fn put_first(&mut self, block: Bytes) {
        match self.ready.front_mut() {
            Some(rest) if rest.is_empty() => *rest = block.into(),
            _ => self.ready.push_front(block.into()),
        }
    }

    /// Takes a block from the file at the front. It is empty if the front is not a file.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Broken>> {
        let Some(Piece::File { file, range, version }) = self.ready.front_mut() else {
            return Poll::Ready(Ok(Bytes::new()));
        };
        let source = self.sources.of(file, *version)?;
        let resident = ready!(self.ahead.poll(&source, range, &self.tally, cx));
        let resident = resident.map_err(|error| source.broken(Why::Unreadable(error)))?;
        let end = range.end.min(resident).min(range.start + BLOCK as u64);
        let bytes = source.copy_checked(range.start..end)?;
        range.start = end;
        Poll::Ready(Ok(bytes))
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::sync::Arc;

    use hyper::body::Body as _;
    use payload::memory::{Account, Arena, Memory};

    use super::*;
    use crate::counters::Counters;
    use crate::net::{Drain, Gate};

    fn content(pieces: Vec<Piece>) -> Content {
        let counters = Arc::new(Counters::new(Arc::new(Gate::new(1, None)), 1));
        let (tally, drain) = (OwnTally::new(&counters, 0), Drain::default().begun());
        let peer = (Ipv4Addr::LOCALHOST, 1).into();
        Content::media(Body::Pieces(pieces), peer, Progress::new(&Rc::default()), tally, drain)
    }

    /// All blocks of a payload.
    async fn blocks(content: &mut Content) -> Vec<Bytes> {
        let mut blocks = Vec::new();
        while !content.is_end_stream() {
            let block = poll_fn(|cx| pin!(&mut *content).poll_frame(cx)).await;
            blocks.push(block.unwrap().unwrap().into_data().unwrap());
        }
        blocks
    }

    #[tokio::test]
    async fn last_blocks_keep_no_memory_of_a_window() {
        for length in [1, 2, 1000, 300_000] {
            let memory = Memory::new(u64::MAX);
            let mut arena = Arena::new(&memory, Account::open(memory.budget())).unwrap();
            let bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let region = arena.store(&bytes).unwrap();
            let mut content = content(vec![region.into()]);
            let mut blocks = blocks(&mut content).await;
            drop((content, arena));
            assert_eq!(blocks.concat(), bytes);
            // hyper has no more than the last three and the last byte.
            blocks.drain(..blocks.len().saturating_sub(4));
            assert_eq!(memory.budget().used(), 0, "{length} bytes");
        }
    }

    #[tokio::test]
    async fn the_last_byte_of_a_payload_is_a_block_of_its_own() {
        use std::io::Write as _;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 2 * BLOCK]).unwrap();
        let file = Arc::new(file.into());
        let file =
            |length| Piece::File { file: Arc::clone(&file), range: 0..length, version: None };
        let bytes = |length| Piece::Bytes(Bytes::from(vec![7; length]));
        for (pieces, expected) in [
            (vec![], vec![]),
            (vec![bytes(1), bytes(0)], vec![1]),
            (vec![bytes(2)], vec![1, 1]),
            (vec![bytes(10), bytes(10), bytes(0)], vec![10, 9, 1]),
            (vec![bytes(BLOCK + 1)], vec![BLOCK, 1]),
            (vec![bytes(10), file(10)], vec![10, 9, 1]),
            (vec![file(2 * BLOCK as u64)], vec![BLOCK, BLOCK - 1, 1]),
        ] {
            let lengths: Vec<_> =
                blocks(&mut content(pieces)).await.iter().map(Bytes::len).collect();
            assert_eq!(lengths, expected);
        }
    }
}
