//! What is on its way to a peer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};

/// Pieces in one write.
const PIECES: usize = 64;

/// Bytes of answers that may wait: a peer that asks on and on and reads nothing is not listened to.
const ANSWERS: usize = 64 << 10;

/// Pieces to be sent in order, without copying.
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Bytes>,
    len: usize,
    /// Bytes of answers put in since it was last empty.
    answers: usize,
}

impl Outbox {
    /// Media, which whoever sends it measures out.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// An answer of the session's.
    pub fn answer(&mut self, piece: Bytes) {
        self.answers += piece.len();
        self.push(piece);
    }

    /// Whether nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives back spare memory.
    pub fn shrink(&mut self) {
        self.pieces.shrink_to_fit();
    }

    /// Bytes not sent yet.
    pub fn len(&self) -> usize {
        self.len
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
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = self.pieces.len().min(PIECES);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
            }
            match write(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    sent += written;
                    self.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.pieces.is_empty() {
            self.answers = 0;
        }
        Ok(sent)
    }

    fn advance(&mut self, mut written: usize) {
        self.len -= written;
        while let Some(piece) = self.pieces.front_mut() {
            if written < piece.len() {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.pieces.pop_front();
        }
    }
}
