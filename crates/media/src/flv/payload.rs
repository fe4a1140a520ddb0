//! Reads the payloads of audio and video tags, legacy and enhanced.

use std::fmt;

use bytes::Bytes;

use crate::Error;

/// `VideoFrameType` and `VideoPacketType`, Enhanced RTMP v2; the first two also annex E.4.3.1.
const KEY_FRAME: u8 = 1;
const COMMAND_FRAME: u8 = 5;

const SEQUENCE_START: u8 = 0;
const CODED_FRAMES: u8 = 1;
const SEQUENCE_END: u8 = 2;
const VIDEO_CODED_FRAMES_X: u8 = 3;
const VIDEO_METADATA: u8 = 4;
const VIDEO_MULTITRACK: u8 = 6;
const AUDIO_MULTITRACK: u8 = 5;
const MOD_EX: u8 = 7;

/// `AvMultitrackType`.
const ONE_TRACK: u8 = 0;
const MANY_TRACKS: u8 = 1;
const MANY_TRACKS_MANY_CODECS: u8 = 2;

/// The most tracks in one tag, and in one stream of tags. Encoders send two or three. A track may
/// take only four bytes of the tag, but takes much more memory once it is read.
pub const MAX_TRACKS: usize = 32;

/// The most ModEx packets before the actual packet. Only one kind is defined today. Without a
/// limit, a tag of 16 MiB could have five million of them.
const MAX_MOD_EX: usize = 16;

/// How a tag names its codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodecId {
    /// Four-character code. The legacy numbers of AVC, HEVC and AAC are turned into theirs: `avc1`,
    /// `hvc1`, `av01`, `mp4a`, `Opus`.
    Fourcc([u8; 4]),
    /// Another `CodecID` of annex E.4.3.1.
    Video(u8),
    /// Another `SoundFormat` of annex E.4.2.1.
    Audio(u8),
}

impl CodecId {
    pub(super) const AVC: Self = Self::Fourcc(*b"avc1");
    pub(super) const HEVC: Self = Self::Fourcc(*b"hvc1");
    pub(super) const AV1: Self = Self::Fourcc(*b"av01");
    pub(super) const AAC: Self = Self::Fourcc(*b"mp4a");
    pub(super) const OPUS: Self = Self::Fourcc(*b"Opus");
}

impl fmt::Display for CodecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::Fourcc(fourcc) => return write!(f, "codec '{}'", fourcc.escape_ascii()),
            Self::Video(2) => "Sorenson H.263",
            Self::Video(3) => "Screen video",
            Self::Video(4) => "On2 VP6",
            Self::Video(5) => "On2 VP6 with alpha",
            Self::Video(6) => "Screen video 2",
            Self::Video(number) => return write!(f, "FLV video codec {number}"),
            Self::Audio(0 | 3) => "PCM",
            Self::Audio(1) => "ADPCM",
            Self::Audio(2 | 14) => "MP3",
            Self::Audio(4..=6) => "Nellymoser",
            Self::Audio(7 | 8) => "G.711",
            Self::Audio(11) => "Speex",
            Self::Audio(number) => return write!(f, "FLV audio format {number}"),
        };
        f.write_str(name)
    }
}

/// The content of a tag for one track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The track's number; 0 outside multitrack packets.
    pub track: u8,
    /// Its codec.
    pub codec: CodecId,
    /// The content.
    pub body: Body,
    /// Where the body's data starts in the payload.
    pub at: u64,
    /// Nanoseconds to add to the presentation time, from TimestampOffsetNano; below 1,000,000.
    pub nanoseconds: u32,
}

/// The kinds of [`Packet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The decoder's configuration.
    SequenceStart(Bytes),
    /// One access unit.
    Frame {
        /// Composition time offset in milliseconds.
        cts: i32,
        /// Whether the tag calls it a keyframe; always true for audio.
        keyframe: bool,
        /// The access unit: a slice of the payload.
        data: Bytes,
    },
    /// The codec's sequence ends.
    SequenceEnd,
    /// Something that decoding does not need: colour information, a channel layout, a configuration
    /// for MPEG-2 TS, or a command to a seeking client.
    Ignored,
}

