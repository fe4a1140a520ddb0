//! A viewer's connection, as its fan writes to it.

use std::io::{self, IoSlice};

use crate::fan::Line;
use crate::http::{Held, Transport};

pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) held: Held,
}

impl Wire {
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
