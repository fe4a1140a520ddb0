//! Boxes of ISO/IEC 14496-12 that are in memory as a whole.

use crate::Micros;

/// Reads numbers from the front of a box's body.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }
}

/// Iterates over the boxes within a box; ends at the first malformed one.
pub(super) fn children(body: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let mut fields = Fields(rest);
        let size = fields.u32()? as usize;
        let kind = *fields.0.first_chunk()?;
        let inner = rest.get(8..size)?;
        rest = &rest[size..];
        Some((kind, inner))
    })
}

/// Returns the end of the last `mdat` among the whole boxes at the front of `data`: fragments up to
/// there can be read.
pub fn whole_fragments(data: &[u8]) -> usize {
    let (mut at, mut end) = (0usize, 0);
    loop {
        let mut fields = Fields(data.get(at..).unwrap_or_default());
        let (Some(size), Some(kind)) = (fields.u32(), fields.u32()) else { return end };
        let size = match size {
            1 => fields.u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX),
            0 => usize::MAX,
            size => size as usize,
        };
        let Some(next) = at.checked_add(size.max(8)).filter(|&next| next <= data.len()) else {
            return end;
        };
        at = next;
        if kind.to_be_bytes() == *b"mdat" {
            end = at;
        }
    }
}

/// Duration in milliseconds: of `mvhd`, or of `mehd` in a fragmented file.
pub(super) fn movie_duration(moov: &[u8]) -> Option<u64> {
    let (mut timescale, mut duration) = (0u64, 0u64);
    let version = |body: &[u8]| body.first().copied();
    for (kind, body) in children(moov) {
        let mut fields = Fields(body.get(4..)?);
        match &kind {
            b"mvhd" if version(body) == Some(1) => {
                fields.skip(16)?;
                timescale = fields.u32()?.into();
                duration = fields.u64()?;
            }
            b"mvhd" => {
                fields.skip(8)?;
                timescale = fields.u32()?.into();
                duration = fields.u32()?.into();
            }
            b"mvex" => {
                for (kind, body) in children(body) {
                    let mut fields = Fields(body.get(4..)?);
                    if kind == *b"mehd" {
                        let wide = version(body) == Some(1);
                        duration = if wide { fields.u64()? } else { fields.u32()?.into() };
                    }
                }
            }
            _ => {}
        }
    }
    let known = timescale > 0 && duration > 0 && !matches!(duration, 0xFFFF_FFFF | u64::MAX);
    known.then(|| u64::try_from(u128::from(duration) * 1000 / u128::from(timescale)).ok()).flatten()
}

/// Seconds from 1900, the epoch of NTP, to 1970.
const NTP_TO_UNIX: i64 = 2_208_988_800;

/// Reads a `prft`, ISO/IEC 14496-12 8.16.5: track, microseconds since 1970, media time.
pub(super) fn prft(body: &[u8]) -> Option<(u32, Micros, u64)> {
    let mut fields = Fields(body.get(4..)?);
    let track = fields.u32()?;
    let ntp = fields.u64()?;
    let media = if body.first() == Some(&0) { fields.u32()?.into() } else { fields.u64()? };
    let fraction = ((ntp & 0xFFFF_FFFF) * 1_000_000) >> 32;
    // Both are below 2^32 seconds.
    let unix = ((ntp >> 32) as i64 - NTP_TO_UNIX) * 1_000_000 + fraction as i64;
    Some((track, unix, media))
}
