use super::boxes::Body;
use crate::Error;

/// The effect of a track's edit list (ISO/IEC 14496-12 8.6.6) on its samples' times.
///
/// Empty edits at the start delay the track by their length. The first edit that is not empty maps
/// its media time to the end of that delay. So every time on the presentation timeline is the
/// media's own time plus [`shift`](Self::shift) = delay − media time. Samples before the media time
/// or after the edit's end are decoded but not presented. Decode times below zero are normal: they
/// come from reordered frames and from an audio encoder's priming.
///
/// A further edit that continues where the one before ended, give or take a unit of the movie's
/// timescale, lengthens the range. Any other list (jumps, repeats, dwells, rates other than 1)
/// cannot be expressed as one shift. Then the shift of the first edit applies, the end stays open
/// so that nothing is lost, and [`exact`](Self::exact) is false.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edit {
    /// Offset from the media's own times, in the track's timescale. The times of samples here
    /// include it.
    pub shift: i64,
    /// Where presentation starts, in the track's timescale: the length of the initial empty edits.
    pub start: i64,
    /// Where presentation ends, in the track's timescale; `None` means with the last sample.
    pub end: Option<i64>,
    /// Whether shift, start and end express the whole edit list.
    pub exact: bool,
}

impl Edit {
    /// A track without an edit list.
    pub(super) const NONE: Self = Self { shift: 0, start: 0, end: None, exact: true };

    /// Whether a sample at `pts` that lasts for `duration` is at least partly within the
    /// presentation.
    pub fn presents(&self, pts: i64, duration: u32) -> bool {
        let ends_after_start =
            pts >= self.start || pts.saturating_add(i64::from(duration)) > self.start;
        ends_after_start && self.end.is_none_or(|end| pts < end)
    }

    /// Reads `elst`, whose durations are in the movie's timescale and media times in the track's.
    pub(super) fn parse(mut body: Body, movie: u32, track: u32) -> Result<Self, Error> {
        let (version, _) = body.version_flags()?;
        let count = body.u32()?;
        let mut edit = Self::NONE;
        // End of the previous edit in media time, once there was an edit that is not empty.
        let mut media_end: Option<i64> = None;
        if movie == 0 && count > 0 {
            return Err(body.malformed("durations in a movie timescale of 0"));
        }
        // Lengths are rounded to units of the movie, but media times are not.
        let tick = u64::from(track / movie.max(1));
        let overflow = |body: &Body| body.malformed("time overflows 64 bits");
        for _ in 0..count {
            let (duration, media_time) = if version == 0 {
                (u64::from(body.u32()?), i64::from(body.u32()?.cast_signed()))
            } else {
                (body.u64()?, body.u64()?.cast_signed())
            };
            let rate = body.u32()?;
            let length = rescale(duration, movie, track).ok_or_else(|| overflow(&body))?;
            if media_time < -1 {
                return Err(body.malformed(format_args!("media time {media_time}")));
            }
            match media_end {
                None if media_time == -1 => {
                    edit.start = edit.start.checked_add(length).ok_or_else(|| overflow(&body))?;
                    edit.shift = edit.start;
                }
                None => {
                    edit.shift = edit.start - media_time;
                    edit.exact = rate == 0x1_0000;
                    let end = media_time.checked_add(length).ok_or_else(|| overflow(&body))?;
                    media_end = Some(end);
                    // A length of 0 occurs in fragmented movies: it was unknown when the edit list
                    // was written.
                    edit.end = (length > 0).then(|| end.saturating_add(edit.shift));
                }
                Some(end)
                    if media_time.abs_diff(end) <= tick
                        && rate == 0x1_0000
                        && edit.end.is_some() =>
                {
                    let end = media_time.checked_add(length).ok_or_else(|| overflow(&body))?;
                    media_end = Some(end);
                    edit.end = Some(end.saturating_add(edit.shift));
                }
                // Nothing is presented after the last sample anyway.
                Some(_) if media_time == -1 && body.data.len() < 12 => {}
                Some(_) => edit.exact = false,
            }
        }
        if media_end.is_none() {
            // Only empty edits: the track is never presented, or an edit is missing.
            edit.exact = count == 0;
        }
        if !edit.exact {
            edit.end = None;
        }
        Ok(edit)
    }
}

/// Converts a time from one timescale to another, rounded to the nearest unit.
pub(super) fn rescale(time: u64, from: u32, to: u32) -> Option<i64> {
    let from = u128::from(from.max(1));
    let scaled = (u128::from(time) * u128::from(to) + from / 2) / from;
    i64::try_from(scaled).ok()
}
