//! AV1: AV1CodecConfigurationRecord, AV1-ISOBMFF 2.3.

use bytes::Bytes;

use super::bits::Bits;
use crate::Error;

/// `obu_type` of a sequence header, AV1 specification 6.2.2.
pub const OBU_SEQUENCE_HEADER: u8 = 1;
/// `obu_type` of a temporal delimiter.
pub const OBU_TEMPORAL_DELIMITER: u8 = 2;
/// `obu_type` of a frame header without tiles.
pub const OBU_FRAME_HEADER: u8 = 3;
const OBU_METADATA: u8 = 5;
/// `obu_type` of a frame header with tiles.
pub const OBU_FRAME: u8 = 6;
/// `obu_type` of a tile list, which only large-scale tile decoding has.
pub const OBU_TILE_LIST: u8 = 8;
/// `obu_type` of padding.
pub const OBU_PADDING: u8 = 15;

/// Bytes of an AV1CodecConfigurationRecord before its OBUs.
const RECORD: usize = 4;

/// Contents of an AV1CodecConfigurationRecord.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The record itself.
    pub record: Bytes,
    /// Picture width in pixels, cropped. 0 where the record carries no sequence header: the
    /// container then gives the size.
    pub width: u32,
    /// Picture height in pixels, cropped; 0 like the width.
    pub height: u32,
    /// Frames per second as a fraction, where the sequence header contains timing information and
    /// its value is plausible as a frame rate. Streams of variable rate may state one as well.
    pub frame_rate: Option<(u32, u32)>,
    /// `seq_profile`: 0 Main, 1 High, 2 Professional.
    pub profile: u8,
    /// `seq_level_idx[0]`: 4 × (major − 2) + minor, 31 for no limit.
    pub level: u8,
    /// `seq_tier[0]`: high tier.
    pub high_tier: bool,
    /// Bits per component: 8, 10 or 12.
    pub bit_depth: u8,
    /// Whether there are no chroma planes.
    pub monochrome: bool,
    /// `chroma_subsampling_x`, `chroma_subsampling_y`, `chroma_sample_position` as digits: 110 is
    /// 4:2:0 of unknown position.
    pub chroma: u8,
    /// Colour description (H.273 code points and range), where the sequence header has one.
    pub color: Option<Color>,
}

/// Code points of ITU-T H.273 that a sequence header names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Color {
    /// `color_primaries`.
    pub primaries: u8,
    /// `transfer_characteristics`.
    pub transfer: u8,
    /// `matrix_coefficients`.
    pub matrix: u8,
    /// `color_range`: whether samples use the full range.
    pub full_range: bool,
}

impl Color {
    /// BT.709 in the limited range: what a codec string without colour fields means.
    const BT709: Self = Self { primaries: 1, transfer: 1, matrix: 1, full_range: false };
}

impl Config {
    /// Reads a configuration record.
    ///
    /// # Errors
    /// The record is cut off or breaks the codec's rules.
    pub fn parse(record: Bytes) -> Result<Self, Error> {
        let mut bits = Bits::new(&record, "av1C");
        if !bits.flag()? {
            return Err(Error::malformed("av1C: marker missing", 0));
        }
        let version = bits.u(7)?;
        if version != 1 {
            return Err(Error::unsupported(format!("av1C version {version}"), 0));
        }
        let profile = bits.u8(3)?;
        let level = bits.u8(5)?;
        let high_tier = bits.flag()?;
        let bit_depth = match (bits.flag()?, bits.flag()?) {
            (false, _) => 8,
            (true, false) => 10,
            (true, true) => 12,
        };
        let monochrome = bits.flag()?;
        let (x, y, position) = (bits.u8(1)?, bits.u8(1)?, bits.u8(2)?);
        // Initial presentation delay and its reserved bits.
        bits.skip(8)?;

        let mut config = Self {
            width: 0,
            height: 0,
            frame_rate: None,
            profile,
            level,
            high_tier,
            bit_depth,
            monochrome,
            chroma: 100 * x + 10 * y + position,
            color: None,
            record,
        };
        let record = config.record.clone();
        for obu in obus(record.get(RECORD..).unwrap_or_default()) {
            let obu = obu.map_err(|error| error.offset(4))?;
            if obu.kind == OBU_SEQUENCE_HEADER {
                let header = SequenceHeader::read(obu.payload).map_err(|error| {
                    Error::malformed(
                        format!("av1C: sequence header unreadable, {error}"),
                        4 + obu.at,
                    )
                })?;
                config.width = header.width;
                config.height = header.height;
                config.frame_rate = header.frame_rate;
                // Where the format cannot be read, the colours stay unknown.
                config.color = header.format.ok().and_then(|format| format.color);
                break;
            }
        }
        Ok(config)
    }

