use std::ops::Range;

use media::mp4::{Edit, SampleEntry, SampleTable};

/// Frames at a track's start that are decoded but not meant to be seen: the edit list begins behind
/// the keyframe that the first visible frame needs.
///
/// Segments have no edit list. Browsers drop frames before the presentation together with all
/// frames that are decoded from them. So these frames stay in the title, and each is shown for an
/// instant: 10 µs, or one unit of a coarser timescale. All other frames keep their times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lead {
    /// Number of the first of these frames in decode order, a sync sample.
    first: u32,
    /// Number of the first sample that is presented.
    presented: u32,
    /// Their presentation times in the file, rising, and all before `start`.
    times: Vec<i64>,
    /// When the presented part begins.
    start: i64,
    /// They are decoded before this time.
    decoded: i64,
    /// How long each is shown.
    instant: i64,
}

impl Lead {
    /// The lead in a track's first segment; `None` where the whole segment is presented, or nothing
    /// of it.
    pub(crate) fn of(
        samples: &SampleTable,
        edit: &Edit,
        segment: Range<u32>,
        timescale: u32,
    ) -> Option<Self> {
        let entries = || segment.clone().zip(samples.iter_from(segment.start));
        let is_shown = |sample: &SampleEntry| edit.presents(sample.pts(), sample.duration);
        let shown = entries().filter(|(_, sample)| is_shown(sample));
        let start = shown.map(|(_, sample)| sample.pts()).min()?;
        let (presented, first_shown) = entries().find(|(_, sample)| sample.pts() >= start)?;
        let mut times: Vec<i64> =
            entries().map(|(_, sample)| sample.pts()).filter(|pts| *pts < start).collect();
        if times.is_empty() {
            return None;
        }
        times.sort_unstable();
        times.shrink_to_fit();
        // The instants must stay different after conversion to microseconds.
        let instant = i64::from(timescale.div_ceil(100_000).max(1));
        let mut lead = Self { first: segment.start, presented, times, start, decoded: 0, instant };
        // No frame is shown before it is decoded.
        lead.decoded = lead.begins().min(first_shown.dts);
        Some(lead)
    }

    /// New presentation time of the first of them.
    pub(crate) fn begins(&self) -> i64 {
        self.shown(0)
    }

    /// New presentation time of the frame at this position in presentation order.
    fn shown(&self, place: usize) -> i64 {
        let after = i64::try_from(self.times.len() - place).unwrap_or(i64::MAX);
        self.start.saturating_sub(after.saturating_mul(self.instant))
    }

    /// New decode time of sample `number`, which comes before the first presented sample.
    fn decoded(&self, number: u32) -> i64 {
        let after = i64::from(self.presented.saturating_sub(number));
        self.decoded.saturating_sub(after.saturating_mul(self.instant))
    }

    /// Gives sample `number` of the table its new times, if it belongs to the lead.
    pub(crate) fn place(&self, number: u32, sample: &mut SampleEntry) {
        if number < self.first || sample.pts() >= self.start {
            return;
        }
        let Ok(place) = self.times.binary_search(&sample.pts()) else { return };
        let shown = self.shown(place);
        if number < self.presented {
            let dts = self.decoded(number);
            // It lasts until the next sample, which may keep its times from the file.
            let next = number + 1;
            let until = if next < self.presented {
                self.decoded(next)
            } else {
                sample.dts.saturating_add(sample.duration.into())
            };
            sample.duration = u32::try_from(until.saturating_sub(dts)).unwrap_or_default();
            sample.dts = dts;
        }
        let cts = shown.saturating_sub(sample.dts);
        sample.cts = i32::try_from(cts).unwrap_or(sample.cts);
    }

    /// Bytes of memory in addition to the struct itself.
    pub(crate) fn memory(&self) -> usize {
        self.times.capacity() * size_of::<i64>()
    }
}
