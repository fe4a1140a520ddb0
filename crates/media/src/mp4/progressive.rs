//! Reads sample tables in place and in parallel: `stts`, `ctts`, `stsz`/`stz2`, `stsc`,
//! `stco`/`co64`, `stss` (ISO/IEC 14496-12 8.6.1 and 8.7).

use super::boxes::Body;
use super::table::{Builder, SampleEntry};
use crate::{Codec, Error, Kind};

/// The boxes of a sample table, not yet read.
struct Boxes<'a> {
    stts: Option<Body<'a>>,
    ctts: Option<Body<'a>>,
    stss: Option<Body<'a>>,
    sizes: Option<Body<'a>>,
    stsc: Option<Body<'a>>,
    offsets: Option<Body<'a>>,
}

/// What is known of a track before its sample table is read.
pub(super) struct Described<'a> {
    /// Its kind by its handler.
    pub(super) kind: Kind,
    pub(super) codec: &'a Codec,
    /// How many entries `stsd` has.
    pub(super) descriptions: usize,
}

/// Reads a sample table into `builder`. Where the tables disagree, the samples read before that
/// stay there.
pub(super) fn read(
    stbl: Body,
    Described { kind, codec, descriptions }: Described,
    builder: &mut Builder,
) -> Result<(), Error> {
    let is_all_sync = matches!(codec, Codec::Aac(_) | Codec::Opus(_));
    let mut boxes =
        Boxes { stts: None, ctts: None, stss: None, sizes: None, stsc: None, offsets: None };
    for child in stbl.children() {
        let child = child?;
        let place = match &child.kind {
            b"stts" => &mut boxes.stts,
            b"ctts" => &mut boxes.ctts,
            b"stss" => &mut boxes.stss,
            b"stsz" | b"stz2" => &mut boxes.sizes,
            b"stsc" => &mut boxes.stsc,
            b"stco" | b"co64" => &mut boxes.offsets,
            _ => continue,
        };
        place.get_or_insert(child);
    }
    let missing = |kind| Error::malformed(format!("stbl: no {kind} inside"), stbl.start);
    // A fragmented movie may leave out all of them.
    let Some(sizes) = boxes.sizes else {
        return if boxes.offsets.is_some() { Err(missing("stsz")) } else { Ok(()) };
    };
    let sizes = Sizes::parse(sizes)?;
    if sizes.count == 0 {
        return Ok(());
    }
    builder.check(sizes.count.into(), (sizes.name, sizes.at))?;
    let mut times = Times::parse(boxes.stts.ok_or_else(|| missing("stts"))?)?;
    let mut composition = boxes.ctts.map(Composition::parse).transpose()?;
    // All frames of our audio codecs are sync samples, whatever the table says: some writers list only the first. An empty
    // table is a mistake for any audio, which could not begin without a sync sample.
    let sync = boxes.stss.filter(|_| !is_all_sync).map(Sync::parse).transpose()?;
    let mut sync = sync.filter(|sync| kind != Kind::Audio || !sync.numbers.is_empty());
    let mut chunks = Chunks::parse(boxes.stsc.ok_or_else(|| missing("stsc"))?, descriptions)?;
    let offsets = Offsets::parse(boxes.offsets.ok_or_else(|| missing("stco"))?)?;

    let mut number = 0;
    let mut dts = 0i64;
    'chunks: for chunk in 0..offsets.len() {
        let (in_chunk, description) = chunks.of(chunk)?;
        let mut offset = offsets.get(chunk);
        let mut left = in_chunk;
        while left > 0 {
            let Some(alike) = sizes.count.checked_sub(number).filter(|left| *left > 0) else {
                break 'chunks;
            };
            let (size, alike) = sizes.at(number, alike.min(left))?;
            let (duration, alike) = times.at(alike);
            let (cts, alike) = composition.as_mut().map_or((0, alike), |table| table.at(alike));
            let (sync, alike) =
                sync.as_mut().map_or((true, alike), |table| table.at(number, alike));
            let sample = SampleEntry { dts, cts, duration, sync, offset, size, description };
            builder.push(sample, alike, (sizes.name, sizes.at))?;
            times.advance(alike);
            if let Some(table) = &mut composition {
                table.advance(alike);
            }
            dts = builder.end_dts();
            // Neither the product nor the sum overflows: the builder checked them.
            offset += u64::from(alike) * u64::from(size);
            number += alike;
            left -= alike;
        }
    }
    if number < sizes.count {
        let what = format!("{}: {} samples, chunks for {number} of them", sizes.name, sizes.count);
        return Err(Error::malformed(what, sizes.at));
    }
    Ok(())
}

