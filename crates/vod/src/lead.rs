use std::ops::Range;

use media::mp4::{Edit, SampleEntry, SampleTable};

/// Frames at a track's start that are only there to be decoded: an edit list begins behind the
/// keyframe that what it presents is made of.
///
/// Segments have no edit list, and browsers drop what lies before the presentation together with all
/// that is decoded from it. So these frames stay in the title, each shown for an instant: so little
/// that together they last less than one is seen. All others keep their times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lead {
    /// The first of them in decoding order, a sync sample.
    first: u32,
    /// The first sample that is presented.
    presented: u32,
    /// When they are presented in the file, rising: all before `start`.
    times: Vec<i64>,
    /// When what is presented begins.
    start: i64,
    /// Before this time they are decoded.
    decoded: i64,
    /// How long each is shown.
    instant: i64,
}

impl Lead {
    /// Of a track's first segment; nothing where all of it is presented, or none.
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
        // Microseconds tell them apart.
        let instant = i64::from(timescale.div_ceil(100_000).max(1));
        let mut lead = Self { first: segment.start, presented, times, start, decoded: 0, instant };
        // None is shown before it is decoded.
        lead.decoded = lead.begins().min(first_shown.dts);
        Some(lead)
    }

    /// When the first of them is presented now.
    pub(crate) fn begins(&self) -> i64 {
        self.shown(0)
    }

    /// When the one at this place of the order in which they are shown is presented.
    fn shown(&self, place: usize) -> i64 {
        let after = i64::try_from(self.times.len() - place).unwrap_or(i64::MAX);
        self.start.saturating_sub(after.saturating_mul(self.instant))
    }

    /// When sample `number`, before the first that is presented, is decoded.
    fn decoded(&self, number: u32) -> i64 {
        let after = i64::from(self.presented.saturating_sub(number));
        self.decoded.saturating_sub(after.saturating_mul(self.instant))
    }

    /// Gives sample `number` of the table its new times, if it is one of these.
    pub(crate) fn place(&self, number: u32, sample: &mut SampleEntry) {
        if number < self.first || sample.pts() >= self.start {
            return;
        }
        let Ok(place) = self.times.binary_search(&sample.pts()) else { return };
        let shown = self.shown(place);
        if number < self.presented {
            let dts = self.decoded(number);
            // Up to the next one, whose times may be those of the file.
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

    /// Bytes of memory it holds beyond itself.
    pub(crate) fn memory(&self) -> usize {
        self.times.capacity() * size_of::<i64>()
    }
}
