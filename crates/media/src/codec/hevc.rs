//! HEVC: HEVCDecoderConfigurationRecord, ISO/IEC 14496-15 8.3.3.1.

use bytes::Bytes;

use super::avc::parameter_set;
use super::bits::{Bits, unescape};
use super::nal;
use crate::Error;

/// NAL unit types, ISO/IEC 23008-2 table 7-1.
const IRAP: std::ops::RangeInclusive<u8> = 16..=23;
const VPS: u8 = 32;
const SPS: u8 = 33;
const PPS: u8 = 34;

/// Contents of an HEVCDecoderConfigurationRecord.
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
    /// Profile, tier and level of the whole stream.
    pub profile_tier_level: ProfileTierLevel,
    /// Bytes in each NAL unit's length: 1, 2 or 4.
    pub nal_length_size: u8,
    /// Parameter sets and SEI messages in the order of the record, with their NAL unit headers.
    pub nal_units: Vec<Bytes>,
}

/// The general part of profile_tier_level(), ISO/IEC 23008-2 7.3.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileTierLevel {
    /// `general_profile_space`, 0 to 3.
    pub profile_space: u8,
    /// `general_tier_flag`: high tier.
    pub high_tier: bool,
    /// `general_profile_idc`: 1 Main, 2 Main 10.
    pub profile: u8,
    /// `general_profile_compatibility_flag`, flag 0 in the most significant bit.
    pub compatibility: u32,
    /// The six bytes of constraint flags that follow the compatibility flags.
    pub constraints: [u8; 6],
    /// `general_level_idc`: thirty times the level.
    pub level: u8,
}

/// The most NAL units a record may have. Fewer parameter sets can exist (7.4.3). The limit bounds
/// memory: a NAL unit may take only two bytes of the record, but takes more once it is read.
const MAX_NAL_UNITS: usize = 256;

impl Config {
    /// Reads a configuration record. Size and frame rate are those of its first sequence parameter
    /// set.
    ///
    /// # Errors
    /// The record is cut off or breaks the codec's rules, or its sequence parameter set cannot
    /// be read.
    pub fn parse(record: Bytes) -> Result<Self, Error> {
        let mut bits = Bits::new(&record, "hvcC");
        let version = bits.u(8)?;
        // Records from before the edition of 2014 have version 0 and are otherwise the same.
        if version > 1 {
            return Err(Error::unsupported(format!("hvcC version {version}"), 0));
        }
        let profile_tier_level = ProfileTierLevel::read(&mut bits)?;
        // min_spatial_segmentation_idc, parallelismType, chroma format, bit depths: four bytes
        // and a half with their reserved bits, then avgFrameRate, constantFrameRate,
        // numTemporalLayers, temporalIdNested.
        bits.skip(16 + 8 + 8 + 8 + 8 + 16 + 2 + 3 + 1)?;
        let nal_length_size = bits.u8(2)? + 1;
        if nal_length_size == 3 {
            return Err(Error::malformed("hvcC: NAL unit lengths of 3 bytes", 21));
        }
        let arrays = bits.u(8)?;
        let mut position = 23;
        let mut nal_units = Vec::new();
        let mut picture = None;
        let mut timing = None;
        for _ in 0..arrays {
            let count = match record.get(position..position + 3) {
                Some(&[_, high, low]) => u16::from_be_bytes([high, low]),
                _ => {
                    return Err(Error::cut_off(
                        "hvcC",
                        0,
                        position as u64 + 3,
                        record.len() as u64,
                    ));
                }
            };
            position += 3;
            for _ in 0..count {
                // Each NAL unit takes at least two bytes of the record, so the record's length
                // bounds the loop.
                let at = position as u64 + 2;
                if nal_units.len() == MAX_NAL_UNITS {
                    let (value, limit) = (MAX_NAL_UNITS as u64 + 1, MAX_NAL_UNITS as u64);
                    let what = "hvcC: NAL units".into();
                    return Err(Error::Limit { what, at, value, limit });
                }
                let unit = parameter_set("hvcC", &record, &mut position)?;
                match nal_unit_type(&unit) {
                    Some(SPS) if picture.is_none() => picture = Some(read(&unit, at)?),
                    // Only the timing is needed. A broken VPS is left to the decoder.
                    Some(VPS) if timing.is_none() => timing = vps_timing(&unit).ok().flatten(),
                    _ => {}
                }
                nal_units.push(unit);
            }
        }
        let Some(Picture { width, height, frame_rate, .. }) = picture else {
            return Err(Error::malformed("hvcC: no SPS", 22));
        };
        let frame_rate = frame_rate.or(timing);
        Ok(Self {
            width,
            height,
            frame_rate,
            profile_tier_level,
            nal_length_size,
            nal_units,
            record,
        })
    }