    /// Makes the configuration from the sequence header in a temporal unit; `None` where there is
    /// no sequence header. The first temporal unit of a sequence has one. This serves publishers
    /// that send no record or an empty one, because they know the sequence header only after the
    /// encoder's first picture.
    ///
    /// # Errors
    /// The sequence header cannot be read, or an OBU's size runs past the end.
    pub fn from_temporal_unit(temporal_unit: &[u8]) -> Result<Option<Self>, Error> {
        for obu in obus(temporal_unit) {
            let obu = obu?;
            if obu.kind != OBU_SEQUENCE_HEADER {
                continue;
            }
            let unreadable =
                |error| Error::malformed(format!("sequence header unreadable, {error}"), obu.at);
            let header = SequenceHeader::read(obu.payload).map_err(unreadable)?;
            let format = header.format.map_err(unreadable)?;
            let (high, twelve) = (format.bit_depth > 8, format.bit_depth == 12);
            let (x, y) = format.subsampling;
            let mut record = vec![
                0x81,
                header.profile << 5 | header.level,
                u8::from(header.high_tier) << 7
                    | u8::from(high) << 6
                    | u8::from(twelve) << 5
                    | u8::from(format.monochrome) << 4
                    | u8::from(x) << 3
                    | u8::from(y) << 2
                    | format.position,
                0,
            ];
            // The OBU is copied as it is, but always with a size field, as the record requires.
            record.push(OBU_SEQUENCE_HEADER << 3 | HAS_SIZE);
            write_leb128(obu.payload.len(), &mut record);
            record.extend_from_slice(obu.payload);
            return Self::parse(record.into()).map(Some);
        }
        Ok(None)
    }

    /// The OBUs in the record (`configOBUs`): the sequence header, where there is one.
    pub fn obus(&self) -> &[u8] {
        self.record.get(RECORD..).unwrap_or_default()
    }

    /// RFC 6381 codec string, AV1-ISOBMFF 5: `av01.0.04M.08`. The optional fields follow only where
    /// one of them differs from its default.
    pub fn rfc6381(&self) -> String {
        let tier = if self.high_tier { 'H' } else { 'M' };
        let mut out =
            format!("av01.{}.{:02}{tier}.{:02}", self.profile, self.level, self.bit_depth);
        let color = self.color.unwrap_or(Color::BT709);
        if self.monochrome || self.chroma != 110 || color != Color::BT709 {
            out.push_str(&format!(
                ".{}.{:03}.{:02}.{:02}.{:02}.{}",
                u8::from(self.monochrome),
                self.chroma,
                color.primaries,
                color.transfer,
                color.matrix,
                u8::from(color.full_range),
            ));
        }
        out
    }
}

/// `obu_has_size_field` and `obu_extension_flag` in the first byte of an OBU, 5.3.2.
const HAS_SIZE: u8 = 2;
const HAS_EXTENSION: u8 = 4;

/// An open bitstream unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obu<'a> {
    /// `obu_type`.
    pub kind: u8,
    /// `obu_header()`: one byte, or two with the extension.
    header: &'a [u8],
    /// The bytes behind header and size.
    pub payload: &'a [u8],
    /// Position of its header.
    at: u64,
}

impl Obu<'_> {
    /// Appends the unit to `out`, with a size field or without.
    pub fn write(&self, has_size: bool, out: &mut Vec<u8>) {
        let Some((&first, extension)) = self.header.split_first() else { return };
        out.push(first & !HAS_SIZE | if has_size { HAS_SIZE } else { 0 });
        out.extend_from_slice(extension);
        if has_size {
            write_leb128(self.payload.len(), out);
        }
        out.extend_from_slice(self.payload);
    }
}

