//! One fragment: its `moof` says when its media play and where its samples are.

use media::cmaf::Defaults;

use super::boxes::{Fields, children};
use crate::Micros;
use crate::playback::Stamps;

/// Times of the media of one track in one fragment, without the media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// track_ID.
    pub track_id: u32,
    /// Decode time of the first sample, in the track's timescale.
    pub decode_time: u64,
    /// Sum of the sample durations, in the track's timescale.
    pub duration: u64,
    /// The `prft` before it, if it was for this track: microseconds since 1970, and the media time
    /// in the track's timescale.
    pub captured: Option<(Micros, u64)>,
    /// Stamps of its first and its last sample, if both have one near their start.
    pub stamps: Option<Stamps>,
}

/// Position in the file and size of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) at: u64,
    pub(super) size: u64,
}

impl Fragment {
    /// Reads a `traf` (ISO/IEC 14496-12, 8.8.6) of the `moof` that starts at byte `moof`.
    /// `defaults` are those of the header. Returns also where the first and the last sample are.
    pub(super) fn read(
        traf: &[u8],
        moof: u64,
        defaults: &[Defaults],
    ) -> Option<(Self, Option<(Extent, Extent)>)> {
        let (mut track_id, mut decode_time, mut duration) = (None, 0, 0u64);
        let (mut default_duration, mut default_size) = (None, None);
        let mut base = moof;
        let mut ends: Option<(Extent, Extent)> = None;
        for (kind, body) in children(traf) {
            let flags = u32::from_be_bytes([0, *body.get(1)?, *body.get(2)?, *body.get(3)?]);
            let mut fields = Fields(body.get(4..)?);
            match &kind {
                b"tfhd" => {
                    track_id = Some(fields.u32()?);
                    if flags & 1 != 0 {
                        base = fields.u64()?;
                    }
                    // sample_description_index.
                    fields.skip(if flags & 2 != 0 { 4 } else { 0 })?;
                    if flags & 8 != 0 {
                        default_duration = Some(fields.u32()?);
                    }
                    if flags & 0x10 != 0 {
                        default_size = Some(fields.u32()?);
                    }
                }
                b"tfdt" if body[0] == 1 => decode_time = fields.u64()?,
                b"tfdt" => decode_time = fields.u32()?.into(),
                b"trun" => {
                    let of_header = defaults.iter().find(|d| Some(d.track_id) == track_id);
                    let run = Run::read(
                        flags,
                        fields,
                        default_duration.or(of_header.map(|d| d.duration)).unwrap_or_default(),
                        default_size.or(of_header.map(|d| d.size)).unwrap_or_default(),
                    )?;
                    duration = duration.checked_add(run.duration)?;
                    let behind = ends.map(|(_, last)| last.at.saturating_add(last.size));
                    let at = match (run.data_offset, behind) {
                        (Some(offset), _) => base.saturating_add_signed(offset.into()),
                        (None, behind) => behind.unwrap_or(base),
                    };
                    if let Some((first, last)) = run.samples {
                        let place = |(from, size): (u64, u32)| Extent {
                            at: at.saturating_add(from),
                            size: size.into(),
                        };
                        ends = Some((ends.map_or(place(first), |(first, _)| first), place(last)));
                    }
                }
                _ => {}
            }
        }
        let fragment =
            Self { track_id: track_id?, decode_time, duration, captured: None, stamps: None };
        Some((fragment, ends))
    }
}

/// A `trun`, ISO/IEC 14496-12 8.8.8.
struct Run {
    data_offset: Option<i32>,
    duration: u64,
    /// First and last sample: offset from where the data begin, and size.
    samples: Option<((u64, u32), (u64, u32))>,
}

impl Run {
    /// Reads a `trun`. `duration` and `size` apply to samples for which it gives none.
    fn read(flags: u32, mut fields: Fields<'_>, duration: u32, size: u32) -> Option<Self> {
        let count = fields.u32()?;
        let data_offset = if flags & 1 != 0 { Some(fields.u32()? as i32) } else { None };
        // first_sample_flags.
        fields.skip(if flags & 4 != 0 { 4 } else { 0 })?;
        let mut run = Self { data_offset, duration: 0, samples: None };
        if count == 0 {
            return Some(run);
        }
        if flags & 0x300 == 0 {
            run.duration = u64::from(count) * u64::from(duration);
            let last = u64::from(count - 1) * u64::from(size);
            // A size of 0 means that only a header says the size, and that it is not known here.
            run.samples = (size > 0).then_some(((0, size), (last, size)));
            return Some(run);
        }
        let rest = (flags & 0xC00).count_ones() as usize * 4;
        let mut end = 0u64;
        for _ in 0..count {
            let duration = if flags & 0x100 != 0 { fields.u32()? } else { duration };
            let size = if flags & 0x200 != 0 { fields.u32()? } else { size };
            fields.skip(rest)?;
            // Neither sum can pass 2^64: there are fewer than 2^32 samples, each with 32 bits.
            run.duration += u64::from(duration);
            let first = run.samples.map_or((end, size), |(first, _)| first);
            run.samples = Some((first, (end, size)));
            end += u64::from(size);
        }
        run.samples = run.samples.filter(|_| end > 0);
        Some(run)
    }
}