    /// RFC 6381 codec string, ISO/IEC 14496-15 annex E.3: `hvc1.1.6.L93.B0`.
    pub fn rfc6381(&self) -> String {
        let ptl = &self.profile_tier_level;
        let space = ["", "A", "B", "C"].get(usize::from(ptl.profile_space)).unwrap_or(&"");
        let mut out = format!(
            "hvc1.{space}{}.{:X}.{}{}",
            ptl.profile,
            ptl.compatibility.reverse_bits(),
            if ptl.high_tier { 'H' } else { 'L' },
            ptl.level
        );
        let used = ptl.constraints.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        for byte in ptl.constraints.iter().take(used) {
            out.push_str(&format!(".{byte:X}"));
        }
        out
    }

    /// Whether decoding can start at this access unit: it holds a slice of an intra random access
    /// point picture (IDR, CRA or BLA).
    ///
    /// # Errors
    /// A NAL unit's length runs past the end of the access unit.
    pub fn is_random_access(&self, access_unit: &[u8]) -> Result<bool, Error> {
        nal::any(access_unit, self.nal_length_size, |unit| {
            nal_unit_type(unit).is_some_and(|kind| IRAP.contains(&kind))
        })
    }
}

/// Makes a configuration record of parameter sets, each with its NAL unit header. NAL units have lengths of four
/// bytes, and samples have no parameter sets.
///
/// # Errors
/// There is no VPS, SPS or PPS, there are too many of them, or the first SPS cannot be read.
pub fn record(vps: &[Bytes], sps: &[Bytes], pps: &[Bytes]) -> Result<Bytes, Error> {
    let Some(first) = sps.first().filter(|_| !vps.is_empty() && !pps.is_empty()) else {
        return Err(Error::malformed("no VPS, no SPS or no PPS", 0));
    };
    let picture = read(first, 0)?;
    let (luma, color) = picture.bit_depths?;
    // Sub-layers and profile_tier_level(), as they are in the SPS.
    let payload = unescape(first.get(2..).unwrap_or_default());
    let Some((&[layers, ref general @ ..], _)) = payload.split_first_chunk::<13>() else {
        return Err(Error::cut_off("SPS", 0, 15, first.len() as u64));
    };
    let mut record = vec![1];
    record.extend_from_slice(general);
    // Neither spatial segments, nor parallelism, nor the frame rate is known.
    record.extend_from_slice(&[0xf0, 0, 0xfc]);
    record.extend_from_slice(&[0xfc | picture.chroma_format, 0xf8 | luma, 0xf8 | color, 0, 0]);
    // sps_max_sub_layers_minus1, sps_temporal_id_nesting_flag, and the size of lengths.
    record.push(((layers >> 1 & 7) + 1) << 3 | (layers & 1) << 2 | 3);
    record.push(3);
    for (kind, sets) in [(VPS, vps), (SPS, sps), (PPS, pps)] {
        // Bit 7: samples have none of them.
        record.push(0x80 | kind);
        let count = u16::try_from(sets.len());
        let count = count.map_err(|_| Error::malformed("too many parameter sets", 0))?;
        record.extend_from_slice(&count.to_be_bytes());
        for set in sets {
            let length = u16::try_from(set.len());
            let length = length.map_err(|_| Error::malformed("parameter set too long", 0))?;
            record.extend_from_slice(&length.to_be_bytes());
            record.extend_from_slice(set);
        }
    }
    Ok(record.into())
}

/// Reads the sequence parameter set at byte `at` of a record.
fn read(sps: &[u8], at: u64) -> Result<Picture, Error> {
    Picture::read(sps)
        .map_err(|error| Error::malformed(format!("hvcC: SPS unreadable, {error}"), at))
}

/// `nal_unit_type` of the two-byte header, ISO/IEC 23008-2 7.3.1.2.
fn nal_unit_type(unit: &[u8]) -> Option<u8> {
    unit.first().map(|header| header >> 1 & 0x3f)
}

impl ProfileTierLevel {
    fn read(bits: &mut Bits<'_>) -> Result<Self, Error> {
        let profile_space = bits.u8(2)?;
        let high_tier = bits.flag()?;
        let profile = bits.u8(5)?;
        let compatibility = bits.u(32)?;
        let mut constraints = [0; 6];
        for byte in &mut constraints {
            *byte = bits.u8(8)?;
        }
        let level = bits.u8(8)?;
        Ok(Self { profile_space, high_tier, profile, compatibility, constraints, level })
    }

