//! Codecs: configuration records, RFC 6381 codec strings, and the structure of access units.

use std::borrow::Cow;

use bytes::Bytes;

use crate::Kind;

pub mod aac;
pub mod av1;
pub mod avc;
mod bits;
mod encoder;
pub mod hevc;
pub mod nal;
pub mod opus;

pub use encoder::keyframe_interval;

/// A codec with its configuration: everything a decoder must know before the first sample.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Codec {
    /// H.264, ISO/IEC 14496-10.
    Avc(avc::Config),
    /// HEVC, ISO/IEC 23008-2.
    Hevc(hevc::Config),
    /// AV1.
    Av1(av1::Config),
    /// MPEG-4 audio, ISO/IEC 14496-3.
    Aac(aac::Config),
    /// Opus, RFC 6716.
    Opus(opus::Config),
    /// Any other codec: its samples can be counted and copied, but not packaged.
    Other(Other),
}

/// A codec that is not handled, known only by the four-character code of its sample entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Kind of track that uses the codec.
    pub kind: Kind,
    /// Four-character code of the sample entry (MP4) or codec (FLV).
    pub fourcc: [u8; 4],
}

impl Codec {
    /// Whether the codec carries video, audio or something else.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Avc(_) | Self::Hevc(_) | Self::Av1(_) => Kind::Video,
            Self::Aac(_) | Self::Opus(_) => Kind::Audio,
            Self::Other(other) => other.kind,
        }
    }

    /// Value for `CODECS` and `codecs`, as in RFC 6381 and the codecs' own registrations:
    /// `avc1.64001f`, `hvc1.1.6.L93.B0`, `av01.0.04M.08`, `mp4a.40.2`, `opus`.
    pub fn rfc6381(&self) -> Cow<'static, str> {
        match self {
            Self::Avc(config) => config.rfc6381().into(),
            Self::Hevc(config) => config.rfc6381().into(),
            Self::Av1(config) => config.rfc6381().into(),
            Self::Aac(config) => config.rfc6381().into(),
            Self::Opus(_) => "opus".into(),
            Self::Other(other) => String::from_utf8_lossy(&other.fourcc).trim().to_owned().into(),
        }
    }

    /// The configuration record as containers carry it: the payload of `avcC`, `hvcC`, `av1C`,
    /// `dOps`, or the AudioSpecificConfig; empty for [`Codec::Other`].
    pub fn record(&self) -> Bytes {
        match self {
            Self::Avc(config) => config.record.clone(),
            Self::Hevc(config) => config.record.clone(),
            Self::Av1(config) => config.record.clone(),
            Self::Aac(config) => config.record.clone(),
            Self::Opus(config) => config.record.clone(),
            Self::Other(_) => Bytes::new(),
        }
    }

    /// Coded picture size in pixels after cropping, for video.
    pub fn resolution(&self) -> Option<(u32, u32)> {
        match self {
            Self::Avc(config) => Some((config.width, config.height)),
            Self::Hevc(config) => Some((config.width, config.height)),
            Self::Av1(config) => Some((config.width, config.height)),
            Self::Aac(_) | Self::Opus(_) | Self::Other(_) => None,
        }
    }

    /// Sampling rate in Hz and channel count, for audio.
    pub fn audio(&self) -> Option<(u32, u16)> {
        match self {
            Self::Aac(config) => Some((config.sample_rate, config.channels)),
            Self::Opus(config) => Some((48_000, u16::from(config.channels))),
            Self::Avc(_) | Self::Hevc(_) | Self::Av1(_) | Self::Other(_) => None,
        }
    }

    /// PCM samples in one access unit, where the codec fixes that number (AAC: 1024 or 960, HE-AAC
    /// 2048). Opus packets vary: see [`opus::packet_duration`].
    pub fn frame_length(&self) -> Option<u32> {
        match self {
            Self::Aac(config) => Some(config.frame_length),
            _ => None,
        }
    }
}

/// `frames` in `seconds` as a reduced fraction. `None` above 300 frames a second: such a value is
/// the tick of a clock (1/1000, 1/90000) and says nothing about frames.
fn frame_rate(frames: u64, seconds: u64) -> Option<(u32, u32)> {
    if seconds == 0 || frames == 0 || frames / seconds > 300 {
        return None;
    }
    let (mut a, mut b) = (frames, seconds);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    Some((u32::try_from(frames / a).ok()?, u32::try_from(seconds / a).ok()?))
}