/// Appends a number as `leb128()`, 4.10.5, in as few bytes as it needs.
pub fn write_leb128(mut value: usize, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(0x80 | (value & 0x7f) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads `leb128()` at the start of `data`. Returns the value, and the bytes behind it. `None` where it is cut
/// off or too large.
pub fn read_leb128(data: &[u8]) -> Option<(usize, &[u8])> {
    let (value, end) = leb128(data, 0, 0).ok()?;
    Some((value, data.get(end..)?))
}

/// Reads `leb128()` at `start` in an OBU, which lies at byte `at`: at most eight bytes, and a value of at most
/// 32 bits. Returns the value, and where it ends.
fn leb128(data: &[u8], start: usize, at: u64) -> Result<(usize, usize), Error> {
    let mut value = 0u64;
    for index in 0..8 {
        let end = start + index + 1;
        let &byte = data
            .get(end - 1)
            .ok_or_else(|| Error::cut_off("OBU", at, end as u64, data.len() as u64))?;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let value = u32::try_from(value).ok().and_then(|value| usize::try_from(value).ok());
            let large = || Error::malformed("OBU: size of more than 32 bits", at);
            return Ok((value.ok_or_else(large)?, end));
        }
    }
    Err(Error::malformed("OBU: size of more than eight bytes", at))
}

/// The most OBUs a temporal unit may have: four times the tiles of the largest picture (annex A.3),
/// each of which could be one. Without a limit, walking 16 MiB of bare OBU headers would take long.
pub const MAX_OBUS: u64 = 16_384;

/// Iterates over open bitstream units, AV1 specification 5.3. The last one may have no size. Where
/// a size runs past the end, or there are more than [`MAX_OBUS`], it yields one error and ends.
pub fn obus(data: &[u8]) -> impl Iterator<Item = Result<Obu<'_>, Error>> {
    let mut position = 0;
    let mut count = 0;
    std::iter::from_fn(move || {
        let rest = data.get(position..).filter(|rest| !rest.is_empty())?;
        let at = position as u64;
        count += 1;
        let unit = match count {
            ..=MAX_OBUS => obu(rest, at),
            _ => {
                let what = "OBUs of a temporal unit".into();
                Err(Error::Limit { what, at, value: count, limit: MAX_OBUS })
            }
        };
        match unit {
            Ok((obu, length)) => {
                position += length;
                Some(Ok(obu))
            }
            Err(error) => {
                position = data.len();
                Some(Err(error))
            }
        }
    })
}

/// Reads the unit at the start of `data`, which lies at byte `at`. Returns the unit and how many
/// bytes it takes.
fn obu(data: &[u8], at: u64) -> Result<(Obu<'_>, usize), Error> {
    let cut_off = |needed: usize| Error::cut_off("OBU", at, needed as u64, data.len() as u64);
    let &header = data.first().ok_or_else(|| cut_off(1))?;
    if header & 0x80 != 0 {
        return Err(Error::malformed("OBU: forbidden bit set", at));
    }
    let (extension, has_size) = (header & HAS_EXTENSION != 0, header & HAS_SIZE != 0);
    let mut start = if extension { 2 } else { 1 };
    let mut size = data.len().checked_sub(start).ok_or_else(|| cut_off(start))?;
    let unit_header = data.get(..start).unwrap_or_default();
    if has_size {
        (size, start) = leb128(data, start, at)?;
    }
    let end = start.saturating_add(size);
    let payload = data.get(start..end).ok_or_else(|| cut_off(end))?;
    Ok((Obu { kind: header >> 3 & 0xf, header: unit_header, payload, at }, end))
}

/// Whether decoding can start at this temporal unit, given its sequence header: its first frame is a
/// key frame that is coded and shown in this unit, not an earlier frame that is shown again and not one
/// that is shown later (AV1 specification 5.9.2 and 7.6.2, AV1-ISOBMFF 2.4).
///
/// # Errors
/// A unit's size runs past the end; the position counts from the start of the temporal unit.
pub fn is_keyframe(temporal_unit: &[u8]) -> Result<bool, Error> {
    let mut reduced = false;
    let mut answer = None;
    for obu in obus(temporal_unit) {
        let obu = obu?;
        match obu.kind {
            OBU_SEQUENCE_HEADER => {
                reduced = obu.payload.first().is_some_and(|header| header >> 3 & 1 == 1);
            }
            OBU_FRAME_HEADER | OBU_FRAME if answer.is_none() => {
                // show_existing_frame, frame_type, show_frame. A reduced header has none of them,
                // because it is of a still picture.
                answer =
                    Some(reduced || obu.payload.first().is_some_and(|header| header >> 4 == 1));
            }
            _ => {}
        }
    }
    Ok(answer.unwrap_or(false))
}