    /// Reads over profile_tier_level() with its sub-layers, 7.3.3.
    fn read_with_sub_layers(bits: &mut Bits<'_>, max_sub_layers_minus1: u32) -> Result<(), Error> {
        Self::read(bits)?;
        let mut present = Vec::new();
        for _ in 0..max_sub_layers_minus1 {
            present.push((bits.flag()?, bits.flag()?));
        }
        if max_sub_layers_minus1 > 0 {
            bits.skip(2 * (8 - max_sub_layers_minus1))?;
        }
        for (profile, level) in present {
            bits.skip(if profile { 88 } else { 0 } + if level { 8 } else { 0 })?;
        }
        Ok(())
    }
}

struct Picture {
    width: u32,
    height: u32,
    frame_rate: Option<(u32, u32)>,
    /// `chroma_format_idc`, 0 to 3.
    chroma_format: u8,
    /// Bits of a sample of luma and of colour beyond 8, both at most 7. Only records of our own need them.
    bit_depths: Result<(u8, u8), Error>,
}

impl Picture {
    /// Reads seq_parameter_set_rbsp(), 7.3.2.2, as far as the timing in the VUI. An extension
    /// unknown here may change the fields behind the picture size; then the frame rate stays
    /// unknown.
    fn read(sps: &[u8]) -> Result<Self, Error> {
        let payload = unescape(sps.get(2..).unwrap_or_default());
        let mut bits = Bits::new(&payload, "SPS");
        // sps_video_parameter_set_id
        bits.skip(4)?;
        let max_sub_layers_minus1 = bits.u(3)?;
        if max_sub_layers_minus1 > 6 {
            return Err(bits.malformed("more than seven sub-layers"));
        }
        bits.skip(1)?;
        ProfileTierLevel::read_with_sub_layers(&mut bits, max_sub_layers_minus1)?;
        bits.ue()?;
        let chroma_format = bits.ue()?;
        if chroma_format > 3 {
            return Err(bits.malformed("a chroma format that does not exist"));
        }
        let separate_planes = chroma_format == 3 && bits.flag()?;
        let (width, height) = (bits.ue()?, bits.ue()?);
        let mut window = [0u32; 4];
        if bits.flag()? {
            for offset in &mut window {
                *offset = bits.ue()?;
            }
        }
        let [left, right, top, bottom] = window;
        // SubWidthC and SubHeightC, table 6-1.
        let (unit_x, unit_y) = match chroma_format {
            1 if !separate_planes => (2, 2),
            2 if !separate_planes => (2, 1),
            _ => (1, 1),
        };
        let crop = |size: u32, unit: u64, a: u32, b: u32| {
            let cropped = u64::from(size).checked_sub(unit * (u64::from(a) + u64::from(b)));
            cropped.and_then(|size| u32::try_from(size).ok()).filter(|&size| size > 0)
        };
        let (Some(width), Some(height)) =
            (crop(width, unit_x, left, right), crop(height, unit_y, top, bottom))
        else {
            return Err(bits.malformed("a conformance window larger than the picture"));
        };
        let bit_depths = bit_depths(&mut bits);
        let timing = sps_timing(&mut bits, max_sub_layers_minus1);
        let frame_rate = timing.ok().flatten().filter(|_| bit_depths.is_ok());
        Ok(Self { width, height, frame_rate, chroma_format: chroma_format as u8, bit_depths })
    }
}

/// Reads bit_depth_luma_minus8 and bit_depth_chroma_minus8.
fn bit_depths(bits: &mut Bits<'_>) -> Result<(u8, u8), Error> {
    let (luma, color) = (bits.ue()?, bits.ue()?);
    if luma.max(color) > 7 {
        return Err(bits.malformed("more than 15 bits in a sample"));
    }
    Ok((luma as u8, color as u8))
}

/// Reads the sequence parameter set from the picture order count to the timing in the VUI.
fn sps_timing(
    bits: &mut Bits<'_>,
    max_sub_layers_minus1: u32,
) -> Result<Option<(u32, u32)>, Error> {
    let poc_bits = bits.ue()?.saturating_add(4);
    if poc_bits > 16 {
        return Err(bits.malformed("a picture order count of more than 16 bits"));
    }
    let all_layers = bits.flag()?;
    for _ in if all_layers { 0 } else { max_sub_layers_minus1 }..=max_sub_layers_minus1 {
        // sps_max_dec_pic_buffering_minus1, sps_max_num_reorder_pics, sps_max_latency_increase
        for _ in 0..3 {
            bits.ue()?;
        }
    }
    // Coding and transform block sizes, transform hierarchy depths.
    for _ in 0..6 {
        bits.ue()?;
    }
    if bits.flag()? && bits.flag()? {
        skip_scaling_list_data(bits)?;
    }
    // amp_enabled_flag, sample_adaptive_offset_enabled_flag
    bits.skip(2)?;
    if bits.flag()? {
        // pcm bit depths, block sizes, loop filter
        bits.skip(8)?;
        bits.ue()?;
        bits.ue()?;
        bits.skip(1)?;
    }
    let sets = bits.ue()?;
    if sets > 64 {
        return Err(bits.malformed("more than 64 reference picture sets"));
    }
    let mut pictures = 0;
    for index in 0..sets {
        pictures = short_term_reference_pictures(bits, index, pictures)?;
    }
    if bits.flag()? {
        let count = bits.ue()?;
        if count > 32 {
            return Err(bits.malformed("more than 32 long-term reference pictures"));
        }
        bits.skip(count * (poc_bits + 1))?;
    }
    // sps_temporal_mvp_enabled_flag, strong_intra_smoothing_enabled_flag
    bits.skip(2)?;
    if bits.flag()? { vui_timing(bits) } else { Ok(None) }
}

