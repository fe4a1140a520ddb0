//! Counts the bytes of hyper's connections. It counts inside TLS, so TLS itself adds nothing.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of all connections of a worker.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// Bytes sent.
    pub(super) sent: Cell<u64>,
    /// Bytes received that do not belong to bodies: heads, codings, frames.
    pub(super) overhead: Cell<u64>,
}

impl Wire {
    pub(super) fn add_overhead(&self, bytes: u64) {
        self.overhead.set(self.overhead.get() + bytes);
    }
}

/// A connection with counters.
pub(super) struct Metered<S> {
    socket: S,
    wire: Rc<Wire>,
    received: Received,
}

enum Received {
    /// For HTTP/1: the number of received bytes that do not belong to a counted answer yet.
    Bytes(Rc<Cell<u64>>),
    /// For HTTP/2: frames distinguish bodies from the rest.
    Frames(Frames),
}

impl<S> Metered<S> {
    /// Makes a connection for HTTP/1. `unaccounted` counts the received bytes.
    pub(super) fn http1(socket: S, wire: &Rc<Wire>, unaccounted: &Rc<Cell<u64>>) -> Self {
        Self { socket, wire: wire.clone(), received: Received::Bytes(unaccounted.clone()) }
    }

    /// Makes a connection for HTTP/2.
    pub(super) fn http2(socket: S, wire: &Rc<Wire>) -> Self {
        Self { socket, wire: wire.clone(), received: Received::Frames(Frames::default()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buffer))?;
        let came = &buffer.filled()[before..];
        match &mut this.received {
            Received::Bytes(unaccounted) => unaccounted.set(unaccounted.get() + came.len() as u64),
            Received::Frames(frames) => this.wire.add_overhead(frames.overhead(came)),
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Metered<S> {
    fn sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.wire.sent.set(self.wire.sent.get() + bytes as u64);
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.sent(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, parts);
        this.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

/// Position in a stream of HTTP/2 frames (RFC 9113, 4.1).
#[derive(Debug, Default)]
struct Frames {
    head: [u8; 9],
    /// How many bytes of the head have come.
    begun: usize,
    /// How many bytes of the payload are still to come.
    left: usize,
    /// Whether the payload belongs to a body.
    is_data: bool,
    /// Whether the next byte of the payload is the length of its padding (6.1).
    is_padded: bool,
}

impl Frames {
    const DATA: u8 = 0;
    const PADDED: u8 = 8;

    /// Counts the bytes that do not belong to bodies. Padding counts as soon as its length has
    /// come.
    fn overhead(&mut self, mut bytes: &[u8]) -> u64 {
        let mut overhead = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.left == 0 {
                overhead += 1;
                self.take_head(*first);
                bytes = rest;
            } else if std::mem::take(&mut self.is_padded) {
                overhead += 1 + u64::from(*first);
                self.left -= 1;
                bytes = rest;
            } else {
                let taken = self.left.min(bytes.len());
                overhead += if self.is_data { 0 } else { taken as u64 };
                self.left -= taken;
                bytes = &bytes[taken..];
            }
        }
        overhead
    }

    fn take_head(&mut self, byte: u8) {
        self.head[self.begun] = byte;
        self.begun += 1;
        if self.begun == self.head.len() {
            let [a, b, c, kind, flags, ..] = self.head;
            self.begun = 0;
            self.left = u32::from_be_bytes([0, a, b, c]) as usize;
            self.is_data = kind == Self::DATA;
            self.is_padded = self.is_data && flags & Self::PADDED != 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1][..], payload].concat()
    }

    #[test]
    fn all_but_the_data_of_data_frames_is_overhead_however_it_comes() {
        let stream = [
            frame(4, 0, &[0; 18]),
            frame(1, 4, &[7; 40]),
            frame(0, 0, &[8; 200]),
            frame(0, 0, &[]),
            // Ten bytes of a body, then three bytes of padding.
            frame(0, 9, &[3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]),
            frame(6, 0, &[0; 8]),
        ]
        .concat();
        let expected = stream.len() as u64 - 210;
        for piece in [1, 2, 7, 100, stream.len()] {
            let mut frames = Frames::default();
            let found: u64 = stream.chunks(piece).map(|bytes| frames.overhead(bytes)).sum();
            assert_eq!(found, expected, "{piece}");
        }
    }
}
