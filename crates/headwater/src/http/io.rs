//! A connection that hyper takes over.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::limits::Permit;

/// A connection with what was already read of it, which is read again first.
///
/// A write that makes no progress for `Config::stall_timeout` fails with
/// [`TimedOut`](io::ErrorKind::TimedOut). Counts against the connection limits until dropped.
#[derive(Debug)]
pub(super) struct Io {
    stream: TcpStream,
    replay: Bytes,
    peer: SocketAddr,
    stall_timeout: Duration,
    /// Runs while a write waits.
    stall: Option<Pin<Box<Sleep>>>,
    _permit: Permit,
}

impl Io {
    pub(super) fn new(
        stream: TcpStream,
        replay: Bytes,
        peer: SocketAddr,
        stall_timeout: Duration,
        permit: Permit,
    ) -> Self {
        Self { stream, replay, peer, stall_timeout, stall: None, _permit: permit }
    }

    /// The other end of the connection.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn watch(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if result.is_ready() {
            self.stall = None;
            return result;
        }
        let timeout = self.stall_timeout;
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        stall.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Io {
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

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
