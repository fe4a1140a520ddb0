//! The positions and times of a track's samples, in a few bytes each.
//!
//! A table is a sequence of blocks. A *uniform* block is a run of any number of samples with the
//! same properties (PCM). A *packed* block holds up to 64 samples as variable-length integers,
//! without the fields that are the same for all of them. Each block has its start in file and time,
//! and which of its samples are sync samples. So finding a sample by number or by time takes a
//! binary search and at most 63 rows, and finding a sync sample scans 64-bit masks. A typical H.264
//! sample takes 5 or 6 bytes, an AAC frame 3 or 4.

mod builder;

pub(super) use builder::Builder;

use crate::cmaf::SampleInfo;

/// One sample: its position in the file, and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleEntry {
    /// Decode time on the track's presentation timeline (edit list applied), in its timescale;
    /// see [`SampleTable::lead`].
    pub dts: i64,
    /// Composition time minus decode time, in the track's timescale; not negative in sensible
    /// files.
    pub cts: i32,
    /// Duration in the track's timescale.
    pub duration: u32,
    /// Whether decoding can start here.
    pub sync: bool,
    /// Position of its first byte in the file.
    pub offset: u64,
    /// Size in bytes.
    pub size: u32,
    /// Index into [`TrackIndex::descriptions`](super::TrackIndex::descriptions).
    pub description: u16,
}

impl SampleEntry {
    /// Presentation time in the track's timescale.
    pub fn pts(&self) -> i64 {
        self.dts.saturating_add(i64::from(self.cts))
    }

    /// Position behind its last byte.
    fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.size))
    }
}

impl SampleInfo for SampleEntry {
    fn dts(&self) -> i64 {
        self.dts
    }

    fn cts(&self) -> i32 {
        self.cts
    }

    fn duration(&self) -> u32 {
        self.duration
    }

    fn sync(&self) -> bool {
        self.sync
    }

    fn size(&self) -> usize {
        self.size as usize
    }
}

/// Samples in a packed block: as many as a mask has bits.
const BLOCK: usize = 64;

/// Fields that are the same in all rows of a packed block, and therefore stored once.
mod shared {
    pub(super) const SIZE: u8 = 1;
    /// Each sample lies directly behind the one before.
    pub(super) const CONTIGUOUS: u8 = 2;
    pub(super) const DURATION: u8 = 4;
    pub(super) const CTS: u8 = 8;
}

#[derive(Debug, Clone, Copy)]
struct Block {
    /// Number of the first sample.
    first: u32,
    description: u16,
    dts: i64,
    offset: u64,
    body: Body,
}

#[derive(Debug, Clone, Copy)]
enum Body {
    /// Rows start at `start` in the table's data; bit `n` of `sync` is sample `first + n`.
    Packed {
        start: u32,
        sync: u64,
    },
    Uniform {
        size: u32,
        duration: u32,
        cts: i32,
        sync: bool,
    },
}

/// A track's samples in compact form. Numbers count from 0.
#[derive(Debug, Clone, Default)]
pub struct SampleTable {
    blocks: Vec<Block>,
    data: Vec<u8>,
    count: u32,
    /// Added to every decode time: the edit list's shift minus the lead.
    shift: i64,
    /// Added to every composition offset, so that none is negative.
    lead: u32,
    /// Decode time after the last sample, on the media's own timeline.
    end_dts: i64,
    /// Largest presentation time plus duration, on the media's own timeline.
    end_pts: i64,
    /// Smallest and largest composition offset, 0 included.
    cts_range: (i32, i32),
    /// Position behind the sample that is furthest into the file.
    end_offset: u64,
}

impl SampleTable {
    /// How many samples there are.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of memory the table holds.
    pub fn memory(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.data.capacity()
    }

    /// How much earlier decode times are than in the file, in the track's timescale. Files may use
    /// negative composition offsets (`ctts` and `trun` of version 1), by which frames would be
    /// presented before they are decoded. Then all decode times are moved ahead by the largest of
    /// these offsets. Presentation times are not affected.
    pub fn lead(&self) -> u32 {
        self.lead
    }

    /// When the presentation of the last sample ends, on the presentation timeline.
    pub fn end_pts(&self) -> i64 {
        self.end_pts.saturating_add(self.shift).saturating_add(i64::from(self.lead))
    }

