//! A viewer's connection. The session and the broadcast both write to it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use http::{Fault, Held, Outbox, Transport};

use crate::broadcast::Line;

pub(super) struct Wire {
    pub(super) transport: Box<dyn Transport>,
    pub(super) held: Held,
}

impl Wire {
    /// Writes once from an outbox and counts the bytes.
    pub(super) fn poll_send(
        &self,
        outbox: &mut Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, Fault>> {
        self.transport.poll_send(outbox, &self.held, cx)
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