/// Checks that the sizes of the OBUs add up to the temporal unit.
///
/// # Errors
/// A unit's size runs past the end, or there is no OBU at all.
pub fn check(temporal_unit: &[u8]) -> Result<(), Error> {
    let mut count = 0usize;
    for obu in obus(temporal_unit) {
        obu?;
        count += 1;
    }
    if count == 0 {
        return Err(Error::malformed("temporal unit without OBUs", 0));
    }
    Ok(())
}

/// Bytes of the temporal delimiter at the start of `temporal_unit`; 0 where there is none. Samples
/// are stored without it (AV1-ISOBMFF 2.4).
pub fn temporal_delimiter(temporal_unit: &[u8]) -> usize {
    match obu(temporal_unit, 0) {
        Ok((obu, length)) if obu.kind == OBU_TEMPORAL_DELIMITER => length,
        _ => 0,
    }
}

/// Position for a metadata OBU: behind the temporal delimiter and the sequence header, if any, but
/// ahead of other OBUs, because some decoders keep only the last metadata of a type.
///
/// # Errors
/// A unit's size runs past the end, or there is no frame.
pub(crate) fn behind_sequence_header(temporal_unit: &[u8]) -> Result<usize, Error> {
    let mut place = None;
    let mut has_frame = false;
    for obu in obus(temporal_unit) {
        let obu = obu?;
        if !matches!(obu.kind, OBU_TEMPORAL_DELIMITER | OBU_SEQUENCE_HEADER) {
            place.get_or_insert(obu.at);
        }
        has_frame |= matches!(obu.kind, OBU_FRAME_HEADER | OBU_FRAME);
    }
    let place = place.filter(|_| has_frame).and_then(|place| usize::try_from(place).ok());
    place.ok_or_else(|| {
        Error::malformed("temporal unit without a frame", temporal_unit.len() as u64)
    })
}

/// A metadata OBU around a payload of less than 128 bytes, which includes the trailing bits.
pub(crate) fn metadata(payload: &[u8]) -> Vec<u8> {
    let mut obu = vec![OBU_METADATA << 3 | 2, payload.len() as u8];
    obu.extend_from_slice(payload);
    obu
}

/// The temporal unit without the metadata OBUs whose payload passes `test`; `None` where the unit
/// is broken.
pub(crate) fn without_metadata(
    temporal_unit: &[u8],
    test: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(temporal_unit.len());
    let mut rest = temporal_unit;
    while !rest.is_empty() {
        let (obu, length) = obu(rest, 0).ok()?;
        let (whole, behind) = rest.split_at_checked(length)?;
        if obu.kind != OBU_METADATA || !test(obu.payload) {
            kept.extend_from_slice(whole);
        }
        rest = behind;
    }
    Some(kept)
}

struct SequenceHeader {
    profile: u8,
    level: u8,
    high_tier: bool,
    width: u32,
    height: u32,
    frame_rate: Option<(u32, u32)>,
    /// Fields behind the picture size. They may be cut off where only the size is needed.
    format: Result<Format, Error>,
}

/// color_config(), 5.5.2.
struct Format {
    bit_depth: u8,
    monochrome: bool,
    /// Horizontally, vertically.
    subsampling: (bool, bool),
    /// `chroma_sample_position`.
    position: u8,
    color: Option<Color>,
}

impl SequenceHeader {
    /// Reads sequence_header_obu(), 5.5.1.
    fn read(payload: &[u8]) -> Result<Self, Error> {
        let mut bits = Bits::new(payload, "sequence header");
        let profile = bits.u8(3)?;
        if profile > 2 {
            return Err(bits.malformed("a reserved profile"));
        }
        // still_picture
        bits.skip(1)?;
        let reduced = bits.flag()?;
        let points = if reduced {
            OperatingPoints { level: bits.u8(5)?, high_tier: false, frame_rate: None }
        } else {
            OperatingPoints::read(&mut bits)?
        };
        let (width_bits, height_bits) = (bits.u(4)? + 1, bits.u(4)? + 1);
        let (width, height) = (bits.u(width_bits)? + 1, bits.u(height_bits)? + 1);
        let format = Format::read(&mut bits, profile, reduced);
        let OperatingPoints { level, high_tier, frame_rate } = points;
        Ok(Self { profile, level, high_tier, width, height, frame_rate, format })
    }
}

