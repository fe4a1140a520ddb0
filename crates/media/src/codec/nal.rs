//! Access units of H.264 and HEVC as MP4 and FLV carry them: each NAL unit is preceded by its
//! length (ISO/IEC 14496-15 5.3.2 and 8.3.2), not by a start code.

use crate::Error;

/// Iterates over the NAL units of an access unit, without the empty ones that some encoders write
/// as padding. Where a length runs past the end, or there are more than [`MAX_UNITS`], it yields
/// one error and ends. The error's position counts from the start of the access unit.
#[derive(Debug, Clone)]
pub struct Units<'a> {
    data: &'a [u8],
    position: usize,
    length_size: usize,
    /// How many NAL units may still come, empty ones included.
    left: usize,
}

/// The most NAL units an access unit may have, empty ones included. A picture of 1 MB in slices of
/// the smallest packet size has a third of that. Without this limit an access unit could consist of
/// nothing but lengths, and one FLV tag may carry 32 such access units. Walking 16 million NAL
/// units would block an event loop.
pub const MAX_UNITS: usize = 16_384;

/// The NAL units of `access_unit`, whose lengths take `length_size` bytes (1, 2 or 4).
pub fn units(access_unit: &[u8], length_size: u8) -> Units<'_> {
    let length_size = usize::from(length_size.clamp(1, 4));
    Units { data: access_unit, position: 0, length_size, left: MAX_UNITS }
}

impl Units<'_> {
    /// Position of the next NAL unit's length in the access unit; after an error, the end of the
    /// data.
    pub(crate) fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Units<'a> {
    type Item = Result<&'a [u8], Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.data.get(self.position..).filter(|rest| !rest.is_empty())?;
            let Some(left) = self.left.checked_sub(1) else {
                let (at, limit) = (self.position as u64, MAX_UNITS as u64);
                self.position = self.data.len();
                let what = "NAL units of an access unit".into();
                return Some(Err(Error::Limit { what, at, value: limit + 1, limit }));
            };
            self.left = left;
            let Some((prefix, rest)) = rest.split_at_checked(self.length_size) else {
                let error = Error::cut_off(
                    "NAL unit length",
                    self.position as u64,
                    self.length_size as u64,
                    rest.len() as u64,
                );
                self.position = self.data.len();
                return Some(Err(error));
            };
            let length = prefix.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
            let Some(unit) = rest.get(..length) else {
                let error = Error::cut_off(
                    "NAL unit",
                    self.position as u64,
                    (self.length_size + length) as u64,
                    (self.length_size + rest.len()) as u64,
                );
                self.position = self.data.len();
                return Some(Err(error));
            };
            self.position += self.length_size + length;
            if !unit.is_empty() {
                return Some(Ok(unit));
            }
        }
    }
}

/// Checks that the lengths of the NAL units add up to the access unit.
///
/// # Errors
/// A length runs past the end, or there is no NAL unit at all.
pub fn check(access_unit: &[u8], length_size: u8) -> Result<(), Error> {
    let mut count = 0usize;
    for unit in units(access_unit, length_size) {
        unit?;
        count += 1;
    }
    if count == 0 {
        return Err(Error::malformed("access unit without NAL units", 0));
    }
    Ok(())
}

/// Whether any NAL unit passes `test`. An error where a length is wrong.
pub(super) fn any(
    access_unit: &[u8],
    length_size: u8,
    test: impl Fn(&[u8]) -> bool,
) -> Result<bool, Error> {
    let mut found = false;
    for unit in units(access_unit, length_size) {
        found |= test(unit?);
    }
    Ok(found)
}

/// The access unit with only those NAL units that `keep` accepts; `None` where a length is wrong.
pub(crate) fn retain(
    access_unit: &[u8],
    length_size: u8,
    keep: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(access_unit.len());
    let mut units = units(access_unit, length_size);
    loop {
        let from = units.position();
        let Some(unit) = units.next() else { return Some(kept) };
        if keep(unit.ok()?) {
            kept.extend_from_slice(access_unit.get(from..units.position())?);
        }
    }
}

/// Inserts emulation prevention bytes into a NAL unit's payload: a 3 goes between `00 00` and a
/// byte below 4 (H.264 7.4.1.1, H.265 7.4.2.1). `rbsp` must not end with a zero.
pub(crate) fn escape(rbsp: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rbsp.len() + rbsp.len() / 2);
    let mut zeros = 0;
    for &byte in rbsp {
        if zeros >= 2 && byte <= 3 {
            out.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}
