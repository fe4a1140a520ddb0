//! H.264 (AVC): AVCDecoderConfigurationRecord, ISO/IEC 14496-15 5.3.3.1.

use bytes::Bytes;
use h264_reader::nal::sps::{ChromaFormat, SeqParameterSet};
use h264_reader::rbsp::BitReader;

use super::bits::unescape;
use super::nal;
use crate::Error;

/// `nal_unit_type` of an IDR slice, ISO/IEC 14496-10 table 7-1.
const IDR: u8 = 5;
const SPS: u8 = 7;

/// Contents of an AVCDecoderConfigurationRecord.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The record itself.
    pub record: Bytes,
    /// Picture width in pixels, cropped.
    pub width: u32,
    /// Picture height in pixels, cropped.
    pub height: u32,
    /// Frames per second as a fraction, where the parameter sets contain timing information and its
    /// value is plausible as a frame rate. Streams of variable rate may state one as well.
    pub frame_rate: Option<(u32, u32)>,
    /// `AVCProfileIndication`: 66 Baseline, 77 Main, 100 High.
    pub profile: u8,
    /// `profile_compatibility`: the constraint flags.
    pub compatibility: u8,
    /// `AVCLevelIndication`: ten times the level.
    pub level: u8,
    /// Bytes in each NAL unit's length: 1, 2 or 4.
    pub nal_length_size: u8,
    /// Sequence parameter sets, with their NAL unit headers. Never empty.
    pub sps: Vec<Bytes>,
    /// Picture parameter sets, with their NAL unit headers.
    pub pps: Vec<Bytes>,
}

impl Config {
    /// Reads a configuration record. The picture size is that of its first sequence parameter set.
    ///
    /// # Errors
    /// The record is cut off or breaks the codec's rules, or its sequence parameter set cannot
    /// be read.
    pub fn parse(record: Bytes) -> Result<Self, Error> {
        let &[version, profile, compatibility, level, length, count, ..] = record.as_ref() else {
            return Err(Error::cut_off("avcC", 0, 7, record.len() as u64));
        };
        if version != 1 {
            return Err(Error::unsupported(format!("avcC version {version}"), 0));
        }
        // The reserved bits beside both fields should be 1, but some encoders leave them 0.
        let nal_length_size = (length & 3) + 1;
        if nal_length_size == 3 {
            return Err(Error::malformed("avcC: NAL unit lengths of 3 bytes", 4));
        }
        let mut position = 6;
        let sps = parameter_sets(&record, &mut position, count & 0x1f)?;
        let Some(&count) = record.get(position) else {
            return Err(Error::cut_off("avcC", 0, position as u64 + 1, record.len() as u64));
        };
        position += 1;
        let pps = parameter_sets(&record, &mut position, count)?;
        // High profiles append chroma format and bit depth. The SPS contains both as well.

        // The length of the first set takes the bytes at 6 and 7.
        let at = 8;
        let Some(first) = sps.first() else {
            return Err(Error::malformed("avcC: no SPS", 5));
        };
        let Picture { width, height, frame_rate } = picture(first, at)?;
        Ok(Self {
            width,
            height,
            frame_rate,
            profile,
            compatibility,
            level,
            nal_length_size,
            sps,
            pps,
            record,
        })
    }

    /// RFC 6381 codec string, 3.3: `avc1.` and profile, constraints, level in hexadecimal.
    pub fn rfc6381(&self) -> String {
        format!("avc1.{:02x}{:02x}{:02x}", self.profile, self.compatibility, self.level)
    }

    /// Whether decoding can start at this access unit: it holds an IDR slice.
    ///
    /// # Errors
    /// A NAL unit's length runs past the end of the access unit.
    pub fn is_random_access(&self, access_unit: &[u8]) -> Result<bool, Error> {
        nal::any(access_unit, self.nal_length_size, |unit| {
            unit.first().is_some_and(|header| header & 0x1f == IDR)
        })
    }
}