    /// When the decoding of the last sample ends, on the presentation timeline.
    pub fn end_dts(&self) -> i64 {
        self.end_dts.saturating_add(self.shift)
    }

    /// Position behind the sample that is furthest into the file.
    pub fn end_offset(&self) -> u64 {
        self.end_offset
    }

    /// All samples in decode order.
    pub fn iter(&self) -> Samples<'_> {
        self.iter_from(0)
    }

    /// The samples from number `sample` on, in decode order. Costs a binary search and at most 63
    /// rows.
    pub fn iter_from(&self, sample: u32) -> Samples<'_> {
        let block = self.blocks.partition_point(|block| block.first <= sample).saturating_sub(1);
        let mut samples = Samples { table: self, number: self.count, block, rows: Rows::default() };
        let Some(start) = self.blocks.get(block).filter(|_| sample < self.count) else {
            return samples;
        };
        samples.number = start.first;
        samples.rows = Rows::open(self, start);
        match start.body {
            Body::Uniform { size, duration, .. } => {
                let skip = sample - start.first;
                samples.number = sample;
                samples.rows.dts = samples.rows.dts.saturating_add(times(skip, duration));
                samples.rows.end =
                    samples.rows.end.saturating_add(u64::from(skip) * u64::from(size));
            }
            Body::Packed { .. } => while samples.number < sample && samples.next().is_some() {},
        }
        samples
    }

    /// One sample by its number.
    pub fn get(&self, sample: u32) -> Option<SampleEntry> {
        self.iter_from(sample).next()
    }

    /// The last sample that is decoded at or before `dts`, or the first sample where all come
    /// later. Where decode times run backwards (broken fragments), several samples qualify and one
    /// of them is returned.
    pub fn at_dts(&self, dts: i64) -> Option<u32> {
        let dts = dts.saturating_sub(self.shift);
        let block = self.blocks.partition_point(|block| block.dts <= dts).saturating_sub(1);
        let start = self.blocks.get(block)?;
        if let Body::Uniform { duration, .. } = start.body {
            let within = self.block_len(block) - 1;
            let skip = dts.saturating_sub(start.dts).max(0).checked_div(i64::from(duration));
            let skip = skip.map_or(within, |skip| u32::try_from(skip).unwrap_or(u32::MAX));
            return Some(start.first + skip.min(within));
        }
        let shifted = dts.saturating_add(self.shift);
        let later = self
            .iter_from(start.first)
            .take(self.block_len(block) as usize)
            .take_while(|sample| sample.dts <= shifted)
            .count();
        Some(start.first + (later as u32).saturating_sub(1))
    }

    /// The last sync sample at or before number `sample`.
    pub fn sync_at_or_before(&self, sample: u32) -> Option<u32> {
        let sample = sample.min(self.count.checked_sub(1)?);
        let last = self.blocks.partition_point(|block| block.first <= sample);
        self.blocks[..last].iter().rev().find_map(|block| match block.body {
            Body::Uniform { sync, .. } => sync.then(|| {
                // In the sample's own block the sample itself; in an earlier block its last sample.
                self.last_of(block).min(sample)
            }),
            Body::Packed { sync, .. } => {
                let bits = (sample - block.first).min(BLOCK as u32 - 1);
                let mask = sync & (u64::MAX >> (63 - bits));
                mask.checked_ilog2().map(|bit| block.first + bit)
            }
        })
    }

    /// The first sync sample at or after number `sample`.
    pub fn sync_at_or_after(&self, sample: u32) -> Option<u32> {
        if sample >= self.count {
            return None;
        }
        let first = self.blocks.partition_point(|block| block.first <= sample).saturating_sub(1);
        self.blocks.get(first..)?.iter().find_map(|block| match block.body {
            Body::Uniform { sync, .. } => sync.then(|| block.first.max(sample)),
            Body::Packed { sync, .. } => {
                let skip = sample.saturating_sub(block.first).min(BLOCK as u32 - 1);
                let mask = sync & (u64::MAX << skip);
                (mask != 0).then(|| block.first + mask.trailing_zeros())
            }
        })
    }

    /// How many sync samples there are.
    pub fn sync_count(&self) -> u32 {
        (0..self.blocks.len())
            .map(|block| match self.blocks[block].body {
                Body::Uniform { sync, .. } => u32::from(sync) * self.block_len(block),
                Body::Packed { sync, .. } => sync.count_ones(),
            })
            .sum()
    }

    /// Number of samples in block `block`, which must exist.
    fn block_len(&self, block: usize) -> u32 {
        let end = self.blocks.get(block + 1).map_or(self.count, |next| next.first);
        end - self.blocks[block].first
    }

    /// Number of the last sample of a block.
    fn last_of(&self, block: &Block) -> u32 {
        let next = self.blocks.partition_point(|other| other.first <= block.first);
        self.blocks.get(next).map_or(self.count, |next| next.first) - 1
    }
}

