use bytes::Bytes;

use crate::{Codec, Kind};

/// One elementary stream, with what a decoder needs before the first sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// CMAF track_ID, unique within a stream, not 0.
    pub id: u32,
    /// Units per second in which the track's samples count time; not 0.
    pub timescale: u32,
    /// Codec and its configuration.
    pub codec: Codec,
    /// ISO 639-2/T code; `und` where the source does not name a language.
    pub language: [u8; 3],
}

impl Track {
    /// Whether this is video, audio or something else.
    pub fn kind(&self) -> Kind {
        self.codec.kind()
    }
}

/// One access unit: a coded frame of video, or a coded audio frame.
///
/// What `data` holds depends on the codec:
///
/// - H.264 and HEVC: NAL units, each preceded by its length. The track's configuration says how
///   many bytes a length takes.
/// - AV1: the OBUs of one temporal unit, without the temporal delimiter.
/// - AAC: a raw frame without an ADTS header.
/// - Opus: one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Decode time in the track's timescale, unwrapped; may be negative before the origin.
    pub dts: i64,
    /// Composition time minus decode time, in the track's timescale.
    pub cts: i32,
    /// Duration in the track's timescale; 0 where the source does not give one (live input).
    pub duration: u32,
    /// Whether decoding can start here: true for keyframes and for every audio frame.
    pub sync: bool,
    /// The access unit.
    pub data: Bytes,
}

impl Sample {
    /// Composition (presentation) time in the track's timescale.
    pub fn pts(&self) -> i64 {
        self.dts + i64::from(self.cts)
    }
}
