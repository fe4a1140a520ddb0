//! What connections run over, and one that hyper takes over.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::limits::{OwnTally, Permit, count};
use super::send::Socket;
use super::upgrade::Transport;

/// A connection as the driver needs it: plain, or with TLS around it.
pub(super) trait Stream: Socket + AsyncRead + AsyncWrite + Unpin + 'static {
    /// Whether it sends from files without copying.
    const SENDS_FILES: bool;

    /// The TCP connection.
    fn tcp(&self) -> &TcpStream;

    /// The connection for another protocol.
    fn into_transport(self) -> Transport;

    /// Grows with all that the kernel takes of what the stream [holds](Socket::holds).
    fn drained(&self) -> u64 {
        0
    }
}

impl Stream for TcpStream {
    const SENDS_FILES: bool = true;

    fn tcp(&self) -> &TcpStream {
        self
    }

    fn into_transport(self) -> Transport {
        self.into()
    }
}

/// A connection with what was already read of it, which is read again first.
///
/// A write that makes no progress for `Config::stall_timeout` fails with
/// [`TimedOut`](io::ErrorKind::TimedOut). Counts against the connection limits until dropped.
#[derive(Debug)]
pub(super) struct Io<S> {
    stream: S,
    replay: Bytes,
    peer: SocketAddr,
    stall_timeout: Duration,
    /// Runs while a write waits, since the stream had drained so much.
    stall: Option<(Pin<Box<Sleep>>, u64)>,
    stalled: Rc<Cell<bool>>,
    /// Where what is written is counted.
    tally: Option<OwnTally>,
    permit: Permit,
}

impl<S: Stream> Io<S> {
    pub(super) fn new(
        stream: S,
        replay: Bytes,
        peer: SocketAddr,
        stall_timeout: Duration,
        permit: Permit,
    ) -> Self {
        let (stall, stalled, tally) = (None, Rc::default(), None);
        Self { stream, replay, peer, stall_timeout, stall, stalled, tally, permit }
    }

    /// Counts what is written as sent by the media plane.
    pub(super) fn counted(mut self, tally: OwnTally) -> Self {
        self.tally = Some(tally);
        self
    }

    /// The other end of the connection.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether a write waits for the peer.
    pub(super) fn is_waiting(&self) -> bool {
        self.stall.is_some()
    }

    /// The connection without what was still to be read again.
    pub(super) fn into_stream(self) -> (S, Permit) {
        (self.stream, self.permit)
    }

    /// Whether a write failed because the peer took nothing for too long.
    pub(super) fn stalled(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.stalled)
    }

    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stall = None;
            return result;
        }
        let (timeout, drained) = (self.stall_timeout, self.stream.drained());
        let begin = || (Box::pin(tokio::time::sleep(timeout)), drained);
        let stall = self.stall.get_or_insert_with(begin);
        if stall.1 != drained {
            *stall = begin();
        }
        std::task::ready!(stall.0.as_mut().poll(cx));
        self.stalled.set(true);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn written(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(written)), Some(tally)) = (&result, &self.tally) {
            count(&tally.bytes_sent, *written as u64);
        }
        self.watch(cx, result)
    }
}

impl<S: Stream> AsyncRead for Io<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replay.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let n = self.replay.len().min(buf.remaining());
        buf.put_slice(&self.replay[..n]);
        self.replay.advance(n);
        if self.replay.is_empty() {
            // The bytes may be a part of a larger buffer.
            self.replay = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncWrite for Io<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