/// Level and tier of the first operating point, and the frame rate where it is constant.
struct OperatingPoints {
    level: u8,
    high_tier: bool,
    frame_rate: Option<(u32, u32)>,
}

impl OperatingPoints {
    /// Reads from timing_info_present_flag to the last operating point.
    fn read(bits: &mut Bits<'_>) -> Result<Self, Error> {
        let mut frame_rate = None;
        let mut delay_bits = None;
        if bits.flag()? {
            let (units, scale) = (bits.u(32)?, bits.u(32)?);
            if bits.flag()? {
                // num_ticks_per_picture_minus_1, uvlc(): Exp-Golomb.
                let ticks = u64::from(bits.ue()?) + 1;
                frame_rate =
                    super::frame_rate(scale.into(), u64::from(units).saturating_mul(ticks));
            }
            if bits.flag()? {
                delay_bits = Some(bits.u(5)? + 1);
                // num_units_in_decoding_tick, the lengths of removal and presentation times
                bits.skip(32 + 5 + 5)?;
            }
        }
        let display_delay = bits.flag()?;
        let mut first = None;
        for _ in 0..=bits.u(5)? {
            // operating_point_idc
            bits.skip(12)?;
            let level = bits.u8(5)?;
            let high_tier = level > 7 && bits.flag()?;
            first.get_or_insert((level, high_tier));
            if let Some(delay_bits) = delay_bits
                && bits.flag()?
            {
                bits.skip(2 * delay_bits + 1)?;
            }
            if display_delay && bits.flag()? {
                bits.skip(4)?;
            }
        }
        let (level, high_tier) = first.unwrap_or_default();
        Ok(Self { level, high_tier, frame_rate })
    }
}

impl Format {
    /// Reads from behind the frame size to the end of color_config().
    fn read(bits: &mut Bits<'_>, profile: u8, reduced: bool) -> Result<Self, Error> {
        if !reduced && bits.flag()? {
            // Frame identifier lengths.
            bits.skip(4 + 3)?;
        }
        // use_128x128_superblock, enable_filter_intra, enable_intra_edge_filter
        bits.skip(3)?;
        if !reduced {
            // Interintra and masked compound, warped motion, dual filter.
            bits.skip(4)?;
            let order_hint = bits.flag()?;
            if order_hint {
                bits.skip(2)?;
            }
            // seq_choose_screen_content_tools, else seq_force_screen_content_tools
            let screen_content = bits.flag()? || bits.flag()?;
            // seq_choose_integer_mv, else seq_force_integer_mv
            if screen_content && !bits.flag()? {
                bits.skip(1)?;
            }
            if order_hint {
                bits.skip(3)?;
            }
        }
        // enable_superres, enable_cdef, enable_restoration
        bits.skip(3)?;
        let high = bits.flag()?;
        let twelve = profile == 2 && high && bits.flag()?;
        let bit_depth = match (high, twelve) {
            (false, _) => 8,
            (true, false) => 10,
            (true, true) => 12,
        };
        let monochrome = profile != 1 && bits.flag()?;
        let described = bits.flag()?;
        let (primaries, transfer, matrix) =
            if described { (bits.u8(8)?, bits.u8(8)?, bits.u8(8)?) } else { (2, 2, 2) };
        // sRGB with the identity matrix is always full range and 4:4:4, and has no fields for
        // either.
        let srgb = !monochrome && (primaries, transfer, matrix) == (1, 13, 0);
        let full_range = srgb || bits.flag()?;
        let subsampling = match profile {
            _ if monochrome => (true, true),
            _ if srgb => (false, false),
            0 => (true, true),
            1 => (false, false),
            _ if twelve => {
                let x = bits.flag()?;
                (x, x && bits.flag()?)
            }
            _ => (true, false),
        };
        let has_position = !monochrome && subsampling == (true, true);
        let position = if has_position { bits.u8(2)? } else { 0 };
        let color = described.then_some(Color { primaries, transfer, matrix, full_range });
        Ok(Self { bit_depth, monochrome, subsampling, position, color })
    }
}
