//! MPEG-4 audio: AudioSpecificConfig, ISO/IEC 14496-3 1.6.2.

use bytes::Bytes;

use crate::Error;

/// What an AudioSpecificConfig says.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The AudioSpecificConfig itself.
    pub record: Bytes,
    /// Audio object type as signalled first (2 AAC-LC, 5 SBR, 29 PS).
    pub object_type: u8,
    /// Output sampling rate in Hz (the extension's where SBR is signalled).
    pub sample_rate: u32,
    /// Channels of the output.
    pub channels: u16,
    /// Output PCM samples per access unit: 1024, 960, or twice that with explicit SBR.
    pub frame_length: u32,
}

impl Config {
    /// Reads an AudioSpecificConfig.
    ///
    /// # Errors
    /// The record is cut off or breaks the codec's rules.
    pub fn parse(record: Bytes) -> Result<Self, Error> {
        let _ = record;
        Err(Error::unsupported("AAC", 0))
    }

    /// RFC 6381 codec string.
    pub fn rfc6381(&self) -> String {
        format!("mp4a.40.{}", self.object_type)
    }
}
