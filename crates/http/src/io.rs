//! The streams under connections, and the form in which hyper takes them.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::counters::{OwnTally, count};
use crate::net::Patience;
use crate::net::Permit;
use crate::net::Timer;
use crate::socket::Socket;

/// A connection's stream as the driver needs it: plain, or inside TLS.
pub(crate) trait Stream: Socket + AsyncRead + AsyncWrite + Unpin + 'static {
    /// Whether it sends from files without a copy.
    const SENDS_FILES: bool;

    /// The TCP connection.
    fn tcp(&self) -> &TcpStream;

    /// Grows whenever the kernel takes bytes that the stream [holds](Socket::holds).
    fn drained(&self) -> u64 {
        0
    }

    /// Tells the peer that nothing follows, if closing the connection does not tell it.
    fn poll_farewell(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl Stream for TcpStream {
    const SENDS_FILES: bool = true;

    fn tcp(&self) -> &TcpStream {
        self
    }
}

/// A stream with bytes that were already read from it. These are returned again first.
///
/// A write fails with [`TimedOut`](io::ErrorKind::TimedOut) if the peer takes no byte for
/// `Config::stall_timeout`. The kernel then drops its queued bytes together with the connection.
/// The connection counts against the connection limits until this is dropped.
#[derive(Debug)]
pub(crate) struct Io<S> {
    stream: S,
    replay: Bytes,
    peer: SocketAddr,
    stall_timeout: Duration,
    /// Present while a write waits.
    stall: Option<Stall>,
    stalled: Rc<Cell<bool>>,
    /// Where written bytes are counted.
    tally: Option<OwnTally>,
    permit: Permit,
}

#[derive(Debug)]
struct Stall {
    patience: Patience,
    timer: Timer,
    /// Value of [`drained`](Stream::drained) when the wait began.
    drained: u64,
}

impl<S: Stream> Io<S> {
    pub(crate) fn new(
        stream: S,
        replay: Bytes,
        peer: SocketAddr,
        stall_timeout: Duration,
        permit: Permit,
    ) -> Self {
        let (stall, stalled, tally) = (None, Rc::default(), None);
        Self { stream, replay, peer, stall_timeout, stall, stalled, tally, permit }
    }

    /// Counts written bytes as sent.
    pub(crate) fn counted(mut self, tally: OwnTally) -> Self {
        self.tally = Some(tally);
        self
    }

    /// The other end of the connection.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether a write waits for the peer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stall.is_some()
    }

    /// The stream, and the bytes that were to be read again before those of the stream.
    pub(crate) fn into_parts(self) -> (S, Bytes, Permit) {
        (self.stream, self.replay, self.permit)
    }

    /// Whether a write failed because the peer took no byte for too long.
    pub(crate) fn stalled(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.stalled)
    }

    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let (timeout, drained) = (self.stall_timeout, self.stream.drained());
        // A stream that takes bytes while it still holds earlier ones does not end the wait.
        let ended = result.is_ready() && !self.stream.holds();
        if ended || self.stall.as_ref().is_some_and(|stall| stall.drained != drained) {
            self.stall = None;
        }
        if result.is_ready() {
            return result;
        }
        let stall = self.stall.get_or_insert_with(|| Stall {
            patience: Patience::new(timeout),
            timer: Timer::new(timeout),
            drained,
        });
        ready!(stall.patience.poll(&mut stall.timer, self.stream.tcp(), cx));
        self.stalled.set(true);
        // The kernel would keep queued bytes for as long as the peer is silent.
        let _ = self.stream.tcp().set_zero_linger();
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

    /// Writes bytes after which others follow, or a flush. The stream may hold them until then.
    pub(crate) fn poll_gather(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = self.stream.poll_send(parts, true, cx);
        self.written(cx, result)
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
            // The bytes may be part of a larger buffer, which is released here.
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
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::fd::BorrowedFd;

    use tokio::time::Instant;

    use super::*;
    use crate::net::Gate;

    /// Takes all bytes, and never passes any on.
    struct Hoard(TcpStream);

    impl Socket for Hoard {
        fn poll_send(
            &mut self,
            parts: &[IoSlice<'_>],
            _: bool,
            _: &mut Context<'_>,
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
        }

        fn poll_sendfile(
            &mut self,
            _: BorrowedFd<'_>,
            _: u64,
            _: usize,
            _: &mut Context<'_>,
        ) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn holds(&self) -> bool {
            true
        }
    }

    impl Stream for Hoard {
        const SENDS_FILES: bool = false;

        fn tcp(&self) -> &TcpStream {
            &self.0
        }
    }

    impl AsyncRead for Hoard {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Hoard {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_send(&[IoSlice::new(bytes)], false, cx)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    fn io(timeout: Duration) -> Io<Hoard> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = listener.local_addr().unwrap();
        let socket = std::net::TcpStream::connect(peer).unwrap();
        socket.set_nonblocking(true).unwrap();
        let permit = Gate::new(1, None);
        let permit = std::sync::Arc::new(permit).admit(peer.ip()).unwrap();
        let stream = Hoard(TcpStream::from_std(socket).unwrap());
        Io::new(stream, Bytes::new(), peer, timeout, permit)
    }

    /// Like a real writer, tries to write more whenever it is woken.
    #[tokio::test(start_paused = true)]
    async fn bytes_in_the_stream_do_not_count_as_taken_by_the_peer() {
        const TIMEOUT: Duration = Duration::from_secs(10);
        let (mut io, began) = (io(TIMEOUT), Instant::now());
        let flushed = poll_fn(|cx| {
            assert!(Pin::new(&mut io).poll_write(cx, b"more").is_ready());
            Pin::new(&mut io).poll_flush(cx)
        });
        assert_eq!(flushed.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!((TIMEOUT..=TIMEOUT * 5 / 4).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert!(io.stalled().get());
    }

    #[tokio::test(start_paused = true)]
    async fn a_farewell_has_an_end() {
        let mut io = io(Duration::from_secs(10));
        let error = poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
