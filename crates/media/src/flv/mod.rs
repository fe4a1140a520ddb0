//! FLV files and the tag payloads that RTMP shares with them.
//!
//! - [`Reader`] takes the bytes of a file or an HTTP-FLV response and returns [`Tag`]s.
//! - [`Demuxer`] takes tags, or audio, video and data messages of RTMP, and returns track
//!   configurations and samples. The payloads of tags and messages are the same.
//! - [`Packetizer`] turns samples into tags. Each tag is written once: [`Message::tag`] for
//!   HTTP-FLV and [`Message::payload`] for RTMP are ranges of the same bytes.
//!
//! The formats are Adobe's "Video File Format Specification 10.1", annex E, and Enhanced RTMP v2
//! (veovera.org). Codec number 12 for HEVC is in neither, but many encoders write it.

use std::fmt;

use crate::Kind;

mod amf;
mod demux;
mod metadata;
mod payload;
mod read;
mod write;

pub use demux::{
    AUDIO_FOURCCS, Demuxer, Event, MAX_CONFIGURATION, MAX_STEP, Problem, Reason, VIDEO_FOURCCS,
};
pub use metadata::Metadata;
pub use payload::{Body, CodecId, MAX_TRACKS, Packet, parse_audio, parse_video};
pub use read::{Header, Reader, Tag};
pub use write::{Message, Packetizer, file_header};

/// Units per second of FLV and RTMP timestamps: milliseconds.
pub const TIMESCALE: u32 = 1000;

/// Largest payload of a tag or an RTMP message: its length has 24 bits.
pub const MAX_PAYLOAD: usize = 0xff_ffff;

/// What a tag carries; the numbers are also RTMP's message types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TagKind {
    /// Audio, type 8.
    Audio,
    /// Video, type 9.
    Video,
    /// Script data in AMF0, type 18: `onMetaData`.
    Script,
}

impl TagKind {
    /// The kind with that tag type (and RTMP message type).
    pub fn from_type(number: u8) -> Option<Self> {
        match number {
            8 => Some(Self::Audio),
            9 => Some(Self::Video),
            18 => Some(Self::Script),
            _ => None,
        }
    }

    /// The tag type and RTMP message type.
    pub fn number(self) -> u8 {
        match self {
            Self::Audio => 8,
            Self::Video => 9,
            Self::Script => 18,
        }
    }
}

/// A track as FLV names it. Audio and video tracks are numbered separately; a tag without a track
/// number belongs to track 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackId {
    /// Audio or video.
    pub kind: Kind,
    /// `videoTrackId` or `audioTrackId` of Enhanced RTMP.
    pub number: u8,
}

impl fmt::Display for TrackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Video => "video",
            Kind::Audio => "audio",
            Kind::Other => "other",
        };
        write!(f, "{kind} track {}", self.number)
    }
}
