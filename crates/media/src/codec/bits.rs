//! Reads the bit fields of configuration records (big-endian).

use bitstream_io::{BigEndian, BitRead, BitReader};

use crate::Error;

/// Reads bit fields and remembers its position. Errors name the byte where reading stopped.
pub(super) struct Bits<'a> {
    reader: BitReader<&'a [u8], BigEndian>,
    what: &'static str,
    length: u64,
    position: u64,
}

impl<'a> Bits<'a> {
    /// Creates a reader over `data`, which errors call `what`.
    pub(super) fn new(data: &'a [u8], what: &'static str) -> Self {
        Self { reader: BitReader::new(data), what, length: 8 * data.len() as u64, position: 0 }
    }

    /// An unsigned field of `count` bits, at most 32.
    pub(super) fn u(&mut self, count: u32) -> Result<u32, Error> {
        debug_assert!(count <= 32);
        let value = self.reader.read_var(count).map_err(|_| self.cut_off(u64::from(count)))?;
        self.position += u64::from(count);
        Ok(value)
    }

    /// A field of at most 8 bits.
    pub(super) fn u8(&mut self, count: u32) -> Result<u8, Error> {
        debug_assert!(count <= 8);
        // The mask keeps all bits that `count` allows, so the conversion loses nothing.
        Ok((self.u(count)? & 0xff) as u8)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Error> {
        Ok(self.u(1)? == 1)
    }

    /// An unsigned Exp-Golomb code, ISO/IEC 23008-2 9.2.
    pub(super) fn ue(&mut self) -> Result<u32, Error> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return Err(self.malformed("an Exp-Golomb code of more than 32 bits"));
            }
        }
        // The sum is at most 2^31 - 1 + 2^31 - 1.
        Ok((1u32 << zeros) - 1 + self.u(zeros)?)
    }

    /// A signed Exp-Golomb code, ISO/IEC 23008-2 9.2.2.
    pub(super) fn se(&mut self) -> Result<i64, Error> {
        let code = i64::from(self.ue()?);
        Ok(if code % 2 == 1 { (code + 1) / 2 } else { -code / 2 })
    }

    /// Reads over the beginning of vui_parameters(), the same in H.264 (E.1.1) and HEVC (E.2.1): aspect ratio, overscan,
    /// colours, and where the samples of colour are.
    pub(super) fn skip_vui_of_colour(&mut self) -> Result<(), Error> {
        const EXTENDED_SAR: u32 = 255;
        if self.flag()? && self.u(8)? == EXTENDED_SAR {
            self.skip(32)?;
        }
        // Overscan.
        if self.flag()? {
            self.skip(1)?;
        }
        // Video format, range, and the colour description.
        if self.flag()? {
            self.skip(4)?;
            if self.flag()? {
                self.skip(24)?;
            }
        }
        // Chroma sample locations.
        if self.flag()? {
            self.ue()?;
            self.ue()?;
        }
        Ok(())
    }

    pub(super) fn skip(&mut self, count: u32) -> Result<(), Error> {
        self.reader.skip(count).map_err(|_| self.cut_off(u64::from(count)))?;
        self.position += u64::from(count);
        Ok(())
    }

    /// Moves on to the next whole byte.
    pub(super) fn align(&mut self) -> Result<(), Error> {
        self.skip((8 - (self.position % 8) as u32) % 8)
    }

    pub(super) fn left(&self) -> u64 {
        self.length - self.position
    }

    /// Position of the byte that holds the next bit.
    pub(super) fn byte(&self) -> u64 {
        self.position / 8
    }

    pub(super) fn malformed(&self, what: &str) -> Error {
        Error::malformed(format!("{}: {what}", self.what), self.byte())
    }

    fn cut_off(&self, count: u64) -> Error {
        Error::cut_off(self.what, 0, (self.position + count).div_ceil(8), self.length / 8)
    }
}

/// A NAL unit's payload without emulation prevention bytes: `00 00 03` becomes `00 00` (ISO/IEC
/// 23008-2 7.3.1.1, the same in H.264).
pub(super) fn unescape(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len());
    let mut zeros = 0;
    for &byte in payload {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}
