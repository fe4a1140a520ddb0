//! A connection that continues in another protocol (RFC 9110 7.8).

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use rustix::net::Shutdown;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::counters::{Counters, OwnTally, count};
use crate::io::Stream;
use crate::net::{Drain, Permit, Task, Told, Worker, told, unacknowledged};
use crate::send::{Fault, Outbox};
use crate::socket::Socket;
use crate::tls::Tls;

/// Receives a connection once its 101 (Switching Protocols) is sent.
pub(crate) struct Switch(pub(crate) Box<dyn FnOnce(Upgraded)>);

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switch")
    }
}

/// A connection after its 101. While it lives, it counts against the connection limits, and a
/// draining server waits for it.
pub struct Upgraded {
    /// The connection.
    pub transport: Box<dyn Transport>,
    /// Bytes that were already read from it.
    pub input: Bytes,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Tells when the connection should end.
    pub drain: Drain,
    /// Must be kept until the connection is closed.
    pub held: Held,
}

/// A connection's place in the server.
pub struct Held {
    tally: OwnTally,
    _permit: Permit,
    _task: Task,
}

impl Held {
    /// The place of a connection of this worker, which counts in `counters`.
    pub fn new(counters: &Arc<Counters>, worker: &Worker, permit: Permit) -> Self {
        let tally = OwnTally::new(counters, worker.index);
        Self { tally, _permit: permit, _task: worker.task() }
    }

    /// Writes once from an outbox, with files sent as in responses, and counts the bytes as sent.
    /// Ready with the number of bytes written, which is 0 only if there were none to write.
    pub fn poll_send(
        &self,
        socket: &mut impl Socket,
        outbox: &mut Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        let written = ready!(outbox.poll_write(socket, &self.tally, cx))?;
        self.sent(written as u64);
        Poll::Ready(Ok(written))
    }

    /// Counts bytes as sent by the media plane.
    pub fn sent(&self, bytes: u64) {
        count(&self.tally.bytes_sent, bytes);
    }

    /// Counts the connection as closed because its peer took no byte.
    pub fn stalled(&self) {
        count(&self.tally.stalled, 1);
    }
}

/// The stream of a connection after its 101, or of one without HTTP: TCP, or TLS on it. It must be
/// used on its event loop, and by one task at a time. Other tasks may write while that task waits
/// only for input.
pub trait Transport: fmt::Debug {
    /// Ready when there may be input. The caller then calls [`try_read`](Self::try_read) until it
    /// would block.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads available bytes; returns 0 at the end.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there are none, and errors of the connection.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Ready when there may be room for bytes to write or bytes that are held.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready when there may be input, if the caller `listens`, or room, if it `writes`. An error
    /// shows at the next read or write.
    fn poll_ready(&self, listens: bool, writes: bool, cx: &mut Context<'_>) -> Poll<Ready> {
        if listens && self.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Ready::Input);
        }
        if writes && self.poll_write_ready(cx).is_ready() {
            return Poll::Ready(Ready::Room);
        }
        Poll::Pending
    }

    /// Writes once. Returns how many bytes were taken.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and errors of the connection.
    fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Writes once from an outbox: [`Held::poll_send`] with this connection's socket.
    fn poll_send(
        &self,
        outbox: &mut Outbox,
        held: &Held,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>>;

    /// Whether it has taken bytes that the kernel has not taken yet.
    fn holds(&self) -> bool {
        false
    }

    /// Passes held bytes to the kernel. Returns whether all were taken.
    ///
    /// # Errors
    /// Errors of the connection.
    fn try_drain(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Tells the peer that nothing more follows.
    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Bytes that the kernel has taken and the peer has not acknowledged. `None` for a connection
    /// that no longer exists.
    fn unacknowledged(&self) -> Option<u64>;

    /// What the kernel reports of the connection. `None` as for [`told`].
    fn told(&self) -> Option<Told>;

    /// Bounds the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`).
    ///
    /// # Errors
    /// The kernel has no such option.
    fn bound_unsent(&self, bytes: u32) -> io::Result<()>;

    /// Bounds all bytes in the kernel (`SO_SNDBUF`). The kernel doubles the figure for its own
    /// overhead.
    ///
    /// # Errors
    /// The kernel has no such option.
    fn bound(&self, bytes: usize) -> io::Result<()>;

    /// Makes closing the connection drop all bytes that the kernel has queued.
    fn forget(&self);
}

/// What a connection is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Input.
    Input,
    /// Output.
    Room,
}

impl Transport for TcpStream {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read(buffer)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_ready(cx)
    }

    fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        // send(2) of one range costs less than writev(2) of one.
        match parts {
            [only] => self.try_write(only),
            parts => self.try_write_vectored(parts),
        }
    }

    fn poll_send(
        &self,
        outbox: &mut Outbox,
        held: &Held,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        held.poll_send(&mut &*self, outbox, cx)
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(self, Shutdown::Write).map_err(io::Error::from))
    }

    fn unacknowledged(&self) -> Option<u64> {
        unacknowledged(self)
    }

    fn told(&self) -> Option<Told> {
        told(self)
    }

    fn bound_unsent(&self, bytes: u32) -> io::Result<()> {
        SockRef::from(self).set_tcp_notsent_lowat(bytes)
    }

    fn bound(&self, bytes: usize) -> io::Result<()> {
        SockRef::from(self).set_send_buffer_size(bytes)
    }

    fn forget(&self) {
        // A connection that is gone has none.
        let _ = self.set_zero_linger();
    }
}

impl Transport for RefCell<Tls> {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.borrow().tcp().poll_read_ready(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut *self.borrow_mut()).poll_read(&mut cx, &mut buffer) {
            Poll::Ready(result) => result.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.borrow().tcp().poll_write_ready(cx)
    }

    fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        or_would_block(self.borrow_mut().poll_send(parts, false, &mut cx))
    }

    fn poll_send(
        &self,
        outbox: &mut Outbox,
        held: &Held,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        held.poll_send(&mut *self.borrow_mut(), outbox, cx)
    }

    fn holds(&self) -> bool {
        self.borrow().holds()
    }

    fn try_drain(&self) -> io::Result<bool> {
        let mut tls = self.borrow_mut();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            match or_would_block(tls.poll_drain(&mut cx)) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a TLS message, then closes the connection's sending half.
    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.borrow_mut()).poll_shutdown(cx)
    }

    fn unacknowledged(&self) -> Option<u64> {
        unacknowledged(self.borrow().tcp())
    }

    fn told(&self) -> Option<Told> {
        told(self.borrow().tcp())
    }

    fn bound_unsent(&self, bytes: u32) -> io::Result<()> {
        self.borrow().tcp().bound_unsent(bytes)
    }

    fn bound(&self, bytes: usize) -> io::Result<()> {
        self.borrow().tcp().bound(bytes)
    }

    fn forget(&self) {
        self.borrow().tcp().forget();
    }
}

impl From<TcpStream> for Box<dyn Transport> {
    fn from(socket: TcpStream) -> Self {
        Box::new(socket)
    }
}

impl From<Tls> for Box<dyn Transport> {
    fn from(tls: Tls) -> Self {
        Box::new(RefCell::new(tls))
    }
}

fn or_would_block(result: Poll<io::Result<usize>>) -> io::Result<usize> {
    match result {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
