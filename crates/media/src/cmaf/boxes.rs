//! Shared by writer and reader: framing of boxes, sample flags, NTP time.

use mp4_atom::{Atom, Encode};

use crate::Error;

/// sample_depends_on = 2: decoding can start here. ISO/IEC 14496-12 8.8.3.1.
pub(super) const SYNC: u32 = 0x0200_0000;
/// sample_depends_on = 1 and sample_is_non_sync_sample.
pub(super) const NON_SYNC: u32 = 0x0101_0000;
/// sample_is_non_sync_sample alone: the reader identifies sync samples of other writers by this
/// bit.
pub(super) const IS_NON_SYNC: u32 = 0x0001_0000;

/// Writes a box of type `kind` around the output of `body`.
pub(super) fn boxed(
    out: &mut Vec<u8>,
    kind: &[u8; 4],
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(kind);
    body(out)?;
    let size = out.len() - start;
    let size = u32::try_from(size).map_err(|_| Error::Limit {
        what: "box size".into(),
        at: 0,
        value: size as u64,
        limit: u64::from(u32::MAX),
    })?;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    Ok(())
}

/// Writes a box that mp4-atom knows.
pub(super) fn atom(out: &mut Vec<u8>, atom: &impl Encode) -> Result<(), Error> {
    // Encoding into memory, with every field in its range, does not fail.
    atom.encode(out).map_err(|error| Error::malformed(format!("box to write: {error}"), 0))
}

/// A box found in memory.
pub(super) struct Found<'a> {
    pub(super) kind: [u8; 4],
    /// From the start of the slice that was walked.
    pub(super) at: usize,
    /// Bytes of the header.
    pub(super) header: usize,
    /// What follows the header.
    pub(super) body: &'a [u8],
}

impl Found<'_> {
    /// Where the body starts, from the start of the slice that was walked.
    pub(super) fn body_at(&self) -> usize {
        self.at + self.header
    }

    /// Bytes of the whole box.
    pub(super) fn size(&self) -> usize {
        self.header + self.body.len()
    }
}

/// Reads the box that starts at byte `at` of `data`; `None` at the end.
///
/// A size of 0, "to the end of the file" (ISO/IEC 14496-12 4.2), means to the end of `data`.
pub(super) fn next_box(data: &[u8], at: usize) -> Result<Option<Found<'_>>, Error> {
    let rest = data.get(at..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(None);
    }
    let cut = |needed: u64| Error::cut_off("box header", at as u64, needed, rest.len() as u64);
    let (head, after) = rest.split_first_chunk::<8>().ok_or_else(|| cut(8))?;
    let [s0, s1, s2, s3, k0, k1, k2, k3] = *head;
    let kind = [k0, k1, k2, k3];
    let (header, size) = match u32::from_be_bytes([s0, s1, s2, s3]) {
        0 => (8, rest.len() as u64),
        1 => {
            let large = after.first_chunk::<8>().ok_or_else(|| cut(16))?;
            (16, u64::from_be_bytes(*large))
        }
        size => (8, u64::from(size)),
    };
    let name = String::from_utf8_lossy(&kind).into_owned();
    if size < header as u64 {
        return Err(Error::malformed(format!("box {name}: size {size}"), at as u64));
    }
    let body = usize::try_from(size)
        .ok()
        .and_then(|size| rest.get(header..size))
        .ok_or_else(|| Error::cut_off(format!("box {name}"), at as u64, size, rest.len() as u64))?;
    Ok(Some(Found { kind, at, header, body }))
}

/// Calls `visit` with each box in `data`.
pub(super) fn each_box<'a>(
    data: &'a [u8],
    mut visit: impl FnMut(&Found<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = 0;
    while let Some(found) = next_box(data, at)? {
        visit(&found)?;
        at += found.size();
    }
    Ok(())
}

/// Reads a box that mp4-atom knows.
pub(super) fn decode<T: Atom>(found: &Found<'_>) -> Result<T, Error> {
    let mut body = found.body;
    T::decode_body(&mut body).map_err(|error| {
        let name = String::from_utf8_lossy(&found.kind).into_owned();
        Error::malformed(format!("box {name}: {error}"), found.at as u64)
    })
}

/// Seconds from the NTP epoch, 1900, to the Unix epoch, 1970.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// NTP timestamp (RFC 5905 6: 32 bits of seconds, 32 of fraction) of a time in Unix microseconds.
pub(super) fn ntp_from_unix(micros: u64) -> u64 {
    let seconds = (micros / 1_000_000).wrapping_add(NTP_TO_UNIX);
    let fraction = ((micros % 1_000_000) << 32) / 1_000_000;
    seconds << 32 | fraction
}

/// Unix microseconds of an NTP timestamp, which is taken to lie within 136 years after 1970.
pub(super) fn unix_from_ntp(ntp: u64) -> u64 {
    let seconds = (ntp >> 32).wrapping_sub(NTP_TO_UNIX) & 0xFFFF_FFFF;
    let fraction = ntp & 0xFFFF_FFFF;
    // Writing rounds down, so reading rounds to the nearest.
    seconds * 1_000_000 + ((fraction * 1_000_000 + (1 << 31)) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntp_time_comes_back_to_the_microsecond() {
        for micros in [0, 1, 999_999, 1_795_290_618_123_457, 2_085_978_496_000_001] {
            assert_eq!(unix_from_ntp(ntp_from_unix(micros)), micros);
        }
        // RFC 5905, figure 4: 1 January 1970 is 2,208,988,800 s.
        assert_eq!(ntp_from_unix(0) >> 32, 2_208_988_800);
    }

    #[test]
    fn sizes_that_lie_are_told_apart() {
        let cut = next_box(b"\0\0\0\x10mdat1234", 0);
        assert!(matches!(cut, Err(Error::CutOff { needed: 16, left: 12, .. })));
        assert!(matches!(next_box(b"\0\0\0\x07mdat", 0), Err(Error::Malformed { .. })));
        assert!(matches!(
            next_box(b"\0\0\0\x01mdat\xff\xff\xff\xff\xff\xff\xff\xff", 0),
            Err(Error::CutOff { .. })
        ));
        let whole = next_box(b"\0\0\0\0mdat1234", 0).expect("reads").expect("is there");
        assert_eq!(whole.body, b"1234");
    }
}
