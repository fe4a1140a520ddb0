use super::source::{ReadError, Source, read_exact};
use super::{Index, SampleEntry, Samples, limits};
use crate::{Error, Sample};

/// The samples of several tracks in the order of their decode times, each with the position of its
/// track in [`Index::tracks`]. At equal times, the track that was named first comes first. No media
/// is read.
///
/// All samples are listed, also those that an edit list decodes but does not present
/// ([`Edit::presents`](super::Edit::presents)). The first decode time may be below zero.
#[derive(Debug, Clone)]
pub struct Merge<'a> {
    tracks: Vec<Cursor<'a>>,
}

#[derive(Debug, Clone)]
struct Cursor<'a> {
    track: usize,
    timescale: u32,
    next: Option<SampleEntry>,
    rest: Samples<'a>,
}

impl Index {
    /// Merges these tracks (positions in [`tracks`](Self::tracks)) from their first sample on.
    /// Unknown positions are ignored.
    pub fn merge(&self, tracks: impl IntoIterator<Item = usize>) -> Merge<'_> {
        self.merge_from(tracks.into_iter().map(|track| (track, 0)))
    }

    /// Merges tracks, each from a given sample number on.
    pub fn merge_from(&self, tracks: impl IntoIterator<Item = (usize, u32)>) -> Merge<'_> {
        let cursor = |(position, sample): (usize, u32)| {
            let track = self.tracks.get(position)?;
            let mut rest = track.samples.iter_from(sample);
            let next = rest.next();
            Some(Cursor { track: position, timescale: track.track.timescale, next, rest })
        };
        Merge { tracks: tracks.into_iter().filter_map(cursor).collect() }
    }
}

impl Iterator for Merge<'_> {
    type Item = (usize, SampleEntry);

    fn next(&mut self) -> Option<Self::Item> {
        let mut earliest: Option<(usize, i64, u32)> = None;
        for (at, cursor) in self.tracks.iter().enumerate() {
            let Some(SampleEntry { dts, .. }) = cursor.next else { continue };
            // a / b < c / d without rounding: a × d < c × b.
            let earlier = earliest.is_none_or(|(_, time, scale)| {
                i128::from(dts) * i128::from(scale)
                    < i128::from(time) * i128::from(cursor.timescale)
            });
            if earlier {
                earliest = Some((at, dts, cursor.timescale));
            }
        }
        let cursor = self.tracks.get_mut(earliest?.0)?;
        let sample = std::mem::replace(&mut cursor.next, cursor.rest.next())?;
        Some((cursor.track, sample))
    }
}

/// A sample that [`Reader`] read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Position of the track in [`Index::tracks`].
    pub track: usize,
    /// Index into [`TrackIndex::descriptions`](super::TrackIndex::descriptions).
    pub description: u16,
    /// The sample, on the track's presentation timeline.
    pub sample: Sample,
}

/// The samples of several tracks in the order of their decode times, with their bytes, as a
/// publisher sends them. A sample that cannot be read yields an error in its place; the next call
/// continues with the sample after it.
#[derive(Debug, Clone)]
pub struct Reader<'a, S: ?Sized> {
    merge: Merge<'a>,
    source: &'a S,
}

impl<'a, S: Source + ?Sized> Reader<'a, S> {
    /// Creates a reader for the samples in `merge`, which was made from the index of `source`.
    pub fn new(merge: Merge<'a>, source: &'a S) -> Self {
        Self { merge, source }
    }

    fn read(&self, track: usize, entry: SampleEntry) -> Result<Read, ReadError> {
        let SampleEntry { dts, cts, duration, sync, offset, size, description } = entry;
        let len = self.source.len();
        if offset.saturating_add(size.into()) > len {
            let left = len.saturating_sub(offset);
            return Err(Error::cut_off("sample", offset, size.into(), left).into());
        }
        if size > limits::SAMPLE {
            let (value, limit) = (size.into(), limits::SAMPLE.into());
            let what = "sample size".into();
            return Err(Error::Limit { what, at: offset, value, limit }.into());
        }
        let data = read_exact(self.source, offset, size as usize)?;
        Ok(Read { track, description, sample: Sample { dts, cts, duration, sync, data } })
    }
}

impl<S: Source + ?Sized> Iterator for Reader<'_, S> {
    type Item = Result<Read, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (track, entry) = self.merge.next()?;
        Some(self.read(track, entry))
    }
}
