//! Builds a sample table.

use super::{BLOCK, Block, Body, SampleEntry, SampleTable, shared, times};
use crate::Error;

/// From this many equal samples on, a uniform block is smaller than rows.
const UNIFORM: u32 = 16;

/// Builds a [`SampleTable`], run by run.
#[derive(Debug)]
pub(in crate::mp4) struct Builder {
    table: SampleTable,
    pending: Vec<SampleEntry>,
    /// The most bytes of memory for the table.
    budget: usize,
    /// The most samples for the table.
    limit: u64,
}

impl Builder {
    /// `limit` is the most samples that a file of this size can have.
    pub(in crate::mp4) fn new(budget: usize, limit: u64) -> Self {
        let limit = limit.min(u64::from(u32::MAX));
        Self { table: SampleTable::default(), pending: Vec::with_capacity(BLOCK), budget, limit }
    }

    /// Decode time after the last sample.
    pub(in crate::mp4) fn end_dts(&self) -> i64 {
        self.table.end_dts
    }

    /// Bytes of memory for the samples so far.
    pub(in crate::mp4) fn memory(&self) -> usize {
        self.table.blocks.len() * size_of::<Block>() + self.table.data.len()
    }

    /// Refuses more samples than the file can have. `at` is the position of their count, in the box
    /// `name`.
    pub(in crate::mp4) fn check(
        &self,
        count: u64,
        (name, at): (&'static str, u64),
    ) -> Result<(), Error> {
        let (value, limit) = (u64::from(self.table.count) + count, self.limit);
        if value <= limit {
            return Ok(());
        }
        Err(Error::Limit { what: format!("{name}: sample count").into(), at, value, limit })
    }

    /// Adds `count` equal samples that follow each other in the file and in time. `at` and `name`
    /// as for [`check`](Self::check).
    pub(in crate::mp4) fn push(
        &mut self,
        sample: SampleEntry,
        count: u32,
        (name, at): (&'static str, u64),
    ) -> Result<(), Error> {
        let Some(last) = count.checked_sub(1) else { return Ok(()) };
        self.check(count.into(), (name, at))?;
        let overflow = || Error::malformed(format!("{name}: time overflows 64 bits"), at);
        let last_dts = sample.dts.checked_add(times(last, sample.duration)).ok_or_else(overflow)?;
        let end_dts = last_dts.checked_add(i64::from(sample.duration)).ok_or_else(overflow)?;
        let end_pts = end_dts.checked_add(i64::from(sample.cts)).ok_or_else(overflow)?;
        let bytes = u64::from(last) * u64::from(sample.size);
        let end_offset = sample
            .offset
            .checked_add(bytes)
            .and_then(|offset| offset.checked_add(u64::from(sample.size)))
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| Error::malformed(format!("{name}: offset overflows 63 bits"), at))?;

        if count >= UNIFORM {
            self.flush();
            self.uniform(sample);
            self.table.count += count;
        } else {
            let mut sample = sample;
            for _ in 0..count {
                let breaks = self.pending.last().is_some_and(|last| {
                    self.pending.len() == BLOCK
                        || last.description != sample.description
                        || last.dts + i64::from(last.duration) != sample.dts
                });
                if breaks {
                    self.flush();
                }
                self.pending.push(sample);
                self.table.count += 1;
                sample.dts += i64::from(sample.duration);
                sample.offset = sample.end();
            }
        }
        self.table.end_dts = end_dts;
        self.table.end_pts = self.table.end_pts.max(end_pts);
        let (least, most) = self.table.cts_range;
        self.table.cts_range = (least.min(sample.cts), most.max(sample.cts));
        self.table.end_offset = self.table.end_offset.max(end_offset);
        let used = self.memory();
        if used > self.budget {
            let (value, limit) = (used as u64, self.budget as u64);
            return Err(Error::Limit { what: format!("{name}: index").into(), at, value, limit });
        }
        Ok(())
    }

    /// Adds a uniform block, or lengthens the previous one. The caller updates the count.
    fn uniform(&mut self, sample: SampleEntry) {
        let SampleEntry { size, duration, cts, sync, .. } = sample;
        if let Some(last) = self.table.blocks.last()
            && let Body::Uniform { size: s, duration: d, cts: c, sync: y } = last.body
            && (s, d, c, y, last.description) == (size, duration, cts, sync, sample.description)
        {
            let held = self.table.count - last.first;
            let end = last.offset + u64::from(held) * u64::from(size);
            if end == sample.offset && last.dts.checked_add(times(held, d)) == Some(sample.dts) {
                return;
            }
        }
        self.table.blocks.push(Block {
            first: self.table.count,
            description: sample.description,
            dts: sample.dts,
            offset: sample.offset,
            body: Body::Uniform { size, duration, cts, sync },
        });
    }

    /// Writes the pending samples as a packed block.
    fn flush(&mut self) {
        let Some(&first) = self.pending.first() else { return };
        let data = &mut self.table.data;
        let start = data.len();
        let mut flags = shared::SIZE | shared::CONTIGUOUS | shared::DURATION | shared::CTS;
        let mut unit = 0u32;
        let mut sync = 0u64;
        let mut end = first.offset;
        for (bit, sample) in self.pending.iter().enumerate() {
            sync |= u64::from(sample.sync) << bit;
            let mut differs = |differs: bool, flag: u8| {
                if differs {
                    flags &= !flag;
                }
            };
            differs(sample.size != first.size, shared::SIZE);
            differs(sample.offset != end, shared::CONTIGUOUS);
            differs(sample.duration != first.duration, shared::DURATION);
            differs(sample.cts != first.cts, shared::CTS);
            end = sample.end();
            unit = common_divisor(unit, sample.cts.unsigned_abs());
        }
        data.push(flags);
        if flags & shared::SIZE != 0 {
            write_unsigned(data, u64::from(first.size));
        }
        if flags & shared::DURATION != 0 {
            write_unsigned(data, u64::from(first.duration));
        }
        let unit = i64::from(unit.max(1));
        write_signed(data, if flags & shared::CTS != 0 { first.cts.into() } else { unit });
        end = first.offset;
        for sample in &self.pending {
            if flags & shared::SIZE == 0 {
                write_unsigned(data, u64::from(sample.size));
            }
            if flags & shared::CONTIGUOUS == 0 {
                write_signed(data, sample.offset.wrapping_sub(end).cast_signed());
            }
            if flags & shared::DURATION == 0 {
                write_unsigned(data, u64::from(sample.duration));
            }
            if flags & shared::CTS == 0 {
                write_signed(data, i64::from(sample.cts) / unit);
            }
            end = sample.end();
        }
        self.table.blocks.push(Block {
            first: self.table.count - self.pending.len() as u32,
            description: first.description,
            dts: first.dts,
            offset: first.offset,
            // The budget keeps the data far below 4 GiB.
            body: Body::Packed { start: start as u32, sync },
        });
        self.pending.clear();
    }

    /// The finished table. Its presentation timeline is `shift` later than the media's own.
    pub(in crate::mp4) fn finish(mut self, shift: i64) -> SampleTable {
        self.flush();
        let (least, most) = self.table.cts_range;
        // Offsets too far apart are invalid, and stay as they are.
        if most.checked_add_unsigned(least.unsigned_abs()).is_some() {
            self.table.lead = least.unsigned_abs();
        }
        self.table.shift = shift.saturating_sub(i64::from(self.table.lead));
        self.table.blocks.shrink_to_fit();
        self.table.data.shrink_to_fit();
        self.table
    }
}

/// Greatest common divisor; 0 has every divisor.
fn common_divisor(mut a: u32, mut b: u32) -> u32 {
    if a != 0 && b.is_multiple_of(a) {
        return a;
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn write_unsigned(data: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        data.push(value as u8 | 0x80);
        value >>= 7;
    }
    data.push(value as u8);
}

/// Writes a number so that small magnitudes of either sign take few bytes.
fn write_signed(data: &mut Vec<u8>, value: i64) {
    write_unsigned(data, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A run as [`Builder::push`] takes it: a count, a sample, and its position and time relative
    /// to the end of the run before.
    fn run() -> impl Strategy<Value = (u32, SampleEntry, i64, i64)> {
        let count = prop_oneof![4 => 1..4u32, 1 => 10..200u32];
        let size = prop_oneof![Just(0), Just(100), 0..300_000u32, Just(u32::MAX)];
        let duration = prop_oneof![4 => Just(512), 1 => 0..100_000u32];
        let cts =
            prop_oneof![2 => Just(0), 4 => (-5..20i32).prop_map(|n| n * 512), 1 => any::<i32>()];
        let offset = prop_oneof![3 => Just(0), 2 => 0..100_000i64, 1 => -1_000_000..1_000_000i64];
        let time = prop_oneof![9 => Just(0), 1 => -100_000..100_000i64];
        let description = prop_oneof![9 => Just(0), 1 => 0..3u16];
        (count, size, duration, cts, any::<bool>(), description, offset, time).prop_map(
            |(count, size, duration, cts, sync, description, offset, time)| {
                let sample =
                    SampleEntry { dts: 0, cts, duration, sync, offset: 0, size, description };
                (count, sample, offset, time)
            },
        )
    }

    proptest! {
        #[test]
        fn a_table_gives_back_what_was_put_in(
            runs in prop::collection::vec(run(), 0..60),
            shift in -1_000_000..1_000_000i64,
        ) {
            let mut builder = Builder::new(usize::MAX, u64::MAX);
            let mut expected: Vec<SampleEntry> = Vec::new();
            let mut offset = 1i64 << 40;
            for (count, sample, gap, jump) in runs {
                offset += gap;
                let dts = builder.end_dts() + jump;
                let mut sample = SampleEntry { dts, offset: offset as u64, ..sample };
                builder.push(sample, count, ("trun", 0)).unwrap();
                for _ in 0..count {
                    expected.push(sample);
                    sample.dts += i64::from(sample.duration);
                    sample.offset += u64::from(sample.size);
                }
                offset = sample.offset as i64;
            }
            let table = builder.finish(shift);
            let lead = table.lead();
            for sample in &mut expected {
                sample.dts += shift - i64::from(lead);
                sample.cts = sample.cts.saturating_add_unsigned(lead);
                prop_assert!(lead == 0 || sample.cts >= 0);
            }
            prop_assert_eq!(table.iter().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(table.iter().len(), expected.len());
            for (number, sample) in expected.iter().enumerate() {
                let at = number as u32;
                prop_assert_eq!(table.get(at), Some(*sample));
                let before = (0..=number).rev().find(|n| expected[*n].sync).map(|n| n as u32);
                prop_assert_eq!(table.sync_at_or_before(at), before);
                let after = (number..expected.len()).find(|n| expected[*n].sync);
                prop_assert_eq!(table.sync_at_or_after(at), after.map(|n| n as u32));
            }
            // Where decode times never run back, a time finds the last sample at or before it.
            if expected.is_sorted_by_key(|sample| sample.dts) {
                for sample in expected.iter().step_by(7) {
                    for time in [sample.dts, sample.dts + 1, sample.dts - 1] {
                        let found = expected.partition_point(|sample| sample.dts <= time);
                        let found = found.saturating_sub(1) as u32;
                        prop_assert_eq!(table.at_dts(time), Some(found));
                    }
                }
            }
        }
    }
}