/// Reads a payload from front to back.
struct Cursor<'a> {
    payload: &'a Bytes,
    position: usize,
    what: &'static str,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let rest = self.payload.get(self.position..).unwrap_or_default();
        let Some(bytes) = rest.first_chunk() else {
            return Err(self.cut_off(N));
        };
        self.position += N;
        Ok(*bytes)
    }

    fn u8(&mut self) -> Result<u8, Error> {
        self.take().map(|[byte]| byte)
    }

    fn u24(&mut self) -> Result<u32, Error> {
        self.take().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// A signed number of 24 bits.
    fn i24(&mut self) -> Result<i32, Error> {
        self.take().map(|[a, b, c]| i32::from_be_bytes([a, b, c, 0]) >> 8)
    }

    /// Two numbers of four bits.
    fn nibbles(&mut self) -> Result<(u8, u8), Error> {
        self.u8().map(|byte| (byte >> 4, byte & 0xf))
    }

    fn skip(&mut self, count: usize) -> Result<(), Error> {
        if self.payload.len() - self.position < count {
            return Err(self.cut_off(count));
        }
        self.position += count;
        Ok(())
    }

    /// The bytes from the current position to `end`.
    fn slice_to(&self, end: usize) -> Bytes {
        self.payload.slice(self.position.min(end)..end)
    }

    fn cut_off(&self, count: usize) -> Error {
        Error::cut_off(self.what, 0, (self.position + count) as u64, self.payload.len() as u64)
    }

    /// Checks that `value` does not exceed `limit`. The error names the current position.
    fn limit(&self, what: &'static str, value: usize, limit: usize) -> Result<(), Error> {
        if value <= limit {
            return Ok(());
        }
        let (at, value, limit) = (self.position as u64, value as u64, limit as u64);
        Err(Error::Limit { what: what.into(), at, value, limit })
    }

    /// Reads the ModEx packets before the actual packet. Returns the type of the actual packet, and
    /// the offset in nanoseconds if one ModEx is TimestampOffsetNano. Other ModEx packets are
    /// skipped.
    fn mod_ex(&mut self, mut packet_type: u8) -> Result<(u8, u32), Error> {
        let mut nanoseconds = 0;
        let mut count = 0;
        while packet_type == MOD_EX {
            count += 1;
            self.limit("ModEx packets of a tag", count, MAX_MOD_EX)?;
            let mut size = usize::from(self.u8()?) + 1;
            if size == 256 {
                size = usize::from(u16::from_be_bytes(self.take()?)) + 1;
            }
            let start = self.position;
            self.skip(size)?;
            let data = self.payload.get(start..start + size).unwrap_or_default();
            let kind;
            (kind, packet_type) = self.nibbles()?;
            if let (0, &[a, b, c, ..]) = (kind, data) {
                nanoseconds = u32::from_be_bytes([0, a, b, c]).min(999_999);
            }
        }
        Ok((packet_type, nanoseconds))
    }

    /// Reads what follows the packet type of an enhanced tag: one track, or all tracks of a
    /// multitrack packet. `body` reads the content of a track up to the given position.
    fn tracks(
        &mut self,
        packet_type: u8,
        multitrack: u8,
        nanoseconds: u32,
        out: &mut Vec<Packet>,
        body: impl Fn(&mut Self, u8, CodecId, usize) -> Result<Body, Error>,
    ) -> Result<(), Error> {
        let all = self.payload.len();
        if packet_type != multitrack {
            let codec = CodecId::Fourcc(self.take()?);
            let body = body(self, packet_type, codec, all)?;
            out.push(Packet { track: 0, codec, body, at: self.position as u64, nanoseconds });
            return Ok(());
        }
        let (layout, packet_type) = self.nibbles()?;
        if packet_type == multitrack {
            return Err(Error::malformed("multitrack inside multitrack", self.position as u64 - 1));
        }
        let mut codec = match layout {
            ONE_TRACK | MANY_TRACKS => CodecId::Fourcc(self.take()?),
            // Each track has its own codec.
            MANY_TRACKS_MANY_CODECS => CodecId::Fourcc([0; 4]),
            _ => {
                return Err(Error::unsupported(
                    format!("multitrack type {layout}"),
                    self.position as u64 - 1,
                ));
            }
        };
        for count in 1.. {
            self.limit("tracks of a tag", count, MAX_TRACKS)?;
            if layout == MANY_TRACKS_MANY_CODECS {
                codec = CodecId::Fourcc(self.take()?);
            }
            let track = self.u8()?;
            let end = if layout == ONE_TRACK {
                all
            } else {
                let size = self.u24()? as usize;
                if all - self.position < size {
                    return Err(self.cut_off(size));
                }
                self.position + size
            };
            let body = body(self, packet_type, codec, end)?;
            out.push(Packet { track, codec, body, at: self.position as u64, nanoseconds });
            self.position = end;
            if end == all {
                break;
            }
        }
        Ok(())
    }
}