fn times(count: u32, each: u32) -> i64 {
    i64::try_from(u64::from(count) * u64::from(each)).unwrap_or(i64::MAX)
}

/// A packed block that is being read.
#[derive(Debug, Clone, Copy, Default)]
struct Rows {
    /// Position of the next row in the table's data.
    at: usize,
    shared: u8,
    size: u32,
    duration: u32,
    /// The composition offset that all rows share, or the unit of the rows' offsets.
    cts: i64,
    /// Decode time of the next sample.
    dts: i64,
    /// Position behind the previous sample.
    end: u64,
}

impl Rows {
    fn open(table: &SampleTable, block: &Block) -> Self {
        let mut rows = Self { dts: block.dts, end: block.offset, ..Self::default() };
        if let Body::Packed { start, .. } = block.body {
            rows.at = start as usize;
            rows.shared = table.data.get(rows.at).copied().unwrap_or_default();
            rows.at += 1;
            if rows.shared & shared::SIZE != 0 {
                rows.size = unsigned(&table.data, &mut rows.at) as u32;
            }
            if rows.shared & shared::DURATION != 0 {
                rows.duration = unsigned(&table.data, &mut rows.at) as u32;
            }
            rows.cts = signed(&table.data, &mut rows.at);
        }
        rows
    }
}

/// Iterator over a [`SampleTable`].
#[derive(Debug, Clone)]
pub struct Samples<'a> {
    table: &'a SampleTable,
    /// Number of the next sample.
    number: u32,
    block: usize,
    rows: Rows,
}

impl Iterator for Samples<'_> {
    type Item = SampleEntry;

    fn next(&mut self) -> Option<SampleEntry> {
        if self.number >= self.table.count {
            return None;
        }
        if let Some(next) = self.table.blocks.get(self.block + 1)
            && next.first <= self.number
        {
            self.block += 1;
            self.rows = Rows::open(self.table, next);
        }
        let block = self.table.blocks.get(self.block)?;
        let rows = &mut self.rows;
        let (size, duration, cts, sync) = match block.body {
            Body::Uniform { size, duration, cts, sync } => (size, duration, cts, sync),
            Body::Packed { sync, .. } => {
                let data = &self.table.data;
                if rows.shared & shared::SIZE == 0 {
                    rows.size = unsigned(data, &mut rows.at) as u32;
                }
                if rows.shared & shared::CONTIGUOUS == 0 {
                    let gap = signed(data, &mut rows.at);
                    rows.end = rows.end.wrapping_add_signed(gap);
                }
                if rows.shared & shared::DURATION == 0 {
                    rows.duration = unsigned(data, &mut rows.at) as u32;
                }
                let cts = if rows.shared & shared::CTS == 0 {
                    signed(data, &mut rows.at) * rows.cts
                } else {
                    rows.cts
                };
                let bit = (self.number - block.first) & 63;
                (rows.size, rows.duration, cts as i32, sync >> bit & 1 == 1)
            }
        };
        let sample = SampleEntry {
            dts: rows.dts.saturating_add(self.table.shift),
            cts: cts.saturating_add_unsigned(self.table.lead),
            duration,
            sync,
            offset: rows.end,
            size,
            description: block.description,
        };
        rows.end = rows.end.saturating_add(u64::from(size));
        rows.dts = rows.dts.saturating_add(i64::from(duration));
        self.number += 1;
        Some(sample)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.table.count - self.number) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Samples<'_> {}

impl<'a> IntoIterator for &'a SampleTable {
    type Item = SampleEntry;
    type IntoIter = Samples<'a>;

    fn into_iter(self) -> Samples<'a> {
        self.iter()
    }
}

fn unsigned(data: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    let mut shift = 0;
    while let Some(&byte) = data.get(*at) {
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 63 {
            break;
        }
    }
    value
}

fn signed(data: &[u8], at: &mut usize) -> i64 {
    let value = unsigned(data, at);
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}
