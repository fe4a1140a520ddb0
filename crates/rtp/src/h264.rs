//! H.264 in RTP, RFC 6184: packetization mode 1, and mode 0, which is a part of it.

use std::sync::Arc;

use bytes::Bytes;
use media::codec::avc;
use media::{Codec, Error};

use crate::depacketizer::Depacketizer;
use crate::nal::{self, Format, Meaning, Picture, Syntax};

/// `nal_unit_type`, ISO/IEC 14496-10 table 7-1.
const IDR: u8 = 5;
const SLICES: std::ops::RangeInclusive<u8> = 1..=IDR;
const SPS: u8 = 7;
const PPS: u8 = 8;
/// Access unit delimiter, end of sequence, end of stream and filler data carry no picture.
const IDLE: std::ops::RangeInclusive<u8> = 9..=12;
/// The other types mean payloads that are no NAL units, RFC 6184 table 1.
const UNITS: std::ops::RangeInclusive<u8> = 1..=23;

/// Makes access units of the payloads of packets in order.
pub fn depacketizer() -> Depacketizer {
    Depacketizer::new(Format::<H264>::default())
}

/// Makes the payloads of an access unit's packets, each of `most` bytes at most. The last packet's
/// marker is set.
///
/// Small NAL units that follow each other share a packet. Large ones are cut into fragments of equal
/// size.
pub fn packetize<'a>(nals: impl IntoIterator<Item = &'a [u8]>, most: usize) -> Vec<Arc<[u8]>> {
    nal::packetize::<H264>(nals, most)
}

#[derive(Debug)]
pub(crate) struct H264;

impl Syntax for H264 {
    const NAME: &'static str = "H.264 in RTP (RFC 6184)";
    const HEADER: usize = 1;
    const TYPES: u8 = 0x1f;
    const AGGREGATE: u8 = 24;
    const FRAGMENT: u8 = 28;
    const SETS: usize = 2;

    fn kind(first: u8) -> u8 {
        first & Self::TYPES
    }

    fn with_kind(first: u8, kind: u8) -> u8 {
        first & !Self::TYPES | kind
    }

    fn meaning(header: &[u8], rest: &[u8]) -> Option<Meaning> {
        Some(match Self::kind(*header.first()?) {
            SPS => Meaning::Set(0),
            PPS => Meaning::Set(1),
            kind if IDLE.contains(&kind) => Meaning::Idle,
            kind if SLICES.contains(&kind) => {
                let picture = if kind == IDR { Picture::Key } else { Picture::Plain };
                // `first_mb_in_slice` is 0, which is written as a single bit 1.
                Meaning::Slice(picture, rest.first()? & 0x80 != 0)
            }
            kind if UNITS.contains(&kind) => Meaning::Other,
            _ => return None,
        })
    }

    fn aggregate(nals: &[&[u8]], payload: &mut Vec<u8>) {
        // F is set if any NAL unit's is. NRI is the greatest of them (RFC 6184 5.7).
        let forbidden = nals.iter().fold(0, |bits, nal| bits | nal[0] & 0x80);
        let reference = nals.iter().map(|nal| nal[0] & 0x60).max().unwrap_or(0);
        payload.push(forbidden | reference | Self::AGGREGATE);
    }

    fn record(sets: &[Vec<Bytes>]) -> Result<Bytes, Error> {
        avc::record(&sets[0], &sets[1])
    }

    fn codec(record: Bytes) -> Result<Codec, Error> {
        Ok(Codec::Avc(avc::Config::parse(record)?))
    }
}

#[cfg(test)]
mod tests;