/// Reads the payload of a video tag and appends its content for each track to `out`; an empty
/// payload has none. Data are slices of the payload.
///
/// # Errors
/// The payload is cut off, has an unknown layout, or has more than [`MAX_TRACKS`] tracks. The
/// tracks before the error are in `out`. An unknown codec is not an error here.
pub fn parse_video(payload: &Bytes, out: &mut Vec<Packet>) -> Result<(), Error> {
    let Some(&first) = payload.first() else {
        return Ok(());
    };
    let mut cursor = Cursor { payload, position: 1, what: "video tag" };
    if first & 0x80 == 0 {
        return legacy_video(first, &mut cursor, out);
    }
    let frame_type = first >> 4 & 7;
    let (packet_type, nanoseconds) = cursor.mod_ex(first & 0xf)?;
    if frame_type == COMMAND_FRAME && packet_type != VIDEO_METADATA {
        return Ok(());
    }
    cursor.tracks(
        packet_type,
        VIDEO_MULTITRACK,
        nanoseconds,
        out,
        |cursor, packet_type, codec, end| {
            let with_cts = packet_type == CODED_FRAMES
                && matches!(
                    codec,
                    CodecId::AVC | CodecId::HEVC | CodecId::Fourcc([b'v', b'v', b'c', b'1'])
                );
            Ok(match packet_type {
                SEQUENCE_START => Body::SequenceStart(cursor.slice_to(end)),
                CODED_FRAMES | VIDEO_CODED_FRAMES_X => {
                    let cts = if with_cts { cursor.i24()? } else { 0 };
                    if cursor.position > end {
                        return Err(Error::malformed(
                            "video tag: composition time outside its track",
                            end as u64,
                        ));
                    }
                    let data = cursor.slice_to(end);
                    Body::Frame { cts, keyframe: frame_type == KEY_FRAME, data }
                }
                SEQUENCE_END => Body::SequenceEnd,
                _ => Body::Ignored,
            })
        },
    )
}

/// Reads a legacy video tag, annex E.4.3.
fn legacy_video(first: u8, cursor: &mut Cursor<'_>, out: &mut Vec<Packet>) -> Result<(), Error> {
    let (frame_type, number) = (first >> 4, first & 0xf);
    if frame_type == COMMAND_FRAME {
        return Ok(());
    }
    let codec = match number {
        7 => CodecId::AVC,
        12 => CodecId::HEVC,
        number => {
            let body = Body::Ignored;
            out.push(Packet {
                track: 0,
                codec: CodecId::Video(number),
                body,
                at: 0,
                nanoseconds: 0,
            });
            return Ok(());
        }
    };
    let packet_type = cursor.u8()?;
    let cts = cursor.i24()?;
    let data = cursor.slice_to(cursor.payload.len());
    let body = match packet_type {
        SEQUENCE_START => Body::SequenceStart(data),
        CODED_FRAMES => Body::Frame { cts, keyframe: frame_type == KEY_FRAME, data },
        SEQUENCE_END => Body::SequenceEnd,
        other => {
            return Err(Error::malformed(format!("video tag: AVC packet type {other}"), 1));
        }
    };
    out.push(Packet { track: 0, codec, body, at: cursor.position as u64, nanoseconds: 0 });
    Ok(())
}

/// Reads the payload of an audio tag and appends its content for each track to `out`; an empty
/// payload has none. Data are slices of the payload.
///
/// # Errors
/// The payload is cut off, has an unknown layout, or has more than [`MAX_TRACKS`] tracks. The
/// tracks before the error are in `out`. An unknown codec is not an error here.
pub fn parse_audio(payload: &Bytes, out: &mut Vec<Packet>) -> Result<(), Error> {
    const EX_HEADER: u8 = 9;
    const AAC: u8 = 10;
    let Some(&first) = payload.first() else {
        return Ok(());
    };
    let mut cursor = Cursor { payload, position: 1, what: "audio tag" };
    match first >> 4 {
        EX_HEADER => {
            let (packet_type, nanoseconds) = cursor.mod_ex(first & 0xf)?;
            cursor.tracks(
                packet_type,
                AUDIO_MULTITRACK,
                nanoseconds,
                out,
                |cursor, packet_type, _, end| Ok(audio_body(packet_type, cursor.slice_to(end))),
            )
        }
        AAC => {
            let packet_type = cursor.u8()?;
            if packet_type > CODED_FRAMES {
                return Err(Error::malformed(
                    format!("audio tag: AAC packet type {packet_type}"),
                    1,
                ));
            }
            let body = audio_body(packet_type, cursor.slice_to(payload.len()));
            out.push(Packet { track: 0, codec: CodecId::AAC, body, at: 2, nanoseconds: 0 });
            Ok(())
        }
        number => {
            let body = Body::Ignored;
            out.push(Packet {
                track: 0,
                codec: CodecId::Audio(number),
                body,
                at: 0,
                nanoseconds: 0,
            });
            Ok(())
        }
    }
}

fn audio_body(packet_type: u8, data: Bytes) -> Body {
    match packet_type {
        SEQUENCE_START => Body::SequenceStart(data),
        CODED_FRAMES => Body::Frame { cts: 0, keyframe: true, data },
        SEQUENCE_END => Body::SequenceEnd,
        _ => Body::Ignored,
    }
}
