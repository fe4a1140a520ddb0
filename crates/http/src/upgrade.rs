//! A connection that continues in another protocol (RFC 9110 7.8).

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::counters::{OwnTally, count};
use crate::net::Drain;
use crate::net::Permit;
use crate::net::Task;
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
    pub transport: Transport,
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
    pub(crate) tally: OwnTally,
    pub(crate) _permit: Permit,
    pub(crate) _task: Task,
}

impl Held {
    /// Counts bytes as sent by the media plane.
    pub fn sent(&self, bytes: u64) {
        count(&self.tally.bytes_sent, bytes);
    }

    /// Counts the connection as closed because its peer took no byte.
    pub fn stalled(&self) {
        count(&self.tally.stalled, 1);
    }
}

/// The stream of an upgraded connection: TCP, or TLS on it. It must be used on its event loop, and
/// by one task at a time. Other tasks may write while that task waits only for input.
#[derive(Debug)]
pub struct Transport(Kind);

#[derive(Debug)]
enum Kind {
    Plain(TcpStream),
    Secure(Box<RefCell<Tls>>),
}

impl From<TcpStream> for Transport {
    fn from(socket: TcpStream) -> Self {
        Self(Kind::Plain(socket))
    }
}

impl From<Tls> for Transport {
    fn from(tls: Tls) -> Self {
        Self(Kind::Secure(Box::new(RefCell::new(tls))))
    }
}

impl Transport {
    /// Calls `f` with the TCP connection.
    pub fn with_tcp<T>(&self, f: impl FnOnce(&TcpStream) -> T) -> T {
        match &self.0 {
            Kind::Plain(socket) => f(socket),
            Kind::Secure(tls) => f(crate::io::Stream::tcp(&*tls.borrow())),
        }
    }

    /// Ready when there may be input. The caller then calls [`try_read`](Self::try_read) until it
    /// would block.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_tcp(|socket| socket.poll_read_ready(cx))
    }

    /// Reads available bytes; returns 0 at the end.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there are none, and errors of the connection.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Kind::Plain(socket) => socket.try_read(buffer),
            Kind::Secure(tls) => {
                let mut buffer = ReadBuf::new(buffer);
                let mut cx = Context::from_waker(Waker::noop());
                match Pin::new(&mut *tls.borrow_mut()).poll_read(&mut cx, &mut buffer) {
                    Poll::Ready(result) => result.map(|()| buffer.filled().len()),
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }

    /// Ready when there may be room for bytes to write or bytes that are held.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_tcp(|socket| socket.poll_write_ready(cx))
    }

    /// Writes once. Returns how many bytes were taken.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, and errors of the connection.
    pub fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            // send(2) of one range costs less than writev(2) of one.
            Kind::Plain(socket) => match parts {
                [only] => socket.try_write(only),
                parts => socket.try_write_vectored(parts),
            },
            Kind::Secure(tls) => {
                let mut cx = Context::from_waker(Waker::noop());
                or_would_block(tls.borrow_mut().poll_send(parts, false, &mut cx))
            }
        }
    }

    /// Whether it has taken bytes that the kernel has not taken yet.
    pub fn holds(&self) -> bool {
        match &self.0 {
            Kind::Plain(_) => false,
            Kind::Secure(tls) => tls.borrow().holds(),
        }
    }

    /// Passes held bytes to the kernel. Returns whether all were taken.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn try_drain(&self) -> io::Result<bool> {
        let Kind::Secure(tls) = &self.0 else { return Ok(true) };
        let mut tls = tls.borrow_mut();
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

    /// One write from an outbox, with files sent as in responses, and counted as sent. Ready with
    /// the number of bytes written, which is 0 only if there were none to write.
    pub fn poll_send(
        &self,
        outbox: &mut Outbox,
        held: &Held,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        let written = ready!(outbox.poll_write(&mut &*self, &held.tally, cx))?;
        held.sent(written as u64);
        Poll::Ready(Ok(written))
    }

    /// Tells the peer that nothing more follows.
    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Kind::Secure(tls) = &self.0 {
            // Sends a TLS message, then closes the connection's sending half.
            return Pin::new(&mut *tls.borrow_mut()).poll_shutdown(cx);
        }
        Poll::Ready(self.with_tcp(|socket| {
            rustix::net::shutdown(socket, rustix::net::Shutdown::Write).map_err(io::Error::from)
        }))
    }

    /// Makes closing the connection drop all bytes that the kernel has queued.
    pub fn forget(&self) {
        // A connection that is gone has none.
        let _ = self.with_tcp(TcpStream::set_zero_linger);
    }
}

impl Socket for &Transport {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        more: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &self.0 {
            Kind::Plain(socket) => (&*socket).poll_send(parts, more, cx),
            Kind::Secure(tls) => tls.borrow_mut().poll_send(parts, more, cx),
        }
    }

    fn poll_sendfile(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &self.0 {
            Kind::Plain(socket) => (&*socket).poll_sendfile(file, offset, length, cx),
            Kind::Secure(tls) => tls.borrow_mut().poll_sendfile(file, offset, length, cx),
        }
    }
}

fn or_would_block(result: Poll<io::Result<usize>>) -> io::Result<usize> {
    match result {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