/// `stsz` and `stz2`, 8.7.3.
struct Sizes<'a> {
    name: &'static str,
    at: u64,
    count: u32,
    each: SizeField<'a>,
}

enum SizeField<'a> {
    Same(u32),
    Bits4(&'a [u8]),
    Bits8(&'a [u8]),
    Bits16(&'a [[u8; 2]]),
    Bits32(&'a [[u8; 4]]),
}

impl<'a> Sizes<'a> {
    fn parse(mut body: Body<'a>) -> Result<Self, Error> {
        let (at, compact) = (body.start, body.kind == *b"stz2");
        let name = if compact { "stz2" } else { "stsz" };
        body.version_flags()?;
        let size = body.u32()?;
        let count = body.u32()?;
        let each = match (compact, size & 0xff) {
            (false, _) if size != 0 => SizeField::Same(size),
            (false, _) => SizeField::Bits32(body.records(count)?),
            (true, 4) => {
                body.records::<1>(count.div_ceil(2))?;
                SizeField::Bits4(body.data)
            }
            (true, 8) => SizeField::Bits8(body.records::<1>(count)?.as_flattened()),
            (true, 16) => SizeField::Bits16(body.records(count)?),
            (true, bits) => {
                return Err(body.malformed(format_args!("field size {bits}")));
            }
        };
        Ok(Self { name, at, count, each })
    }

    /// Size of a sample, and how many of the next `most` samples are known to have the same size.
    fn at(&self, number: u32, most: u32) -> Result<(u32, u32), Error> {
        let index = number as usize;
        let size = match self.each {
            SizeField::Same(size) => return Ok((size, most)),
            SizeField::Bits4(sizes) => sizes
                .get(index / 2)
                .map(|pair| u32::from(if index.is_multiple_of(2) { pair >> 4 } else { pair & 15 })),
            SizeField::Bits8(sizes) => sizes.get(index).copied().map(u32::from),
            SizeField::Bits16(sizes) => {
                sizes.get(index).map(|size| u16::from_be_bytes(*size).into())
            }
            SizeField::Bits32(sizes) => sizes.get(index).map(|size| u32::from_be_bytes(*size)),
        };
        // The table holds as many sizes as it announces, which was checked before.
        let size =
            size.ok_or_else(|| Error::malformed(format!("{}: too short", self.name), self.at))?;
        Ok((size, 1))
    }
}

/// Runs of equal values as (sample count, value) pairs, as in `stts` and `ctts`.
struct Runs<'a> {
    runs: &'a [[u8; 8]],
    left: u32,
    value: u32,
}

impl<'a> Runs<'a> {
    fn new(runs: &'a [[u8; 8]]) -> Self {
        Self { runs, left: 0, value: 0 }
    }

    /// Value for the next sample, and for how many samples it holds; `None` behind the last run.
    fn at(&mut self) -> Option<(u32, u32)> {
        while self.left == 0 {
            let (run, rest) = self.runs.split_first()?;
            let [a, b, c, d, e, f, g, h] = *run;
            self.left = u32::from_be_bytes([a, b, c, d]);
            self.value = u32::from_be_bytes([e, f, g, h]);
            self.runs = rest;
        }
        Some((self.value, self.left))
    }

    fn advance(&mut self, by: u32) {
        self.left = self.left.saturating_sub(by);
    }
}

/// `stts`, 8.6.1.2. Behind its end the last duration continues, as in other readers.
struct Times<'a> {
    runs: Runs<'a>,
}

impl<'a> Times<'a> {
    fn parse(mut body: Body<'a>) -> Result<Self, Error> {
        body.version_flags()?;
        let count = body.u32()?;
        if count == 0 {
            return Err(body.malformed("no durations"));
        }
        Ok(Self { runs: Runs::new(body.records(count)?) })
    }

    fn at(&mut self, most: u32) -> (u32, u32) {
        self.runs.at().map_or((self.runs.value, most), |(value, left)| (value, left.min(most)))
    }

    fn advance(&mut self, by: u32) {
        self.runs.advance(by);
    }
}

/// `ctts`, 8.6.1.3. Version 0 has unsigned offsets, but some files store negative ones in it. An
/// offset beyond 31 bits can only be a negative one. Behind the end of the table offsets are 0.
struct Composition<'a> {
    runs: Runs<'a>,
}

