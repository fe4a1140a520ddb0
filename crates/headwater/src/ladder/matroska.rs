//! Writes tracks as endless Matroska (RFC 9559), the input of ffmpeg.
//!
//! Few containers can be written frame by frame. Of these, ffmpeg of any age reads Matroska with
//! every codec that Headwater supports, and keeps no state of it. ffmpeg's reader of fragmented MP4
//! keeps an index that grows with the stream. Its reader of FLV knows only H.264 before ffmpeg 6.1.

use media::{Codec, Kind};

/// Nanoseconds in a tick: a tick is a millisecond.
const TICK: u64 = 1_000_000;

/// Identifiers of elements (RFC 8794, 5; RFC 9559, 5.1).
mod id {
    pub(super) const EBML: u32 = 0x1A45_DFA3;
    pub(super) const EBML_VERSION: u32 = 0x4286;
    pub(super) const EBML_READ_VERSION: u32 = 0x42F7;
    pub(super) const EBML_MAX_ID_LENGTH: u32 = 0x42F2;
    pub(super) const EBML_MAX_SIZE_LENGTH: u32 = 0x42F3;
    pub(super) const DOC_TYPE: u32 = 0x4282;
    pub(super) const DOC_TYPE_VERSION: u32 = 0x4287;
    pub(super) const DOC_TYPE_READ_VERSION: u32 = 0x4285;
    pub(super) const SEGMENT: u32 = 0x1853_8067;
    pub(super) const INFO: u32 = 0x1549_A966;
    pub(super) const TIMESTAMP_SCALE: u32 = 0x2A_D7B1;
    pub(super) const MUXING_APP: u32 = 0x4D80;
    pub(super) const WRITING_APP: u32 = 0x5741;
    pub(super) const TRACKS: u32 = 0x1654_AE6B;
    pub(super) const TRACK_ENTRY: u32 = 0xAE;
    pub(super) const TRACK_NUMBER: u32 = 0xD7;
    pub(super) const TRACK_UID: u32 = 0x73C5;
    pub(super) const TRACK_TYPE: u32 = 0x83;
    pub(super) const FLAG_LACING: u32 = 0x9C;
    pub(super) const DEFAULT_DURATION: u32 = 0x23_E383;
    pub(super) const CODEC_ID: u32 = 0x86;
    pub(super) const CODEC_PRIVATE: u32 = 0x63A2;
    pub(super) const VIDEO: u32 = 0xE0;
    pub(super) const PIXEL_WIDTH: u32 = 0xB0;
    pub(super) const PIXEL_HEIGHT: u32 = 0xBA;
    pub(super) const AUDIO: u32 = 0xE1;
    pub(super) const SAMPLING_FREQUENCY: u32 = 0xB5;
    pub(super) const CHANNELS: u32 = 0x9F;
    pub(super) const CLUSTER: u32 = 0x1F43_B675;
    pub(super) const TIMESTAMP: u32 = 0xE7;
    pub(super) const SIMPLE_BLOCK: u32 = 0xA3;
}

