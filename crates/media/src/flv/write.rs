//! Turns samples into FLV tags, each written once.

use bytes::Bytes;

use super::{MAX_PAYLOAD, Metadata, TagKind};
use crate::{Codec, Error, Kind, Sample};

const TAG_HEADER: usize = 11;
const BACK_LINK: usize = 4;

/// Header of a file, and the length 0 that precedes the first tag (annex E.2 and E.3).
pub fn file_header(audio: bool, video: bool) -> Bytes {
    let flags = u8::from(audio) << 2 | u8::from(video);
    Bytes::copy_from_slice(&[b'F', b'L', b'V', 1, flags, 0, 0, 0, 9, 0, 0, 0, 0])
}

/// A tag that is written once and shared by all its viewers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    kind: TagKind,
    timestamp: u32,
    tag: Bytes,
}

impl Message {
    /// Writes a tag whose payload is `parts` in a row. Its timestamp is `time` milliseconds, of
    /// which it keeps 32 bits.
    ///
    /// # Errors
    /// The parts together exceed [`MAX_PAYLOAD`].
    pub fn new(kind: TagKind, time: i64, parts: &[&[u8]]) -> Result<Self, Error> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if size > MAX_PAYLOAD {
            return Err(Error::Limit {
                what: "FLV tag".into(),
                at: 0,
                value: size as u64,
                limit: MAX_PAYLOAD as u64,
            });
        }
        // The timestamp wraps, which every reader of the format expects.
        let timestamp = time as u32;
        let [_, s2, s1, s0] = (size as u32).to_be_bytes();
        let [t3, t2, t1, t0] = timestamp.to_be_bytes();
        let mut tag = Vec::with_capacity(TAG_HEADER + size + BACK_LINK);
        tag.extend_from_slice(&[kind.number(), s2, s1, s0, t2, t1, t0, t3, 0, 0, 0]);
        for part in parts {
            tag.extend_from_slice(part);
        }
        tag.extend_from_slice(&((TAG_HEADER + size) as u32).to_be_bytes());
        Ok(Self { kind, timestamp, tag: tag.into() })
    }

    /// Writes a script tag with metadata.
    ///
    /// # Errors
    /// The metadata exceed [`MAX_PAYLOAD`]; metadata that were read never do.
    pub fn metadata(time: i64, metadata: &Metadata) -> Result<Self, Error> {
        Self::new(TagKind::Script, time, &[&metadata.payload()])
    }

    /// Type of the tag, which is also the RTMP message type.
    pub fn kind(&self) -> TagKind {
        self.kind
    }

    /// Timestamp in milliseconds, all 32 bits.
    pub fn timestamp(&self) -> u32 {
        self.timestamp
    }

    /// The whole tag with its length behind it, as in files and HTTP-FLV.
    pub fn tag(&self) -> Bytes {
        self.tag.clone()
    }

    /// The payload alone, as in an RTMP message: a range of the same bytes.
    pub fn payload(&self) -> Bytes {
        self.tag.slice(TAG_HEADER..self.tag.len() - BACK_LINK)
    }
}

/// Writes the tags of one track.
///
/// AVC and AAC of track 0 are written in the legacy form, which every player reads. HEVC, AV1 and
/// Opus are written with their four-character codes, and tracks with another number as multitrack
/// packets of one track (Enhanced RTMP v2).
#[derive(Debug, Clone)]
pub struct Packetizer {
    kind: TagKind,
    form: Form,
    timescale: u32,
    /// The sequence header's data.
    header: Bytes,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Legacy,
    Enhanced { fourcc: [u8; 4], track: u8 },
}

/// The bytes of a tag before its data. The longest prefix is a multitrack packet with composition
/// time.
struct Prefix {
    bytes: [u8; 10],
    length: usize,
}