impl<'a> Composition<'a> {
    fn parse(mut body: Body<'a>) -> Result<Self, Error> {
        body.version_flags()?;
        let count = body.u32()?;
        Ok(Self { runs: Runs::new(body.records(count)?) })
    }

    fn at(&mut self, most: u32) -> (i32, u32) {
        self.runs.at().map_or((0, most), |(value, left)| (value.cast_signed(), left.min(most)))
    }

    fn advance(&mut self, by: u32) {
        self.runs.advance(by);
    }
}

/// `stss`, 8.6.2: the numbers of the sync samples, ascending from 1. An empty box means that there
/// are none. A missing box means that all samples are sync samples.
struct Sync<'a> {
    numbers: &'a [[u8; 4]],
}

impl<'a> Sync<'a> {
    fn parse(mut body: Body<'a>) -> Result<Self, Error> {
        body.version_flags()?;
        let count = body.u32()?;
        Ok(Self { numbers: body.records(count)? })
    }

    /// Whether sample `number` (from 0) is a sync sample, and for how many samples the answer
    /// holds.
    fn at(&mut self, number: u32, most: u32) -> (bool, u32) {
        while let Some((next, rest)) = self.numbers.split_first() {
            match u32::from_be_bytes(*next).checked_sub(1) {
                Some(next) if next == number => return (true, 1),
                Some(next) if next > number => return (false, most.min(next - number)),
                _ => self.numbers = rest,
            }
        }
        (false, most)
    }
}

/// `stsc`, 8.7.4.
struct Chunks<'a> {
    at: u64,
    runs: &'a [[u8; 12]],
    descriptions: usize,
    samples: u32,
    description: u16,
}

impl<'a> Chunks<'a> {
    fn parse(mut body: Body<'a>, descriptions: usize) -> Result<Self, Error> {
        body.version_flags()?;
        let count = body.u32()?;
        let runs = body.records(count)?;
        Ok(Self { at: body.start, runs, descriptions, samples: 0, description: 0 })
    }

    /// Number of samples in chunk `chunk` (from 0), and the index of their description. Chunks must
    /// be asked for in order.
    fn of(&mut self, chunk: usize) -> Result<(u32, u16), Error> {
        while let Some((run, rest)) = self.runs.split_first() {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *run;
            let first = u32::from_be_bytes([a, b, c, d]);
            if first as usize > chunk + 1 {
                break;
            }
            self.samples = u32::from_be_bytes([e, f, g, h]);
            let description = u32::from_be_bytes([i, j, k, l]);
            let index = description.wrapping_sub(1);
            self.description = u16::try_from(index)
                .ok()
                .filter(|index| usize::from(*index) < self.descriptions)
                .ok_or_else(|| {
                    let what =
                        format!("stsc: sample description {description} of {}", self.descriptions);
                    Error::malformed(what, self.at)
                })?;
            self.runs = rest;
        }
        Ok((self.samples, self.description))
    }
}

/// `stco` and `co64`, 8.7.5.
enum Offsets<'a> {
    Bits32(&'a [[u8; 4]]),
    Bits64(&'a [[u8; 8]]),
}

impl<'a> Offsets<'a> {
    fn parse(mut body: Body<'a>) -> Result<Self, Error> {
        body.version_flags()?;
        let count = body.u32()?;
        Ok(if body.kind == *b"co64" {
            Self::Bits64(body.records(count)?)
        } else {
            Self::Bits32(body.records(count)?)
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Bits32(offsets) => offsets.len(),
            Self::Bits64(offsets) => offsets.len(),
        }
    }

    fn get(&self, chunk: usize) -> u64 {
        match self {
            Self::Bits32(offsets) => u32::from_be_bytes(offsets[chunk]).into(),
            Self::Bits64(offsets) => u64::from_be_bytes(offsets[chunk]),
        }
    }
}
