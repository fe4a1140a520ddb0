use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use media::cmaf::{self, ChunkInfo, SegmentStart};
use media::mp4::{SampleEntry, SampleTable};
use payload::{OpenFile, Piece};

use crate::bandwidth::{Bandwidth, FrameRate};
use crate::lead::Lead;
use crate::piece::ranges;
use crate::time;

/// A track of a title, cut into segments. Its times are *stream times*: presentation times of the
/// title plus its [`Shift`](crate::Shift), in the track's timescale.
#[derive(Debug)]
pub struct Track {
    /// `v0`, `v1` and so on from the highest bitrate to the lowest; `a0`, `a1` and so on in the
    /// order of the files.
    pub name: String,
    /// Codec, timescale and language. The track_ID is that of the title, not of the file.
    pub media: media::Track,
    /// RFC 5646 tag of the language, where the file names it.
    pub language: Option<String>,
    /// Name for viewers, unique among the tracks of its kind.
    pub label: String,
    /// Whether this is the default track of its kind.
    pub default: bool,
    /// Whether this is another view from the same file than the video before it, and not a
    /// rendition. Players must not switch between the two by themselves.
    pub alternate: bool,
    /// Bit rates in bits per second.
    pub bandwidth: Bandwidth,
    /// Frames per second, for video.
    pub frame_rate: Option<FrameRate>,
    /// Highest bit rate of an I-frame over the time that it stands for, in bits per second; 0 where
    /// there are none.
    pub iframe_bandwidth: u64,
    /// Path of its file below the root.
    pub source: String,
    pub(crate) header: Bytes,
    /// How frames are shown.
    pub(crate) display: cmaf::Display,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) samples: SampleTable,
    /// The samples that are only decoded, and not meant to be seen.
    pub(crate) lead: Option<Lead>,
    /// Offset from the table's times to stream time.
    pub(crate) shift: i64,
    /// Stream time of presentation time 0.
    pub(crate) origin: i64,
    /// Duration of the table's last sample where the file gives none.
    pub(crate) tail: u32,
    pub(crate) rows: Vec<Row>,
    /// Number of the sample behind the last one.
    pub(crate) last: u32,
    /// Stream time of the end of its presentation.
    pub(crate) end: i64,
    pub(crate) iframes: Vec<u32>,
}

/// The record of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Number of its first sample.
    pub(crate) first: u32,
    /// Size in bytes; a chunk is smaller than 4 GiB.
    pub(crate) bytes: u32,
    /// Presentation time of its first sample.
    pub(crate) start: i64,
}

/// A segment, or an I-frame that stands for a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Stream time of its first sample's presentation, in the track's timescale.
    pub start: i64,
    /// Time until the start of the next one, in the track's timescale.
    pub duration: u64,
    /// Size in bytes, including its header.
    pub bytes: u64,
}

impl Track {
    /// The CMAF header: `ftyp` and `moov`.
    pub fn header(&self) -> Bytes {
        self.header.clone()
    }

    /// Displayed size in pixels, for video.
    pub fn resolution(&self) -> Option<(u32, u32)> {
        let (width, height) = self.media.codec.resolution()?;
        // Rotated by a quarter turn in either direction.
        let sideways = self.display.matrix[0] == 0 && self.display.matrix[4] == 0;
        Some(if sideways { (height, width) } else { (width, height) })
    }

    /// The file that holds its samples.
    pub fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// Stream time of the end of its presentation, in its timescale.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Number of segments. They are numbered from 0.
    pub fn segment_count(&self) -> u32 {
        self.rows.len() as u32
    }

