//! What goes over the connections that hyper speaks on, counted: within TLS, so as it would be
//! without.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of all connections of a worker.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// Sent.
    pub(super) sent: Cell<u64>,
    /// Received that were no bodies: heads, codings, frames.
    pub(super) overhead: Cell<u64>,
}

impl Wire {
    pub(super) fn add_overhead(&self, bytes: u64) {
        self.overhead.set(self.overhead.get() + bytes);
    }
}

/// A connection whose bytes are counted.
pub(super) struct Metered<S> {
    socket: S,
    wire: Rc<Wire>,
    received: Received,
}

enum Received {
    /// HTTP/1: how many bytes have come that are not accounted for.
    Bytes(Rc<Cell<u64>>),
    /// HTTP/2: frames tell bodies from the rest.
    Frames(Frames),
}

impl<S> Metered<S> {
    /// For HTTP/1; `unaccounted` becomes the number of bytes received.
    pub(super) fn http1(socket: S, wire: &Rc<Wire>, unaccounted: &Rc<Cell<u64>>) -> Self {
        Self { socket, wire: wire.clone(), received: Received::Bytes(unaccounted.clone()) }
    }

    /// For HTTP/2.
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

/// Where a stream of HTTP/2 frames is (RFC 9113, 4.1).
#[derive(Debug, Default)]
struct Frames {
    head: [u8; 9],
    /// Bytes of the head that have come.
    begun: usize,
    /// Bytes of the payload that have not.
    left: usize,
    /// Whether the payload is of a body.
    is_data: bool,
    /// Whether its next byte is the length of padding (6.1).
    is_padded: bool,
}

impl Frames {
    const DATA: u8 = 0;
    const PADDED: u8 = 8;

    /// How many of the next bytes are of no body. Padding counts when its length has come.
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
            // Three bytes of padding after ten of a body.
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