/// scaling_list_data(), 7.3.4.
fn skip_scaling_list_data(bits: &mut Bits<'_>) -> Result<(), Error> {
    for size in 0..4 {
        for _ in (0..6).step_by(if size == 3 { 3 } else { 1 }) {
            if !bits.flag()? {
                bits.ue()?;
                continue;
            }
            if size > 1 {
                bits.se()?;
            }
            for _ in 0..(1 << (4 + (size << 1))).min(64) {
                bits.se()?;
            }
        }
    }
    Ok(())
}

/// Reads st_ref_pic_set(), 7.3.7, and returns its number of pictures. `previous` is the number in
/// the set before.
fn short_term_reference_pictures(
    bits: &mut Bits<'_>,
    index: u32,
    previous: u32,
) -> Result<u32, Error> {
    if index > 0 && bits.flag()? {
        // delta_rps_sign, abs_delta_rps_minus1
        bits.skip(1)?;
        bits.ue()?;
        let mut pictures = 0;
        for _ in 0..=previous {
            let used = bits.flag()?;
            // use_delta_flag is inferred to be 1 where the picture is used.
            if used || bits.flag()? {
                pictures += 1;
            }
        }
        return Ok(pictures);
    }
    let (negative, positive) = (bits.ue()?, bits.ue()?);
    if negative > 16 || positive > 16 {
        return Err(bits.malformed("more than 16 reference pictures"));
    }
    for _ in 0..negative + positive {
        bits.ue()?;
        bits.skip(1)?;
    }
    Ok(negative + positive)
}

/// Reads vui_parameters(), E.2.1, as far as the timing.
fn vui_timing(bits: &mut Bits<'_>) -> Result<Option<(u32, u32)>, Error> {
    bits.skip_vui_of_colour()?;
    // neutral_chroma_indication_flag, field_seq_flag, frame_field_info_present_flag
    bits.skip(3)?;
    // Default display window.
    if bits.flag()? {
        for _ in 0..4 {
            bits.ue()?;
        }
    }
    timing(bits)
}

/// Reads video_parameter_set_rbsp(), 7.3.2.1, as far as the timing.
fn vps_timing(vps: &[u8]) -> Result<Option<(u32, u32)>, Error> {
    let payload = unescape(vps.get(2..).unwrap_or_default());
    let mut bits = Bits::new(&payload, "VPS");
    // vps_video_parameter_set_id, base layer flags, vps_max_layers_minus1
    bits.skip(4 + 2 + 6)?;
    let max_sub_layers_minus1 = bits.u(3)?;
    if max_sub_layers_minus1 > 6 {
        return Err(bits.malformed("more than seven sub-layers"));
    }
    // vps_temporal_id_nesting_flag, vps_reserved_0xffff_16bits
    bits.skip(1 + 16)?;
    ProfileTierLevel::read_with_sub_layers(&mut bits, max_sub_layers_minus1)?;
    let all_layers = bits.flag()?;
    for _ in if all_layers { 0 } else { max_sub_layers_minus1 }..=max_sub_layers_minus1 {
        for _ in 0..3 {
            bits.ue()?;
        }
    }
    let max_layer_id = bits.u(6)?;
    let layer_sets = bits.ue()?;
    if layer_sets > 1023 {
        return Err(bits.malformed("more than 1024 layer sets"));
    }
    bits.skip(layer_sets * (max_layer_id + 1))?;
    timing(&mut bits)
}

/// Reads the timing that VPS and VUI share: a flag, units in a tick, ticks in a second. A tick is
/// the duration of a frame.
fn timing(bits: &mut Bits<'_>) -> Result<Option<(u32, u32)>, Error> {
    if !bits.flag()? {
        return Ok(None);
    }
    let (units, scale) = (bits.u(32)?, bits.u(32)?);
    Ok(super::frame_rate(scale.into(), units.into()))
}
