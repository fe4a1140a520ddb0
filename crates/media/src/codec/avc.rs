//! H.264 (AVC): AVCDecoderConfigurationRecord, ISO/IEC 14496-15 5.3.3.1.

use bytes::Bytes;

use super::bits::{Bits, unescape};
use super::nal;
use crate::Error;

/// `nal_unit_type` of an IDR slice, ISO/IEC 14496-10 table 7-1.
const IDR: u8 = 5;
const SPS: u8 = 7;
/// Values of `profile_idc` whose sequence parameter sets state chroma format and bit depths, 7.3.2.1.1.
const HAVE_CHROMA_FORMAT: [u32; 13] =
    [44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244];
/// `MaxFS` of the highest level, 6.2, table A-1.
const MOST_MACROBLOCKS: u64 = 139_264;

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
        let Picture { width, height, frame_rate, .. } = read(first, at)?;
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
        let Picture { chroma_format, bit_depths: (luma, color), .. } = parsed;
        record.extend_from_slice(&[0xfc | chroma_format, 0xf8 | luma, 0xf8 | color, 0]);
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

/// What is known of the pictures from a sequence parameter set.
struct Picture {
    width: u32,
    height: u32,
    frame_rate: Option<(u32, u32)>,
    /// `chroma_format_idc`, 0 to 3.
    chroma_format: u8,
    /// Bits of a sample of luma and of colour beyond 8, both at most 6.
    bit_depths: (u8, u8),
}

/// Reads the sequence parameter set at byte `at` of the record.
fn read(sps: &[u8], at: u64) -> Result<Picture, Error> {
    Picture::read(sps)
        .map_err(|error| Error::malformed(format!("avcC: SPS unreadable, {error}"), at))
}

impl Picture {
    /// Reads seq_parameter_set_data(), 7.3.2.1.1, as far as the timing in the VUI. Cameras and encoders make faults
    /// behind the cropping, or understate the level, and their streams play everywhere. So the frame rate stays
    /// unknown where the VUI cannot be read, and nothing behind the timing or about the level is checked.
    fn read(sps: &[u8]) -> Result<Self, Error> {
        let payload = unescape(sps.get(1..).unwrap_or_default());
        let mut bits = Bits::new(&payload, "SPS");
        if sps.first().is_some_and(|header| header & 0x1f != SPS) {
            return Err(bits.malformed("a NAL unit of another type"));
        }
        let profile = bits.u(8)?;
        // Constraint flags and level.
        bits.skip(16)?;
        // seq_parameter_set_id
        bits.ue()?;
        let (mut chroma_format, mut bit_depths) = (1, (0, 0));
        if HAVE_CHROMA_FORMAT.contains(&profile) {
            chroma_format = bits.ue()?;
            if chroma_format > 3 {
                return Err(bits.malformed("a chroma format that does not exist"));
            }
            if chroma_format == 3 {
                // separate_colour_plane_flag
                bits.skip(1)?;
            }
            let (luma, color) = (bits.ue()?, bits.ue()?);
            if luma.max(color) > 6 {
                return Err(bits.malformed("more than 14 bits in a sample"));
            }
            bit_depths = (luma as u8, color as u8);
            // qpprime_y_zero_transform_bypass_flag
            bits.skip(1)?;
            if bits.flag()? {
                skip_scaling_lists(&mut bits, if chroma_format == 3 { 12 } else { 8 })?;
            }
        }
        // log2_max_frame_num_minus4
        bits.ue()?;
        skip_picture_order_count(&mut bits)?;
        // max_num_ref_frames, gaps_in_frame_num_value_allowed_flag
        bits.ue()?;
        bits.skip(1)?;
        let (columns, rows) = (u64::from(bits.ue()?) + 1, u64::from(bits.ue()?) + 1);
        if columns * rows > MOST_MACROBLOCKS {
            return Err(bits.malformed("a picture larger than any level allows"));
        }
        let frame_mbs_only = bits.flag()?;
        if !frame_mbs_only {
            // mb_adaptive_frame_field_flag
            bits.skip(1)?;
        }
        // direct_8x8_inference_flag
        bits.skip(1)?;
        // Where pictures may be two fields, heights count in each of them.
        let fields = if frame_mbs_only { 1 } else { 2 };
        let mut cropping = [0; 4];
        if bits.flag()? {
            for offset in &mut cropping {
                *offset = u64::from(bits.ue()?);
            }
        }
        let [left, right, top, bottom] = cropping;
        // CropUnitX and CropUnitY, 7.4.2.1.1.
        let (unit_x, unit_y) = match chroma_format {
            1 => (2, 2),
            2 => (2, 1),
            _ => (1, 1),
        };
        let crop = |size: u64, unit: u64, offsets: u64| {
            let cropped = size.checked_sub(unit * offsets).filter(|&size| size > 0);
            cropped.and_then(|size| u32::try_from(size).ok())
        };
        let (Some(width), Some(height)) = (
            crop(16 * columns, unit_x, left + right),
            crop(16 * fields * rows, fields * unit_y, top + bottom),
        ) else {
            return Err(bits.malformed("cropping larger than the picture"));
        };
        let frame_rate = frame_rate(&mut bits).ok().flatten();
        Ok(Self { width, height, frame_rate, chroma_format: chroma_format as u8, bit_depths })
    }
}

/// Reads over `count` scaling lists, 7.3.2.1.1.1.
fn skip_scaling_lists(bits: &mut Bits<'_>, count: u32) -> Result<(), Error> {
    for list in 0..count {
        if !bits.flag()? {
            continue;
        }
        // A scale of 0 repeats the last one to the end of the list.
        let mut scale = 8;
        for _ in 0..if list < 6 { 16 } else { 64 } {
            scale = (scale + bits.se()?).rem_euclid(256);
            if scale == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// Reads over pic_order_cnt_type and the fields of that type.
fn skip_picture_order_count(bits: &mut Bits<'_>) -> Result<(), Error> {
    match bits.ue()? {
        // log2_max_pic_order_cnt_lsb_minus4
        0 => drop(bits.ue()?),
        1 => {
            // delta_pic_order_always_zero_flag, offset_for_non_ref_pic, offset_for_top_to_bottom_field
            bits.skip(1)?;
            bits.se()?;
            bits.se()?;
            let frames = bits.ue()?;
            if frames > 255 {
                return Err(bits.malformed("more than 255 frames in a cycle"));
            }
            for _ in 0..frames {
                bits.se()?;
            }
        }
        2 => {}
        _ => return Err(bits.malformed("a picture order count of a type that does not exist")),
    }
    Ok(())
}

/// Reads vui_parameters(), E.1.1, as far as the timing.
fn frame_rate(bits: &mut Bits<'_>) -> Result<Option<(u32, u32)>, Error> {
    if !bits.flag()? {
        return Ok(None);
    }
    bits.skip_vui_of_colour()?;
    if !bits.flag()? {
        return Ok(None);
    }
    let (units, scale) = (bits.u(32)?, bits.u(32)?);
    // A tick is the duration of a field, half that of a frame (E.2.1).
    Ok(super::frame_rate(scale.into(), 2 * u64::from(units)))
}