/// Makes everything before the first frame. Each track has a codec and, if known, the duration of a
/// frame in nanoseconds. They are numbered from 1. Returns `None` for a codec that is none of these.
pub(super) fn header(tracks: &[(&Codec, Option<u64>)]) -> Option<Vec<u8>> {
    let names: Option<Vec<_>> = tracks.iter().map(|(codec, _)| name(codec)).collect();
    let names = names?;
    let mut out = Vec::new();
    element(&mut out, id::EBML, |out| {
        number(out, id::EBML_VERSION, 1);
        number(out, id::EBML_READ_VERSION, 1);
        number(out, id::EBML_MAX_ID_LENGTH, 4);
        number(out, id::EBML_MAX_SIZE_LENGTH, 8);
        bytes(out, id::DOC_TYPE, b"matroska");
        number(out, id::DOC_TYPE_VERSION, 4);
        number(out, id::DOC_TYPE_READ_VERSION, 2);
    });
    identifier(&mut out, id::SEGMENT);
    // The segment's size is unknown: it lasts until the end of the stream.
    out.extend_from_slice(&[0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
    element(&mut out, id::INFO, |out| {
        number(out, id::TIMESTAMP_SCALE, TICK);
        bytes(out, id::MUXING_APP, b"headwater");
        bytes(out, id::WRITING_APP, b"headwater");
    });
    element(&mut out, id::TRACKS, |out| {
        for (at, ((codec, frame), name)) in (1..).zip(tracks.iter().zip(names)) {
            element(out, id::TRACK_ENTRY, |out| entry(out, at, codec, name, *frame));
        }
    });
    Some(out)
}

fn name(codec: &Codec) -> Option<&'static str> {
    match codec {
        Codec::Avc(_) => Some("V_MPEG4/ISO/AVC"),
        Codec::Hevc(_) => Some("V_MPEGH/ISO/HEVC"),
        Codec::Av1(_) => Some("V_AV1"),
        Codec::Aac(_) => Some("A_AAC"),
        _ => None,
    }
}

/// Writes what describes a track.
fn entry(out: &mut Vec<u8>, at: u64, codec: &Codec, name: &str, frame: Option<u64>) {
    const VIDEO: u64 = 1;
    const AUDIO: u64 = 2;
    number(out, id::TRACK_NUMBER, at);
    number(out, id::TRACK_UID, at);
    number(out, id::TRACK_TYPE, if codec.kind() == Kind::Audio { AUDIO } else { VIDEO });
    number(out, id::FLAG_LACING, 0);
    if let Some(frame) = frame {
        number(out, id::DEFAULT_DURATION, frame);
    }
    bytes(out, id::CODEC_ID, name.as_bytes());
    bytes(out, id::CODEC_PRIVATE, &codec.record());
    if let Some((width, height)) = codec.resolution() {
        element(out, id::VIDEO, |out| {
            number(out, id::PIXEL_WIDTH, width.into());
            number(out, id::PIXEL_HEIGHT, height.into());
        });
    }
    if let Some((rate, channels)) = codec.audio() {
        element(out, id::AUDIO, |out| {
            bytes(out, id::SAMPLING_FREQUENCY, &f64::from(rate).to_be_bytes());
            number(out, id::CHANNELS, channels.into());
        });
    }
}

/// Writes a frame of a track, by its number below 128, with presentation time `at` in milliseconds.
/// The frame is a cluster of its own: so it goes out at once, and ffmpeg reads it without waiting for
/// the next.
pub(super) fn frame(out: &mut Vec<u8>, track: u8, at: u64, sync: bool, data: &[u8]) {
    element(out, id::CLUSTER, |out| {
        number(out, id::TIMESTAMP, at);
        element(out, id::SIMPLE_BLOCK, |out| {
            // At the cluster's time.
            out.extend_from_slice(&[0x80 | track, 0, 0, if sync { 0x80 } else { 0 }]);
            out.extend_from_slice(data);
        });
    });
}

/// Writes an element with the bytes that `content` writes. Its size always takes eight bytes.
fn element(out: &mut Vec<u8>, id: u32, content: impl FnOnce(&mut Vec<u8>)) {
    identifier(out, id);
    let size_at = out.len();
    out.extend_from_slice(&[0; 8]);
    content(out);
    let size = (out.len() - size_at - 8) as u64 | 1 << 56;
    out[size_at..size_at + 8].copy_from_slice(&size.to_be_bytes());
}

fn bytes(out: &mut Vec<u8>, id: u32, content: &[u8]) {
    element(out, id, |out| out.extend_from_slice(content));
}

fn number(out: &mut Vec<u8>, id: u32, number: u64) {
    bytes(out, id, &number.to_be_bytes());
}

/// Writes an identifier. It contains its own length marker, so only leading zeros are dropped.
fn identifier(out: &mut Vec<u8>, id: u32) {
    let all = id.to_be_bytes();
    let skipped = id.leading_zeros() as usize / 8;
    out.extend_from_slice(&all[skipped..]);
}

#[cfg(test)]
mod tests {
    use media::codec::{aac, avc};

    use super::*;

    #[test]
    fn elements_are_an_identifier_a_size_and_their_content() {
        let mut out = Vec::new();
        number(&mut out, id::TRACK_UID, 1);
        assert_eq!(out, [0x73, 0xC5, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        out.clear();
        frame(&mut out, 1, 0x1234, true, b"abc");
        assert_eq!(&out[..12], [0x1F, 0x43, 0xB6, 0x75, 1, 0, 0, 0, 0, 0, 0, 33]);
        assert_eq!(&out[12..29], [0xE7, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);
        assert_eq!(&out[29..38], [0xA3, 1, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(&out[38..], [0x81, 0, 0, 0x80, b'a', b'b', b'c']);
    }

    #[test]
    fn a_header_names_the_codec_and_brings_its_record() {
        let record = testkit::avc_record(31);
        let codec = Codec::Avc(avc::Config::parse(record.clone().into()).unwrap());
        let audio = Codec::Aac(aac::Config::parse(vec![0x11, 0x90].into()).unwrap());
        let header = header(&[(&codec, Some(33_333_333)), (&audio, None)]).unwrap();
        assert!(header.starts_with(&[0x1A, 0x45, 0xDF, 0xA3]));
        let has = |what: &[u8]| header.windows(what.len()).any(|found| found == what);
        assert!(has(b"V_MPEG4/ISO/AVC") && has(&record) && has(b"matroska"));
        assert!(has(b"A_AAC") && has(&[0x11, 0x90]) && has(&48_000_f64.to_be_bytes()));
    }
}
