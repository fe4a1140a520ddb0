//! HEVC: HEVCDecoderConfigurationRecord, ISO/IEC 14496-15 8.3.3.1.

use bytes::Bytes;

use crate::Error;

/// What a configuration record says.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The record itself.
    pub record: Bytes,
    /// Picture width in pixels, cropped.
    pub width: u32,
    /// Picture height in pixels, cropped.
    pub height: u32,
    /// Frames per second as a fraction, where the parameter sets fix it.
    pub frame_rate: Option<(u32, u32)>,
}

impl Config {
    /// Reads a configuration record.
    ///
    /// # Errors
    /// The record is cut off or breaks the codec's rules.
    pub fn parse(record: Bytes) -> Result<Self, Error> {
        let _ = record;
        Err(Error::unsupported("HEVC", 0))
    }

    /// RFC 6381 codec string.
    pub fn rfc6381(&self) -> String {
        String::new()
    }
}