    /// All segments in order.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + '_ {
        let ends = self.rows.iter().skip(1).map(|row| row.start).chain([self.end]);
        // There are as many ends as rows.
        let mut ends = ends;
        self.rows.iter().map(move |row| {
            let end = ends.next().unwrap_or(self.end);
            Segment {
                start: row.start,
                duration: u64::try_from(end.saturating_sub(row.start)).unwrap_or_default(),
                bytes: row.bytes.into(),
            }
        })
    }

    /// Times and size of segment `n`.
    pub fn timing(&self, n: u32) -> Option<Segment> {
        let row = self.rows.get(n as usize)?;
        let end = self.rows.get(n as usize + 1).map_or(self.end, |next| next.start);
        Some(Segment {
            start: row.start,
            duration: u64::try_from(end.saturating_sub(row.start)).unwrap_or_default(),
            bytes: row.bytes.into(),
        })
    }

    /// Number of the segment that contains this presentation time of the title: the first segment
    /// if the track begins later, the last one if it ends earlier.
    pub fn segment_at(&self, time: Duration) -> u32 {
        let at = time::ticks(time, self.media.timescale).saturating_add(self.origin);
        let after = self.rows.partition_point(|row| row.start <= at);
        after.saturating_sub(1) as u32
    }

    /// Stream time at which decoding must begin to present this time of the title: the decode time
    /// of the last sync sample that is presented at or before it, or of the first sync sample.
    pub fn sync_at(&self, time: Duration) -> i64 {
        let at = time::ticks(time, self.media.timescale).saturating_add(self.origin);
        let at = at.saturating_sub(self.shift);
        let first = self.rows.first().map_or(0, |row| row.first);
        let mut number = self.samples.at_dts(at).unwrap_or(first).clamp(first, self.last);
        let sync = loop {
            let Some(sync) = self.samples.sync_at_or_before(number).filter(|at| *at > first) else {
                break first;
            };
            match self.samples.get(sync) {
                Some(sample) if sample.pts() > at => number = sync - 1,
                _ => break sync,
            }
        };
        self.entry(sync).map_or(0, |sample| sample.dts)
    }

    /// Segment `n`: `styp`, `moof` and the header of `mdat` as bytes, and its samples as ranges of
    /// the file. Nothing is read.
    pub fn segment(&self, n: u32) -> Option<Vec<Piece>> {
        let samples = self.entries(self.range(n)?);
        self.pieces(n, &samples)
    }

    /// Number of I-frames. They are numbered from 0, and at least half a second apart, because
    /// trick play does not need more.
    pub fn iframe_count(&self) -> u32 {
        self.iframes.len() as u32
    }

    /// All I-frames in order, as segments; empty for audio.
    pub fn iframes(&self) -> impl Iterator<Item = Segment> + '_ {
        let mut numbers = self.iframes.iter();
        let mut next = numbers.next().and_then(|number| self.entry(*number));
        let mut head = Vec::new();
        (0..self.iframe_count()).filter_map(move |n| {
            let first = next.take()?;
            next = numbers.next().and_then(|number| self.entry(*number));
            let sample = self.until(first, next);
            head.clear();
            let layout = self.head(&mut head, n, &[sample])?;
            let bytes = layout.len as u64;
            Some(Segment { start: sample.pts(), duration: sample.duration.into(), bytes })
        })
    }

    /// I-frame `n` as a segment of its own, which lasts until the next I-frame.
    pub fn iframe(&self, n: u32) -> Option<Vec<Piece>> {
        let sample = self.iframe_entry(n)?;
        self.pieces(n, &[sample])
    }

    fn iframe_entry(&self, n: u32) -> Option<SampleEntry> {
        let n = n as usize;
        let next = self.iframes.get(n + 1).and_then(|next| self.entry(*next));
        Some(self.until(self.entry(*self.iframes.get(n)?)?, next))
    }

    /// The sample with a duration until `next` is presented, or until the end.
    fn until(&self, sample: SampleEntry, next: Option<SampleEntry>) -> SampleEntry {
        let end = next.map_or(self.end, |next| next.pts());
        let duration = u32::try_from(end.saturating_sub(sample.pts())).unwrap_or(sample.duration);
        SampleEntry { duration, ..sample }
    }

    pub(crate) fn entry(&self, number: u32) -> Option<SampleEntry> {
        self.samples.get(number).map(|sample| self.in_stream(number, sample))
    }

    /// A sample of the table in stream time.
    fn in_stream(&self, number: u32, mut sample: SampleEntry) -> SampleEntry {
        if let Some(lead) = &self.lead {
            lead.place(number, &mut sample);
        }
        sample.dts = sample.dts.saturating_add(self.shift);
        if sample.duration == 0 && number.saturating_add(1) == self.samples.len() {
            sample.duration = self.tail;
        }
        sample
    }

    /// Numbers of a segment's samples.
    pub(crate) fn range(&self, n: u32) -> Option<Range<u32>> {
        let row = self.rows.get(n as usize)?;
        let next = self.rows.get(n as usize + 1);
        Some(row.first..next.map_or(self.last, |next| next.first))
    }

    /// Samples by their numbers, in stream time.
    pub(crate) fn entries(&self, range: Range<u32>) -> Vec<SampleEntry> {
        let mut entries = Vec::new();
        self.entries_into(range, &mut entries);
        entries
    }

    pub(crate) fn entries_into(&self, range: Range<u32>, entries: &mut Vec<SampleEntry>) {
        let samples = range.clone().zip(self.samples.iter_from(range.start));
        entries.extend(samples.map(|(number, sample)| self.in_stream(number, sample)));
    }

    fn head(&self, head: &mut Vec<u8>, n: u32, samples: &[SampleEntry]) -> Option<cmaf::Layout> {
        // Every segment was written once when the title was made, so it can be written.
        write_head(head, self.media.id, n, samples).ok()
    }

    fn pieces(&self, n: u32, samples: &[SampleEntry]) -> Option<Vec<Piece>> {
        let mut head = Vec::new();
        self.head(&mut head, n, samples)?;
        let mut pieces = vec![Piece::Bytes(head.into())];
        pieces.extend(ranges(&self.file, samples));
        Some(pieces)
    }
}

/// Appends segment `n` without its samples' data.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    track_id: u32,
    n: u32,
    samples: &[SampleEntry],
) -> Result<cmaf::Layout, media::Error> {
    let info = ChunkInfo {
        track_id,
        // Sequence numbers start at 1, ISO/IEC 14496-12 8.8.5.
        sequence_number: n.wrapping_add(1),
        segment_start: Some(SegmentStart::default()),
    };
    cmaf::write_chunk_head(out, &info, samples)
}
