//! Access units of H.264 and HEVC as MP4 and FLV carry them: NAL units, each preceded by its
//! length (ISO/IEC 14496-15 5.3.2 and 8.3.2), not by start codes.

use crate::Error;

/// Walks the NAL units of an access unit. Yields one error, and nothing after it, where a length
/// runs past the end, or there are more than [`MAX_UNITS`]; its position counts from the start of the access unit. Empty NAL units,
/// which some encoders write as padding, are passed over.
#[derive(Debug, Clone)]
pub struct Units<'a> {
    data: &'a [u8],
    position: usize,
    length_size: usize,
    /// How many may still come, empty ones included.
    left: usize,
}

/// NAL units an access unit may have, empty ones included: three times as many as a picture of 1 MB
/// has in slices of the smallest packets. An access unit may be all lengths, a tag may have 32 of
/// those, and to walk 16 million of them holds an event loop up.
pub const MAX_UNITS: usize = 16_384;

/// The NAL units of `access_unit`, whose lengths take `length_size` bytes (1, 2 or 4).
pub fn units(access_unit: &[u8], length_size: u8) -> Units<'_> {
    let length_size = usize::from(length_size.clamp(1, 4));
    Units { data: access_unit, position: 0, length_size, left: MAX_UNITS }
}

impl Units<'_> {
    /// Where in the access unit the next NAL unit's length is, or was looked for.
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

/// Whether the lengths add up to the access unit.
///
/// # Errors
/// Where a length runs past the end, or no NAL unit is there at all.
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

/// Whether any NAL unit satisfies `test`, all lengths being right.
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

/// The access unit without the NAL units that `keep` is not true of; `None` where it is broken.
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

/// A NAL unit's payload with emulation prevention bytes: no `00 00` is followed by a byte below 4
/// that is not the 3 put there (H.264 7.4.1.1, H.265 7.4.2.1). It must not end with a zero.
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
