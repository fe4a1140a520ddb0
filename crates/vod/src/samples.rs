//! The samples of a title, for deliveries that do not use CMAF segments.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use media::mp4::SampleEntry;

use crate::{Title, Track, time};

/// One sample of a title: its times in stream time, and its position in its track's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Position of its track in [`Title::tracks`].
    pub track: usize,
    /// Decode time in stream time, in the track's timescale; not negative.
    pub dts: i64,
    /// Composition time minus decode time, in the track's timescale.
    pub cts: i32,
    /// Duration in the track's timescale.
    pub duration: u32,
    /// Whether decoding can start here.
    pub sync: bool,
    /// Position of its first byte in the file.
    pub offset: u64,
    /// Size in bytes.
    pub size: u32,
}

/// A gap of at most this many bytes between samples is read along with them, instead of using
/// another call.
const GAP: u64 = 16 << 10;

/// The most bytes that one call reads.
const READ: u64 = 8 << 20;

impl Title {
    /// The samples of these tracks (positions in [`tracks`](Self::tracks)) during segment `n` of
    /// the first of these tracks, in the order of their decode times. Consecutive segments together
    /// list every sample of every track exactly once: the first segment includes all earlier
    /// samples, and the last one all later samples. `None` where there is no such segment or track.
    pub fn samples(&self, tracks: &[usize], n: u32) -> Option<Vec<Sample>> {
        let ranges = self.ranges(tracks, n)?.into_iter();
        let cursors = ranges.map(|(position, track, range)| Cursor::new(position, track, range));
        Some(merge(cursors.collect()))
    }

    /// The first of these tracks' samples during segment `n`. `None` if there are none.
    pub fn first_sample(&self, tracks: &[usize], n: u32) -> Option<Sample> {
        let mut first: Option<(Sample, u32)> = None;
        for (position, track, range) in self.ranges(tracks, n)? {
            let Some(entry) = range.clone().next().and_then(|at| track.entry(at)) else { continue };
            let timescale = track.media.timescale;
            let when = (entry.dts, timescale);
            if first.is_none_or(|(first, scale)| time::before(when, (first.dts, scale))) {
                first = Some((sample(position, entry), timescale));
            }
        }
        first.map(|(first, _)| first)
    }

    /// Of the samples during segment `n`, the last one of the first of these tracks that is decoded
    /// at or before `dts`, and its index in the list of [`samples`](Self::samples). `None` if there
    /// is none. A segment may have all samples of a file, so this lists none of them and costs only
    /// a binary search for each track.
    pub fn last_sample(&self, tracks: &[usize], n: u32, dts: i64) -> Option<(usize, Sample)> {
        let mut ranges = self.ranges(tracks, n)?.into_iter();
        let (leading, lead, range) = ranges.next()?;
        let after = lead.partition_point(&range, |entry| entry.dts <= dts);
        let number = after.checked_sub(1).filter(|number| range.contains(number))?;
        let entry = lead.entry(number)?;
        let when = (entry.dts, lead.media.timescale);
        let mut index = number - range.start;
        for (_, track, range) in ranges {
            let timescale = track.media.timescale;
            let earlier = |other: &SampleEntry| time::before((other.dts, timescale), when);
            index += track.partition_point(&range, earlier).saturating_sub(range.start);
        }
        Some((index as usize, sample(leading, entry)))
    }

    /// The numbers of the samples of these tracks during segment `n` of the first one, with the
    /// tracks and their positions.
    fn ranges(&self, tracks: &[usize], n: u32) -> Option<Vec<(usize, &Track, Range<u32>)>> {
        let (&leading, others) = tracks.split_first()?;
        let lead = self.tracks.get(leading)?;
        let range = lead.range(n)?;
        let start = (n > 0).then(|| lead.samples.get(range.start)).flatten();
        let end = (n + 1 < lead.segment_count()).then(|| lead.samples.get(range.end)).flatten();
        let mut ranges = vec![(leading, lead, range)];
        for &position in others {
            let track = self.tracks.get(position)?;
            let from_units = lead.media.timescale;
            let number = |at: Option<SampleEntry>, otherwise: u32| {
                at.map_or(otherwise, |at| track.first_from(at.dts, from_units))
            };
            let first = track.rows.first().map_or(track.last, |row| row.first);
            let range = number(start, first)..number(end, track.last);
            ranges.push((position, track, range));
        }
        Some(ranges)
    }

