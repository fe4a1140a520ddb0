use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Payloads of at least this size are queued without a copy. Copying a shorter one costs less than
/// another piece for the caller to write.
const SHARE_FROM: usize = 2048;

/// Bytes to be sent, in pieces.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl Output {
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if bytes.len() < SHARE_FROM {
            self.copy(&bytes);
            return;
        }
        self.len += bytes.len();
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
        self.pieces.push_back(bytes);
    }

    pub(crate) fn poll(&mut self) -> Option<Bytes> {
        let piece = self
            .pieces
            .pop_front()
            .or_else(|| (!self.tail.is_empty()).then(|| std::mem::take(&mut self.tail).freeze()))?;
        self.len -= piece.len();
        Some(piece)
    }

    /// Releases spare memory.
    pub(crate) fn shrink(&mut self) {
        self.pieces.shrink_to_fit();
    }

    /// Bytes that were not polled yet.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
