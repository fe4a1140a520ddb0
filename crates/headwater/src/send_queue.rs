//! Bytes that wait to be sent to a peer.

use std::io::{self, IoSlice};

use bytes::Bytes;
use payload::Queue;

/// Most pieces in one write.
const PIECES: usize = 64;

/// Bytes of answers that may wait. A peer that sends many requests and reads nothing is then not
/// read from.
const ANSWERS: usize = 64 << 10;

/// Pieces to be sent in order, without copying.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    queue: Queue,
    /// Bytes of answers added since it was last empty.
    answers: usize,
}

impl SendQueue {
    /// Adds media. Their sender limits the amount.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.queue.push(piece);
    }

    /// Adds an answer of the session.
    pub(crate) fn answer(&mut self, piece: Bytes) {
        self.answers += piece.len();
        self.push(piece);
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Gives back spare memory.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink();
    }

    /// Bytes not sent yet.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether so many answers wait that no more requests may be read.
    pub(crate) fn is_full(&self) -> bool {
        self.answers >= ANSWERS
    }

    /// Calls `write` until everything is written or the socket is full. Returns the number of bytes
    /// taken.
    ///
    /// # Errors
    /// Those of `write`, except that there is no room.
    pub(crate) fn send(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut sent = 0;
        while !self.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = self.queue.fill(&mut slices, usize::MAX);
            match write(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    sent += written;
                    self.queue.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.queue.is_empty() {
            self.answers = 0;
        }
        Ok(sent)
    }
}
