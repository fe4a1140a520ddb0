//! Frames that say which they are.

use bytes::Bytes;

/// What a frame says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// The session of an encoder.
    pub(super) session: u32,
    pub(super) number: u32,
}

impl Frame {
    pub(super) fn write(self) -> Bytes {
        let mut bytes = vec![7; 40];
        bytes[4..8].copy_from_slice(&self.session.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
        bytes.into()
    }

    /// The frame of a sample; none if it is silence that was put in.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        (bytes.len() == 40).then_some(Self { session: number(4)?, number: number(8)? })
    }

    /// Whether nothing is between this frame and `last`.
    pub(super) fn follows(self, last: Self) -> bool {
        self.session == last.session && self.number == last.number + 1
    }
}
