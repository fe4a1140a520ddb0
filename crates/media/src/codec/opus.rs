//! Opus: OpusSpecificBox (`dOps`), and the OpusHead of RFC 7845 that Enhanced RTMP carries.

use bytes::Bytes;

use crate::Error;

/// What the identification says.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The payload of `dOps` (big-endian), whichever form the source had.
    pub record: Bytes,
    /// Output channels.
    pub channels: u8,
    /// Samples at 48 kHz to discard at the start.
    pub pre_skip: u16,
}

impl Config {
    /// Reads the payload of a `dOps` box.
    ///
    /// # Errors
    /// The record is cut off or breaks the rules.
    pub fn parse(record: Bytes) -> Result<Self, Error> {
        let _ = record;
        Err(Error::unsupported("Opus", 0))
    }
}