impl Prefix {
    fn new() -> Self {
        Self { bytes: [0; 10], length: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

const SEQUENCE_START: u8 = 0;
const CODED_FRAMES: u8 = 1;
const SEQUENCE_END: u8 = 2;
const CODED_FRAMES_X: u8 = 3;

impl Packetizer {
    /// Creates a packetizer for track number `track` of its kind, whose samples count time in
    /// `timescale` units per second.
    ///
    /// # Errors
    /// FLV has no form for the codec.
    ///
    /// # Panics
    /// When the timescale is 0, which no [`Track`](crate::Track) may have.
    pub fn new(track: u8, codec: &Codec, timescale: u32) -> Result<Self, Error> {
        assert_ne!(timescale, 0, "a timescale is not 0");
        let fourcc = match codec {
            Codec::Avc(_) => *b"avc1",
            Codec::Hevc(_) => *b"hvc1",
            Codec::Av1(_) => *b"av01",
            Codec::Aac(_) => *b"mp4a",
            Codec::Opus(_) => *b"Opus",
            Codec::Other(other) => {
                let name = other.fourcc.escape_ascii();
                return Err(Error::unsupported(format!("codec '{name}' in FLV"), 0));
            }
        };
        let form = match codec {
            Codec::Avc(_) | Codec::Aac(_) if track == 0 => Form::Legacy,
            _ => Form::Enhanced { fourcc, track },
        };
        let header = match codec {
            Codec::Opus(config) => config.opus_head(),
            _ => codec.record(),
        };
        let kind = match codec.kind() {
            Kind::Video => TagKind::Video,
            Kind::Audio | Kind::Other => TagKind::Audio,
        };
        Ok(Self { kind, form, timescale, header })
    }

    /// Kind of the track's tags: audio or video.
    pub fn kind(&self) -> TagKind {
        self.kind
    }

    /// Sequence header with a timestamp of `time` milliseconds. It must be sent before the first
    /// sample.
    ///
    /// # Errors
    /// The configuration record exceeds [`MAX_PAYLOAD`].
    pub fn sequence_header(&self, time: i64) -> Result<Message, Error> {
        let prefix = self.prefix(SEQUENCE_START, true, 0);
        Message::new(self.kind, time, &[prefix.as_slice(), &self.header])
    }

    /// End of the sequence with a timestamp of `time` milliseconds; `None` for legacy audio, which
    /// has no such packet.
    pub fn sequence_end(&self, time: i64) -> Option<Message> {
        if self.kind == TagKind::Audio && matches!(self.form, Form::Legacy) {
            return None;
        }
        let prefix = self.prefix(SEQUENCE_END, true, 0);
        Message::new(self.kind, time, &[prefix.as_slice()]).ok()
    }

    /// Tag of a sample, its times rounded down to milliseconds.
    ///
    /// # Errors
    /// The sample exceeds [`MAX_PAYLOAD`], or its composition time does not fit 24 bits.
    pub fn sample(&self, sample: &Sample) -> Result<Message, Error> {
        let dts = self.milliseconds(sample.dts);
        let cts = self.milliseconds(sample.pts()).saturating_sub(dts);
        let Some(cts) = i32::try_from(cts).ok().filter(|cts| (-1 << 23..1 << 23).contains(cts))
        else {
            return Err(Error::Limit {
                what: "composition time in milliseconds".into(),
                at: 0,
                value: cts.unsigned_abs(),
                limit: (1 << 23) - 1,
            });
        };
        let prefix = self.prefix(CODED_FRAMES, sample.sync, cts);
        Message::new(self.kind, dts, &[prefix.as_slice(), &sample.data])
    }

    fn milliseconds(&self, time: i64) -> i64 {
        if self.timescale == super::TIMESCALE {
            return time;
        }
        let scaled = i128::from(time) * i128::from(super::TIMESCALE);
        // The result is below i64::MIN only with a timescale under 1000 and a time of 292 million
        // years.
        i64::try_from(scaled.div_euclid(self.timescale.into())).unwrap_or(i64::MAX)
    }

    fn prefix(&self, packet_type: u8, sync: bool, cts: i32) -> Prefix {
        let mut prefix = Prefix::new();
        let [_, c2, c1, c0] = cts.to_be_bytes();
        let frame_type = if sync { 1 } else { 2 };
        let (fourcc, track) = match (self.form, self.kind) {
            (Form::Legacy, TagKind::Video) => {
                prefix.push(&[frame_type << 4 | 7, packet_type, c2, c1, c0]);
                return prefix;
            }
            (Form::Legacy, _) => {
                // AAC always has these values, whatever its configuration (E.4.2.1): 44 kHz, 16
                // bit, stereo.
                prefix.push(&[0xaf, packet_type]);
                return prefix;
            }
            (Form::Enhanced { fourcc, track }, _) => (fourcc, track),
        };
        let is_video = self.kind == TagKind::Video;
        let has_cts = is_video && fourcc != *b"av01" && packet_type == CODED_FRAMES;
        let packet_type = if has_cts && cts == 0 { CODED_FRAMES_X } else { packet_type };
        let (first, multitrack) = if is_video { (0x80 | frame_type << 4, 6) } else { (0x90, 5) };
        if track == 0 {
            prefix.push(&[first | packet_type]);
            prefix.push(&fourcc);
        } else {
            // OneTrack is 0, in the upper half beside the packet type.
            prefix.push(&[first | multitrack, packet_type]);
            prefix.push(&fourcc);
            prefix.push(&[track]);
        }
        if packet_type == CODED_FRAMES && has_cts {
            prefix.push(&[c2, c1, c0]);
        }
        prefix
    }
}
