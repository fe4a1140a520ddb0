//! The system calls by which bytes leave: writes from memory and `sendfile` from a file.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};

use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The receiver of responses: a connection.
pub trait Socket {
    /// One write of these parts from memory. `more` means that something else follows at once and
    /// may share the last segment.
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        more: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>>;

    /// One write of `length` bytes from this offset of a file, without a copy.
    fn poll_sendfile(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>>;

    /// Whether it has taken bytes that the kernel has not taken yet.
    fn holds(&self) -> bool {
        false
    }

    /// One write of the bytes it holds. Returns how many were written; 0 if it holds none.
    fn poll_drain(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }
}

impl Socket for TcpStream {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        more: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        (&*self).poll_send(parts, more, cx)
    }

    fn poll_sendfile(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        (&*self).poll_sendfile(file, offset, length, cx)
    }
}

impl Socket for &TcpStream {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        more: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let flags = if more { SendFlags::MORE } else { SendFlags::empty() } | SendFlags::NOSIGNAL;
        poll_io(self, cx, |socket| {
            rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)
        })
    }

    fn poll_sendfile(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        poll_io(self, cx, |socket| {
            rustix::fs::sendfile(socket, file, Some(&mut offset.clone()), length)
        })
    }
}

/// Tries a system call when the socket is writable, until it need not wait.
pub(crate) fn poll_io<E>(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    mut call: impl FnMut(&TcpStream) -> Result<usize, E>,
) -> Poll<io::Result<usize>>
where
    io::Error: From<E>,
{
    loop {
        ready!(socket.poll_write_ready(cx))?;
        match socket.try_io(Interest::WRITABLE, || Ok(call(socket)?)) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            result => return Poll::Ready(result),
        }
    }
}