    /// Reads samples. Neighbours in the file are read in one call. Blocks, and holds all samples in
    /// memory: a caller that cannot trust a segment's size should pass a part of it at a time.
    ///
    /// # Errors
    /// A file cannot be read or has become shorter; [`io::ErrorKind::InvalidInput`] where a sample
    /// does not belong to this title.
    pub fn read(&self, samples: &[Sample]) -> io::Result<Vec<media::Sample>> {
        let mut order: Vec<usize> = (0..samples.len()).collect();
        let file = |sample: &Sample| self.tracks.get(sample.track).map(|track| &track.file);
        let place = |sample: &Sample| (file(sample).map(std::sync::Arc::as_ptr), sample.offset);
        order.sort_by_key(|at| place(&samples[*at]));
        let end = |sample: &Sample| sample.offset.saturating_add(sample.size.into());
        let mut read = vec![Bytes::new(); samples.len()];
        let mut rest = &order[..];
        while let Some((&first, _)) = rest.split_first() {
            let start = samples[first].offset;
            let mut reaches = end(&samples[first]);
            let near = |sample: &Sample, reaches: u64| {
                place(sample).0 == place(&samples[first]).0
                    && sample.offset <= reaches.saturating_add(GAP)
                    && end(sample).saturating_sub(start) <= READ
            };
            let mut count = 1;
            while let Some(next) = rest.get(count).map(|at| &samples[*at])
                && near(next, reaches)
            {
                reaches = reaches.max(end(next));
                count += 1;
            }
            let file = file(&samples[first]).ok_or(io::ErrorKind::InvalidInput)?;
            let len = usize::try_from(reaches - start).map_err(io::Error::other)?;
            let bytes = file.read_at(start, len)?;
            let (these, after) = rest.split_at(count);
            for &at in these {
                // The sample is within the bytes that were read.
                let from = (samples[at].offset - start) as usize;
                read[at] = bytes.slice(from..from + samples[at].size as usize);
            }
            rest = after;
        }
        let with_data = samples.iter().zip(read).map(|(sample, data)| media::Sample {
            dts: sample.dts,
            cts: sample.cts,
            duration: sample.duration,
            sync: sample.sync,
            data,
        });
        Ok(with_data.collect())
    }
}

impl Track {
    /// Number of the first sample in a range that is not `early`, or the range's end. All `early`
    /// samples come before the others.
    fn partition_point(&self, range: &Range<u32>, early: impl Fn(&SampleEntry) -> bool) -> u32 {
        let (mut from, mut to) = (range.start, range.end);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.entry(middle) {
                Some(entry) if early(&entry) => from = middle + 1,
                _ => to = middle,
            }
        }
        from
    }

    /// Number of the first sample decoded at or after `dts`, which is in units of `scale`.
    fn first_from(&self, dts: i64, scale: u32) -> u32 {
        let at = time::rescale_up(dts, scale, self.media.timescale);
        let first = self.rows.first().map_or(self.last, |row| row.first);
        first_from(&self.samples, at).clamp(first, self.last)
    }
}

/// Number of the first sample decoded at or after `dts`, or the number of samples where there is
/// none.
pub(crate) fn first_from(samples: &media::mp4::SampleTable, dts: i64) -> u32 {
    let Some(number) = samples.at_dts(dts) else { return 0 };
    match samples.get(number) {
        Some(sample) if sample.dts < dts => number + 1,
        _ => number,
    }
}

fn sample(track: usize, entry: SampleEntry) -> Sample {
    let SampleEntry { dts, cts, duration, sync, offset, size, description: _ } = entry;
    Sample { track, dts, cts, duration, sync, offset, size }
}

/// The samples of a track that are not listed yet.
struct Cursor {
    position: usize,
    timescale: u32,
    entries: std::iter::Peekable<std::vec::IntoIter<SampleEntry>>,
}

impl Cursor {
    fn new(position: usize, track: &Track, range: Range<u32>) -> Self {
        let entries = track.entries(range).into_iter().peekable();
        Self { position, timescale: track.media.timescale, entries }
    }
}

/// Merges samples by decode time. At equal times, the track that was named first comes first.
fn merge(mut cursors: Vec<Cursor>) -> Vec<Sample> {
    let mut merged = Vec::new();
    loop {
        let mut earliest: Option<(usize, (i64, u32))> = None;
        for (at, cursor) in cursors.iter_mut().enumerate() {
            let Some(next) = cursor.entries.peek() else { continue };
            let when = (next.dts, cursor.timescale);
            if earliest.is_none_or(|(_, first)| time::before(when, first)) {
                earliest = Some((at, when));
            }
        }
        let Some(cursor) = earliest.and_then(|(at, _)| cursors.get_mut(at)) else {
            return merged;
        };
        let Some(entry) = cursor.entries.next() else { return merged };
        merged.push(sample(cursor.position, entry));
    }
}
