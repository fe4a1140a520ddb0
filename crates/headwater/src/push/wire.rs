//! A viewer's connection. The session and the broadcast both write to it.

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
    /// Waits until there may be input, if it `listens`, or room, if it `writes`.
    pub(super) fn poll_ready(
        &self,
        listens: bool,
        writes: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Ready> {
        // An error shows at the next read or write.
        if listens && self.transport.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Ready::Input);
        }
        if writes && self.transport.poll_write_ready(cx).is_ready() {
            return Poll::Ready(Ready::Room);
        }
        Poll::Pending
    }

    /// Writes once and counts the bytes.
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