/// Makes a configuration record of parameter sets, each with its NAL unit header. NAL units have
/// lengths of four bytes.
///
/// # Errors
/// There is no SPS or no PPS, too many of them, or the first SPS cannot be read.
pub fn record(sps: &[Bytes], pps: &[Bytes]) -> Result<Bytes, Error> {
    let Some(first) = sps.first().filter(|_| !pps.is_empty()) else {
        return Err(Error::malformed("no SPS or no PPS", 0));
    };
    let parsed = read(first, 0)?;
    let &[_, profile, compatibility, level, ..] = first.as_ref() else {
        return Err(Error::cut_off("SPS", 0, 4, first.len() as u64));
    };
    let count = |sets: &[Bytes], most: u8| {
        let count = u8::try_from(sets.len()).ok().filter(|&count| count <= most);
        count.ok_or_else(|| Error::malformed("too many parameter sets", 0))
    };
    let mut record = vec![1, profile, compatibility, level, 0xff, 0xe0 | count(sps, 31)?];
    let add = |record: &mut Vec<u8>, sets: &[Bytes]| {
        for set in sets {
            let length = u16::try_from(set.len());
            let length = length.map_err(|_| Error::malformed("parameter set too long", 0))?;
            record.extend_from_slice(&length.to_be_bytes());
            record.extend_from_slice(set);
        }
        Ok(())
    };
    add(&mut record, sps)?;
    record.push(count(pps, 255)?);
    add(&mut record, pps)?;
    // All profiles but Baseline, Main and Extended state these, too.
    if !matches!(profile, 66 | 77 | 88) {
        let chroma = &parsed.chroma_info;
        let format = match chroma.chroma_format {
            ChromaFormat::Monochrome => 0,
            ChromaFormat::YUV422 => 2,
            ChromaFormat::YUV444 => 3,
            ChromaFormat::YUV420 | ChromaFormat::Invalid(_) => 1,
        };
        let (luma, color) = (chroma.bit_depth_luma_minus8 & 7, chroma.bit_depth_chroma_minus8 & 7);
        record.extend_from_slice(&[0xfc | format, 0xf8 | luma, 0xf8 | color, 0]);
    }
    Ok(record.into())
}

/// Reads `count` parameter sets, each after a length of two bytes.
fn parameter_sets(record: &Bytes, position: &mut usize, count: u8) -> Result<Vec<Bytes>, Error> {
    (0..count).map(|_| parameter_set("avcC", record, position)).collect()
}

/// Reads one NAL unit after a length of two bytes, as in `avcC` and `hvcC`.
pub(super) fn parameter_set(
    what: &'static str,
    record: &Bytes,
    position: &mut usize,
) -> Result<Bytes, Error> {
    let start = *position + 2;
    let length = match record.get(*position..start) {
        Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
        _ => return Err(Error::cut_off(what, 0, start as u64, record.len() as u64)),
    };
    let end = start + length;
    if record.len() < end {
        return Err(Error::cut_off(what, 0, end as u64, record.len() as u64));
    }
    *position = end;
    Ok(record.slice(start..end))
}

struct Picture {
    width: u32,
    height: u32,
    frame_rate: Option<(u32, u32)>,
}

/// Reads the sequence parameter set at byte `at` of the record.
fn read(sps: &[u8], at: u64) -> Result<SeqParameterSet, Error> {
    let Some((&header, payload)) = sps.split_first() else {
        return Err(unreadable("empty", at));
    };
    if header & 0x1f != SPS {
        return Err(unreadable(format_args!("NAL unit type {}", header & 0x1f), at));
    }
    let mut payload = unescape(payload);
    // The reader refuses pictures larger than the level allows. Encoders that understate the level
    // are common, and their streams play everywhere. So the reader is shown the highest level.
    if let Some(level) = payload.get_mut(2) {
        *level = 62;
    }
    SeqParameterSet::from_bits(BitReader::new(payload.as_slice()))
        .map_err(|error| unreadable(format_args!("{error:?}"), at))
}

fn unreadable(why: impl std::fmt::Display, at: u64) -> Error {
    Error::malformed(format!("avcC: SPS unreadable, {why}"), at)
}

/// Reads size and frame rate of the picture from the sequence parameter set at byte `at` of the
/// record.
fn picture(sps: &[u8], at: u64) -> Result<Picture, Error> {
    let bad = |why: String| unreadable(why, at);
    let sps = read(sps, at)?;
    let (width, height) = sps.pixel_dimensions().map_err(|error| bad(format!("{error:?}")))?;
    if width == 0 || height == 0 {
        return Err(bad(format!("{width}x{height} pixels")));
    }
    let frame_rate = sps
        .vui_parameters
        .and_then(|vui| vui.timing_info)
        // A tick is the duration of a field, half that of a frame (E.2.1).
        .and_then(|timing| {
            super::frame_rate(timing.time_scale.into(), 2 * u64::from(timing.num_units_in_tick))
        });
    Ok(Picture { width, height, frame_rate })
}
