//! TLS on a connection (RFC 8446): rustls between the driver and the socket.

use std::io::{self, IoSlice, Write};
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::io::Stream;
use crate::socket::{Socket, poll_io};

/// Most bytes of ciphertext that a connection holds while the kernel does not take them.
const HELD: usize = 64 << 10;

/// A connection after its handshake, and the number of ciphertext bytes sent on it.
#[derive(Debug)]
pub(crate) struct Tls(TlsStream<TcpStream>, u64);

impl Tls {
    pub(crate) fn new(mut stream: TlsStream<TcpStream>) -> Self {
        stream.get_mut().1.set_buffer_limit(Some(HELD));
        Self(stream, 0)
    }

    /// The protocol that the handshake selected (RFC 7301).
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.0.get_ref().1.alpn_protocol()
    }
}

impl Stream for Tls {
    const SENDS_FILES: bool = false;

    fn tcp(&self) -> &TcpStream {
        self.0.get_ref().0
    }

    fn drained(&self) -> u64 {
        self.1
    }

    /// Without `close_notify` a client considers its data truncated (RFC 8446 6.1).
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A peer that has gone needs no farewell.
        Pin::new(self).poll_shutdown(cx).map(drop)
    }
}

impl Socket for Tls {
    fn poll_send(
        &mut self,
        parts: &[IoSlice<'_>],
        more: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if parts.iter().all(|part| part.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let taken = loop {
            let taken = self.0.get_mut().1.writer().write_vectored(parts)?;
            if taken > 0 {
                break taken;
            }
            if ready!(self.poll_drain(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        };
        // Bytes that follow at once are sent together with these.
        if !more && let Poll::Ready(Err(error)) = self.poll_drain(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(taken))
    }

    /// Not supported, so the caller copies: the bytes on the wire are not those of the file.
    fn poll_sendfile(
        &mut self,
        _: BorrowedFd<'_>,
        _: u64,
        _: usize,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(Errno::OPNOTSUPP.into()))
    }

    fn holds(&self) -> bool {
        self.0.get_ref().1.wants_write()
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.holds() {
            return Poll::Ready(Ok(0));
        }
        let (tcp, session) = self.0.get_mut();
        let written = ready!(poll_io(tcp, cx, |tcp| session.write_tls(&mut Kernel(tcp))))?;
        self.1 += written as u64;
        match written {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => Poll::Ready(Ok(written)),
        }
    }
}

/// The socket, in the form to which rustls writes.
struct Kernel<'a>(&'a TcpStream);

impl Write for Kernel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut control = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(self.0, parts, &mut control, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Tls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Tls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(&[IoSlice::new(bytes)], false, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(parts, false, cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while ready!(self.poll_drain(cx))? > 0 {}
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
