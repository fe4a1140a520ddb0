//! Capture stamps: the wall-clock time of sending, written by a publisher into each access unit of
//! a video. Players read it to measure their latency. It works over any protocol, and through any
//! server that passes access units on unchanged.
//!
//! In H.264 and HEVC a stamp is a NAL unit of its own: an SEI message user_data_unregistered (ITU-T
//! H.264 D.1.7, H.265 D.2.7) with [`UUID`] and 64 bits of microseconds since 1970. In AV1 it is a
//! metadata OBU of type ITU-T T.35 with the same payload (AV1 specification 5.8.2), because some
//! readers refuse a temporal unit with metadata of the unregistered private types. Decoders ignore
//! all of these.

use std::borrow::Cow;

use memchr::memmem;

use crate::codec::{av1, nal};
use crate::{Codec, Error};

/// The first bytes of a stamp's payload. They contain no zero, so no emulation prevention byte is
/// inserted between them, and a plain search finds them.
pub const UUID: [u8; 16] = [
    0x6c, 0xb9, 0x1e, 0xd3, 0x57, 0x84, 0x4f, 0x2a, 0x9d, 0x71, 0xe8, 0x35, 0xaf, 0x46, 0xc2, 0x9b,
];

/// How many bytes at the start of an access unit, an FLV tag or an RTMP message are enough to find
/// its stamp, as long as only parameter sets precede it.
pub const REACH: usize = 192;

/// `payload_type` of user_data_unregistered, and `payload_size` of a stamp before emulation
/// prevention.
const UNREGISTERED: u8 = 5;
const SIZE: u8 = UUID.len() as u8 + 8;

/// `rbsp_trailing_bits()` on a byte boundary; AV1's `trailing_bits()` are the same.
const TRAILING: u8 = 0x80;

/// `nal_unit_type` of SEI, H.264 table 7-1 and H.265 table 7-1 (PREFIX_SEI_NUT).
const AVC_SEI: u8 = 6;
const HEVC_PREFIX_SEI: u8 = 39;

/// First bytes of the metadata OBU: METADATA_TYPE_ITUT_T35, then an extended country code that
/// belongs to no country (ITU-T T.35, annex B).
const T35: [u8; 3] = [4, 0xff, 0];

/// Returns the access unit with a stamp of `unix_micros`, microseconds since 1970. In H.264 and
/// HEVC the stamp goes in front of the first slice, in AV1 behind the sequence header. It replaces
/// any stamp that the access unit has.
///
/// # Errors
/// The codec has no place for a stamp, the access unit breaks the codec's framing, or it holds no
/// frame.
pub fn insert(codec: &Codec, access_unit: &[u8], unix_micros: u64) -> Result<Vec<u8>, Error> {
    let access_unit = without(codec, access_unit);
    let (at, stamp) = match codec {
        Codec::Avc(config) => {
            let (at, _) = first(&access_unit, config.nal_length_size, is_avc_picture)?;
            let unit = [&[AVC_SEI][..], &sei(unix_micros)].concat();
            (at, with_length(&unit, config.nal_length_size))
        }
        Codec::Hevc(config) => {
            let (at, slice) = first(&access_unit, config.nal_length_size, is_hevc_picture)?;
            // 7.4.2.2: the SEI must not have a lower temporal sub-layer than the access unit. All
            // slices have the access unit's sub-layer, so the SEI copies it from a slice.
            let temporal_id = slice.get(1).map_or(1, |second| second & 7);
            let unit = [&[HEVC_PREFIX_SEI << 1, temporal_id][..], &sei(unix_micros)].concat();
            (at, with_length(&unit, config.nal_length_size))
        }
        Codec::Av1(_) => (av1::behind_sequence_header(&access_unit)?, metadata(unix_micros)),
        other => {
            let name = other.rfc6381();
            return Err(Error::unsupported(format!("capture stamps in codec '{name}'"), 0));
        }
    };
    let (before, after) = access_unit.split_at_checked(at).unwrap_or((&access_unit, &[]));
    Ok([before, &stamp, after].concat())
}

