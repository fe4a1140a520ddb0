//! What is on its way to a peer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tokio::net::TcpStream;

/// Pieces in one write.
const PIECES: usize = 64;

/// Bytes of answers that may wait: a peer that asks on and on and reads nothing is not listened to.
const ANSWERS: usize = 64 << 10;

/// Pieces to be sent in order, without copying.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Bytes>,
    len: usize,
    /// Bytes of answers put in since it was last empty.
    answers: usize,
}

impl Outbox {
    /// Media, which whoever sends it measures out.
    pub(super) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// An answer of the session's.
    pub(super) fn answer(&mut self, piece: Bytes) {
        self.answers += piece.len();
        self.push(piece);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives back spare memory.
    pub(super) fn shrink(&mut self) {
        self.pieces.shrink_to_fit();
    }

    /// Bytes not sent yet.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether so many answers wait that no more may be asked.
    pub(super) fn is_full(&self) -> bool {
        self.answers >= ANSWERS
    }

    /// Writes until everything is written or the socket is full; how many bytes it took.
    pub(super) fn send(&mut self, socket: &TcpStream) -> io::Result<usize> {
        let mut sent = 0;
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = self.pieces.len().min(PIECES);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
            }
            match socket.try_write_vectored(&slices[..count]) {
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
