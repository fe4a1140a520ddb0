//! Gathers the writes of an HTTP/2 connection.
//!
//! hyper writes and flushes each DATA frame by itself. What one turn of the connection's task writes goes to the kernel
//! in one call here, or in several of as many bytes as the stream holds. While the kernel takes nothing, a flush waits,
//! so that no more frames pile up before those of other streams.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::io::{Io, Stream};

/// The stream of a connection, whose written bytes wait for [`poll_send`](Self::poll_send). The stream must hold bytes
/// until it is flushed, as TLS does: a socket of its own would hold the last ones longer than that.
pub(crate) struct Gather<S>(Rc<RefCell<Gathered<S>>>);

struct Gathered<S> {
    io: Io<S>,
    /// An error that the connection has not seen yet.
    failed: Option<io::Error>,
}

impl<S> Clone for Gather<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: Stream> Gather<S> {
    pub(crate) fn new(io: Io<S>) -> Self {
        Self(Rc::new(RefCell::new(Gathered { io, failed: None })))
    }

    /// Sends what was written. Must be called after each turn of the connection, with its context. If that fails, the
    /// connection's next turn gets the error.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) {
        let this = &mut *self.0.borrow_mut();
        if let Poll::Ready(Err(error)) = Pin::new(&mut this.io).poll_flush(cx) {
            this.failed = Some(error);
            cx.waker().wake_by_ref();
        }
    }

    /// Whether written bytes wait for the peer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.borrow().io.is_waiting()
    }

    fn with<T>(
        &self,
        call: impl FnOnce(Pin<&mut Io<S>>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let this = &mut *self.0.borrow_mut();
        match this.failed.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => call(Pin::new(&mut this.io)),
        }
    }
}

impl<S: Stream> AsyncRead for Gather<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_read(cx, buf))
    }
}

impl<S: Stream> AsyncWrite for Gather<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|io| io.poll_gather(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|io| if io.is_waiting() { io.poll_flush(cx) } else { Poll::Ready(Ok(())) })
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_shutdown(cx))
    }
}