/// Finds the first stamp in `bytes`, in microseconds since 1970. The bytes may be an access unit,
/// its beginning, or the beginning of a tag or message that holds one.
pub fn find(bytes: &[u8]) -> Option<u64> {
    let at = memmem::find(bytes, &UUID)?;
    let mut rest = bytes.get(at + UUID.len()..)?.iter().copied();
    let (mut value, mut zeros) = (0, 0);
    for _ in 0..8 {
        let mut byte = rest.next()?;
        if zeros >= 2 && byte == 3 {
            byte = rest.next()?;
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        value = value << 8 | u64::from(byte);
    }
    Some(value)
}

/// Returns the access unit without its stamps, or unchanged where it has none or is broken.
pub fn without<'a>(codec: &Codec, access_unit: &'a [u8]) -> Cow<'a, [u8]> {
    if memmem::find(access_unit, &UUID).is_none() {
        return access_unit.into();
    }
    let is_avc_stamp = |unit: &[u8]| {
        unit.first().is_some_and(|first| first & 0x1f == AVC_SEI) && starts_stamp(unit, 1)
    };
    let is_hevc_stamp = |unit: &[u8]| {
        unit.first().is_some_and(|first| first >> 1 & 0x3f == HEVC_PREFIX_SEI)
            && starts_stamp(unit, 2)
    };
    let kept = match codec {
        Codec::Avc(config) => {
            nal::retain(access_unit, config.nal_length_size, |unit| !is_avc_stamp(unit))
        }
        Codec::Hevc(config) => {
            nal::retain(access_unit, config.nal_length_size, |unit| !is_hevc_stamp(unit))
        }
        Codec::Av1(_) => av1::without_metadata(access_unit, |payload| {
            payload.strip_prefix(&T35).is_some_and(|rest| rest.starts_with(&UUID))
        }),
        _ => return access_unit.into(),
    };
    kept.map_or(access_unit.into(), Cow::Owned)
}

/// Whether a NAL unit with a header of `header` bytes holds a stamp.
fn starts_stamp(unit: &[u8], header: usize) -> bool {
    let rest = unit.get(header..).unwrap_or_default();
    rest.starts_with(&[UNREGISTERED, SIZE]) && rest.get(2..).is_some_and(|r| r.starts_with(&UUID))
}

/// `sei_rbsp()`, escaped.
fn sei(unix_micros: u64) -> Vec<u8> {
    let mut rbsp = vec![UNREGISTERED, SIZE];
    rbsp.extend_from_slice(&UUID);
    rbsp.extend_from_slice(&unix_micros.to_be_bytes());
    rbsp.push(TRAILING);
    nal::escape(&rbsp)
}

/// `open_bitstream_unit()` of type OBU_METADATA. The payload is escaped as in a NAL unit, which AV1
/// does not ask for: so [`find`] reads stamps of every codec the same way.
fn metadata(unix_micros: u64) -> Vec<u8> {
    let mut payload = T35.to_vec();
    payload.extend_from_slice(&UUID);
    payload.extend_from_slice(&unix_micros.to_be_bytes());
    payload.push(TRAILING);
    av1::metadata(&nal::escape(&payload))
}

/// Whether this is a slice, or a prefix NAL unit that belongs to one (H.264 7.4.1.2.3).
fn is_avc_picture(unit: &[u8]) -> bool {
    unit.first().is_some_and(|first| matches!(first & 0x1f, 1..=5 | 14 | 20))
}

/// Whether this is a NAL unit of the VCL class (H.265 table 7-1).
fn is_hevc_picture(unit: &[u8]) -> bool {
    unit.first().is_some_and(|first| first >> 1 & 0x3f < 32)
}

/// The first NAL unit that passes `test`, and the position of its length in the access unit.
fn first(
    access_unit: &[u8],
    length_size: u8,
    test: fn(&[u8]) -> bool,
) -> Result<(usize, &[u8]), Error> {
    nal::check(access_unit, length_size)?;
    let mut units = nal::units(access_unit, length_size);
    while let Some(unit) = units.next() {
        let unit = unit?;
        if test(unit) {
            let length = usize::from(length_size) + unit.len();
            return Ok((units.position().saturating_sub(length), unit));
        }
    }
    Err(Error::malformed("access unit without a slice", access_unit.len() as u64))
}

/// A NAL unit of less than 256 bytes, preceded by its length.
fn with_length(unit: &[u8], length_size: u8) -> Vec<u8> {
    let length = (unit.len() as u32).to_be_bytes();
    let from = length.len().saturating_sub(length_size.into());
    [length.get(from..).unwrap_or_default(), unit].concat()
}
