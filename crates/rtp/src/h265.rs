//! HEVC (H.265) in RTP, RFC 7798, in the order of decoding: without decoding order numbers (DON).

use std::sync::Arc;

use bytes::Bytes;
use media::codec::hevc;
use media::{Codec, Error};

use crate::depacketizer::Depacketizer;
use crate::nal::{self, Format, Meaning, Picture, Syntax};

/// `nal_unit_type`, ISO/IEC 23008-2 table 7-1. RASL pictures may refer to pictures before the keyframe, and
/// are shown before it.
const RASL: std::ops::RangeInclusive<u8> = 8..=9;
/// Pictures where decoding can start: BLA, IDR, CRA. With BLA, what was before is another stream's.
const BLA: std::ops::RangeInclusive<u8> = 16..=18;
const IRAP: std::ops::RangeInclusive<u8> = 16..=23;
const SLICES: std::ops::RangeInclusive<u8> = 0..=31;
const VPS: u8 = 32;
const SPS: u8 = 33;
const PPS: u8 = 34;
/// Access unit delimiter and filler data.
const AUD: u8 = 35;
const FD: u8 = 38;
/// The other types mean payloads that are no NAL units, RFC 7798 4.2. PACI (50) is among them: ffmpeg and
/// GStreamer do not take it either.
const UNITS: std::ops::RangeInclusive<u8> = 0..=47;

/// Makes access units of the payloads of packets in order.
pub fn depacketizer() -> Depacketizer {
    Depacketizer::new(Format::<H265>::default())
}

/// Makes the payloads of an access unit's packets, each of `most` bytes at most. The last packet's
/// marker is set.
///
/// Small NAL units that follow each other share a packet. Large ones are cut into fragments of equal
/// size.
pub fn packetize<'a>(nals: impl IntoIterator<Item = &'a [u8]>, most: usize) -> Vec<Arc<[u8]>> {
    nal::packetize::<H265>(nals, most)
}

/// `nuh_layer_id` of a header.
fn layer(header: &[u8]) -> u8 {
    (header[0] & 1) << 5 | header[1] >> 3
}

/// `nuh_temporal_id_plus1` of a header.
fn temporal_id(header: &[u8]) -> u8 {
    header[1] & 7
}

#[derive(Debug)]
struct H265;

impl Syntax for H265 {
    const NAME: &'static str = "HEVC in RTP (RFC 7798)";
    const HEADER: usize = 2;
    const TYPES: u8 = 0x3f;
    const AGGREGATE: u8 = 48;
    const FRAGMENT: u8 = 49;
    const SETS: usize = 3;

    fn kind(first: u8) -> u8 {
        first >> 1 & Self::TYPES
    }

    fn with_kind(first: u8, kind: u8) -> u8 {
        first & 0x81 | kind << 1
    }

    fn meaning(header: &[u8], rest: &[u8]) -> Option<Meaning> {
        // `forbidden_zero_bit` is 0, and `nuh_temporal_id_plus1` is not.
        if header[0] & 0x80 != 0 || temporal_id(header) == 0 {
            return None;
        }
        Some(match Self::kind(header[0]) {
            kind if !UNITS.contains(&kind) => return None,
            // Decoders of our profile pass over other layers, as those of a second view.
            _ if layer(header) > 0 => Meaning::Idle,
            VPS => Meaning::Set(0),
            SPS => Meaning::Set(1),
            PPS => Meaning::Set(2),
            AUD | FD => Meaning::Idle,
            kind if SLICES.contains(&kind) => {
                let picture = match kind {
                    kind if BLA.contains(&kind) => Picture::BrokenLink,
                    kind if IRAP.contains(&kind) => Picture::Key,
                    kind if RASL.contains(&kind) => Picture::Leading,
                    _ => Picture::Plain,
                };
                // `first_slice_segment_in_pic_flag`.
                Meaning::Slice(picture, rest.first()? & 0x80 != 0)
            }
            _ => Meaning::Other,
        })
    }

    fn aggregate(nals: &[&[u8]], payload: &mut Vec<u8>) {
        // F is set if any NAL unit's is. Layer and temporal layer are the lowest (RFC 7798 4.4.2).
        let forbidden = nals.iter().fold(0, |bits, nal| bits | nal[0] & 0x80);
        let layer = nals.iter().map(|nal| layer(nal)).min().unwrap_or(0);
        let temporal_id = nals.iter().map(|nal| temporal_id(nal)).min().unwrap_or(0);
        payload.push(forbidden | Self::AGGREGATE << 1 | layer >> 5);
        payload.push(layer << 3 | temporal_id);
    }

    fn record(sets: &[Vec<Bytes>]) -> Result<Bytes, Error> {
        hevc::record(&sets[0], &sets[1], &sets[2])
    }

    fn codec(record: Bytes) -> Result<Codec, Error> {
        Ok(Codec::Hevc(hevc::Config::parse(record)?))
    }
}

#[cfg(test)]
mod tests;
