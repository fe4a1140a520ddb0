//! The one place where bytes of responses go out.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// Parts per write. More than a response of ours has, and far below the kernel's 1,024.
const MAX_PARTS: usize = 64;

/// Bytes per write. What one connection may do before the others of its thread have their turn is a
/// few of these.
const MAX_WRITE: usize = 256 << 10;

/// What is to be sent on a connection, in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    parts: VecDeque<Bytes>,
    size: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.size += part.len();
            self.parts.push_back(part);
        }
    }

    /// Bytes not sent yet.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// One write of what is there. Ready with the number of bytes written, which is 0 only if there
    /// was nothing to write.
    pub(super) fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.parts.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut slices = [IoSlice::new(&[]); MAX_PARTS];
        let (mut count, mut room) = (0, MAX_WRITE);
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            let part = &part[..part.len().min(room)];
            *slice = IoSlice::new(part);
            count += 1;
            room -= part.len();
            if room == 0 {
                break;
            }
        }
        let written = ready!(Pin::new(stream).poll_write_vectored(cx, &slices[..count]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, mut n: usize) {
        self.size -= n;
        while let Some(part) = self.parts.front_mut() {
            if n < part.len() {
                part.advance(n);
                return;
            }
            n -= part.len();
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time, fewer each time, and what was written stays in order.
    #[test]
    fn partial_writes() {
        struct Reluctant(Vec<u8>, usize);
        impl AsyncWrite for Reluctant {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.poll_write_vectored(cx, &[IoSlice::new(buf)])
            }
            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                parts: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.1 = self.1 % 7 + 1;
                let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                let n = self.1.min(all.len());
                self.0.extend_from_slice(&all[..n]);
                Poll::Ready(Ok(n))
            }
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for i in 0..200_u8 {
            let part = vec![i; usize::from(i % 11)];
            expected.extend_from_slice(&part);
            outbox.push(part.into());
        }
        assert_eq!(outbox.size(), expected.len());
        let mut sink = Reluctant(Vec::new(), 0);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Ok(1..)) = outbox.poll_write(&mut sink, &mut cx) {}
        assert_eq!(sink.0, expected);
        assert_eq!(outbox.size(), 0);
    }
}
