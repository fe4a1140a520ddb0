//! Bytes in memory that wait to be written.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Byte strings to be written one after the other, without copying them.
#[derive(Debug, Default)]
pub struct Queue {
    strings: VecDeque<Bytes>,
    len: usize,
}

impl Queue {
    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.strings.push_back(bytes);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Fills `slices` for one vectored write of at most `most` bytes. Returns the number of filled
    /// slices.
    pub fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>], most: usize) -> usize {
        let (mut count, mut room) = (0, most);
        for (slice, bytes) in slices.iter_mut().zip(&self.strings) {
            if room == 0 {
                break;
            }
            let bytes = &bytes[..bytes.len().min(room)];
            *slice = IoSlice::new(bytes);
            count += 1;
            room -= bytes.len();
        }
        count
    }

    /// Removes the first `written` bytes.
    pub fn advance(&mut self, mut written: usize) {
        self.len = self.len.saturating_sub(written);
        while let Some(bytes) = self.strings.front_mut() {
            if written < bytes.len() {
                bytes.advance(written);
                return;
            }
            written -= bytes.len();
            self.strings.pop_front();
        }
    }

    /// Gives spare memory back.
    pub fn shrink(&mut self) {
        self.strings.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_however_much_a_write_takes() {
        for (most, takes) in [(1, 1), (7, 3), (64, 64), (usize::MAX, 5), (usize::MAX, 1000)] {
            let (mut queue, mut expected, mut out) = (Queue::default(), Vec::new(), Vec::new());
            for size in [0, 1, 5, 300, 0, 2, 64, 65] {
                let bytes: Vec<u8> =
                    (0..size).map(|at| u8::try_from((at * 7 + size) % 251).unwrap()).collect();
                expected.extend_from_slice(&bytes);
                queue.push(bytes.into());
            }
            assert_eq!(queue.len(), expected.len());
            while !queue.is_empty() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = queue.fill(&mut slices, most);
                let offered: Vec<u8> =
                    slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                assert!(!offered.is_empty() && offered.len() <= most);
                let written = offered.len().min(takes);
                out.extend_from_slice(&offered[..written]);
                queue.advance(written);
                assert_eq!(queue.len(), expected.len() - out.len());
            }
            assert_eq!(out, expected);
            assert_eq!(queue.fill(&mut [IoSlice::new(&[]); 3], most), 0);
        }
    }
}
