//! A viewer's connection, as its session and its broadcast write to it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use http::{Held, Transport};

use crate::broadcast::Line;

pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) held: Held,
}

/// What a connection is ready for.
pub(super) enum Ready {
    Input,
    Room,
}

impl Wire {
    /// Ready when there may be something to read, if it `listens`, or room, if it `writes`.
    pub(super) fn poll_ready(
        &self,
        listens: bool,
        writes: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Ready> {
        // Errors show when it is read or written.
        if listens && self.transport.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Ready::Input);
        }
        if writes && self.transport.poll_write_ready(cx).is_ready() {
            return Poll::Ready(Ready::Room);
        }
        Poll::Pending
    }

    /// One write, counted.
    pub(super) fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.transport.try_write_vectored(parts)?;
        self.held.sent(written as u64);
        Ok(written)
    }
}

impl Line for Wire {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    fn holds(&self) -> bool {
        self.transport.holds()
    }
}
