//! Access units of H.264 and HEVC as MP4 and FLV carry them: NAL units, each preceded by its
//! length (ISO/IEC 14496-15 5.3.2 and 8.3.2), not by start codes.

use crate::Error;

/// Walks the NAL units of an access unit. Yields one error, and nothing after it, where a length
/// runs past the end; its position counts from the start of the access unit. Empty NAL units,
/// which some encoders write as padding, are passed over.
#[derive(Debug, Clone)]
pub struct Units<'a> {
    data: &'a [u8],
    position: usize,
    length_size: usize,
}

/// The NAL units of `access_unit`, whose lengths take `length_size` bytes (1, 2 or 4).
pub fn units(access_unit: &[u8], length_size: u8) -> Units<'_> {
    Units { data: access_unit, position: 0, length_size: usize::from(length_size.clamp(1, 4)) }
}

impl<'a> Iterator for Units<'a> {
    type Item = Result<&'a [u8], Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.data.get(self.position..).filter(|rest| !rest.is_empty())?;
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
