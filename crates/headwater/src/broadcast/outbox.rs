//! What is on its way to a peer.

use std::io::{self, IoSlice};

use bytes::Bytes;
use payload::Queue;

/// Pieces in one write.
const PIECES: usize = 64;

/// Bytes of answers that may wait: a peer that asks on and on and reads nothing is not listened to.
const ANSWERS: usize = 64 << 10;

/// Pieces to be sent in order, without copying.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: Queue,
    /// Bytes of answers put in since it was last empty.
    answers: usize,
}

impl Outbox {
    /// Media, which whoever sends it measures out.
    pub fn push(&mut self, piece: Bytes) {
        self.queue.push(piece);
    }

    /// An answer of the session's.
    pub fn answer(&mut self, piece: Bytes) {
        self.answers += piece.len();
        self.push(piece);
    }

    /// Whether nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Gives back spare memory.
    pub fn shrink(&mut self) {
        self.queue.shrink();
    }

    /// Bytes not sent yet.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether so many answers wait that no more may be asked.
    pub fn is_full(&self) -> bool {
        self.answers >= ANSWERS
    }

    /// Calls `write` until everything is written or the socket is full; how many bytes it took.
    ///
    /// # Errors
    /// Those of `write`, other than that there is no room.
    pub fn send(
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
