//! MP4 files that ffmpeg can read but cannot write.

use std::process::Command;
use std::time::Duration;

use crate::{Program, clip};

/// H.264 frames in the form of an MP4 track. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct Avc {
    /// Decoder configuration records (ISO/IEC 14496-15 5.3.3.1), at least one. Each sample uses one
    /// of them.
    pub records: Vec<Vec<u8>>,
    /// The samples in decode order.
    pub samples: Vec<Video>,
}

/// A coded frame.
#[derive(Debug, Clone)]
pub struct Video {
    /// Decode time.
    pub dts: i64,
    /// How much later it is shown than decoded.
    pub cts: i32,
    /// Whether decoding can start with it.
    pub is_key: bool,
    /// Index of its record.
    pub record: usize,
    /// NAL units, each preceded by its length.
    pub data: Vec<u8>,
}

impl Avc {
    /// The frames of a generated clip. ffmpeg writes them as FLV, whose tags contain the same bytes
    /// as MP4 samples.
    ///
    /// # Panics
    /// The clip has no H.264 frames.
    pub fn of(name: &str) -> Self {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error", "-i"]).arg(clip(name));
        command.args(["-an", "-c", "copy", "-f", "flv", "-"]);
        let flv = Program::output(&mut command, Duration::from_secs(60));
        let (mut records, mut samples) = (Vec::new(), Vec::new());
        // Skips the header, and the length before the first tag.
        let mut rest = &flv[9 + 4..];
        while let [kind, a, b, c, t0, t1, t2, t3, _, _, _, after @ ..] = rest {
            let (payload, others) = after.split_at(u32::from_be_bytes([0, *a, *b, *c]) as usize);
            rest = &others[4..];
            // A video tag with AVC: a configuration, or NAL units.
            match payload {
                [_, 0, _, _, _, record @ ..] if *kind == 9 => records.push(record.to_vec()),
                [frame, 1, x, y, z, data @ ..] if *kind == 9 => samples.push(Video {
                    dts: u32::from_be_bytes([*t3, *t0, *t1, *t2]).into(),
                    cts: i32::from_be_bytes([*x, *y, *z, 0]) >> 8,
                    is_key: frame >> 4 == 1,
                    record: 0,
                    data: data.to_vec(),
                }),
                _ => {}
            }
        }
        assert!(records.len() == 1 && !samples.is_empty(), "{name} is not H.264");
        Self { records, samples }
    }

    /// The same frames, with the lengths of NAL units in two bytes instead of four.
    ///
    /// # Panics
    /// A NAL unit is too long for that.
    #[must_use]
    pub fn with_two_byte_lengths(mut self) -> Self {
        for record in &mut self.records {
            // lengthSizeMinusOne
            record[4] = record[4] & !3 | 1;
        }
        for sample in &mut self.samples {
            let mut short = Vec::with_capacity(sample.data.len());
            let mut rest = &sample.data[..];
            while let Some((length, after)) = rest.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length);
                short.extend(u16::try_from(length).expect("a short NAL unit").to_be_bytes());
                let (unit, after) = after.split_at(length as usize);
                short.extend_from_slice(unit);
                rest = after;
            }
            sample.data = short;
        }
        self
    }

    /// These frames, followed by those of another clip, which use its records.
    #[must_use]
    pub fn followed_by(mut self, other: &Self) -> Self {
        let first = self.records.len();
        let end = self.samples.last().map_or(0, |sample| sample.dts + 40);
        self.records.extend(other.records.iter().cloned());
        self.samples.extend(other.samples.iter().map(|sample| Video {
            dts: sample.dts + end,
            record: sample.record + first,
            ..sample.clone()
        }));
        self
    }

    /// A file with this track, and its index at the end.
    pub fn mp4(&self) -> Vec<u8> {
        let mut file = boxed(b"ftyp", &[b"isom\0\0\x02\0isomavc1"]);
        let data = self.samples.iter().flat_map(|sample| sample.data.iter().copied());
        let mdat = boxed(b"mdat", &[&data.collect::<Vec<u8>>()]);
        let mut offset = file.len() as u32 + 8;
        file.extend(mdat);
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
        let table = |kind, rows: Vec<Vec<u32>>| {
            full(kind, 0, &[&words(&[rows.len() as u32]), &words(&rows.concat())])
        };
        let count = self.samples.len() as u32;
        let sizes: Vec<u32> = self.samples.iter().map(|sample| sample.data.len() as u32).collect();
        let durations = self.samples.windows(2).map(|pair| (pair[1].dts - pair[0].dts) as u32);
        let durations: Vec<u32> = durations.chain([40]).collect();
        let total: u32 = durations.iter().sum();
        let cts = self.samples.iter().map(|sample| vec![1, sample.cts as u32]);
        let keys = (1..).zip(&self.samples).filter(|(_, sample)| sample.is_key);
        // One sample per chunk, and a row wherever the record changes.
        let chunks = (1..).zip(&self.samples).collect::<Vec<_>>();
        let rows = chunks.chunk_by(|(_, a), (_, b)| a.record == b.record);
        let rows = rows.map(|run| vec![run[0].0, 1, run[0].1.record as u32 + 1]);
        let places = sizes.iter().map(|size| {
            let place = offset;
            offset += size;
            vec![place]
        });
        let entries = self.records.iter().flat_map(|record| {
            let mut entry = vec![0; 78];
            // data_reference_index, resolution, frame_count, depth, pre_defined
            entry[7] = 1;
            entry[28..36].copy_from_slice(&[0, 72, 0, 0, 0, 72, 0, 0]);
            entry[41] = 1;
            entry[74..].copy_from_slice(&[0, 24, 0xff, 0xff]);
            boxed(b"avc1", &[&entry, &boxed(b"avcC", &[record])])
        });
        let entries: Vec<u8> = entries.collect();
        let stsd = full(b"stsd", 0, &[&words(&[self.records.len() as u32]), &entries]);
        let stbl = [
            stsd,
            table(b"stts", durations.iter().map(|duration| vec![1, *duration]).collect()),
            table(b"ctts", cts.collect()),
            table(b"stss", keys.map(|(number, _)| vec![number]).collect()),
            table(b"stsc", rows.collect()),
            full(b"stsz", 0, &[&words(&[0, count]), &words(&sizes)]),
            table(b"stco", places.collect()),
        ];
        let matrix = words(&[1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30]);
        let dref = full(b"dref", 0, &[&words(&[1]), &full(b"url ", 1, &[])]);
        let minf = [
            full(b"vmhd", 1, &[&[0; 8]]),
            boxed(b"dinf", &[&dref]),
            boxed(b"stbl", &[&stbl.concat()]),
        ];
        let mdia = [
            full(b"mdhd", 0, &[&words(&[0, 0, 1000, total, 0x55c4 << 16])]),
            full(b"hdlr", 0, &[&words(&[0, u32::from_be_bytes(*b"vide"), 0, 0, 0]), &[0]]),
            boxed(b"minf", &[&minf.concat()]),
        ];
        let tkhd =
            full(b"tkhd", 3, &[&words(&[0, 0, 1, 0, total, 0, 0, 0, 0]), &matrix, &words(&[0, 0])]);
        let trak = boxed(b"trak", &[&tkhd, &boxed(b"mdia", &[&mdia.concat()])]);
        let mvhd = full(
            b"mvhd",
            0,
            &[
                &words(&[0, 0, 1000, total, 1 << 16, 1 << 24, 0, 0]),
                &matrix,
                &[0; 24],
                &words(&[2]),
            ],
        );
        file.extend(boxed(b"moov", &[&mvhd, &trak]));
        file
    }
}

/// A box of this type with this content.
fn boxed(kind: &[u8; 4], content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    [&(content.len() as u32 + 8).to_be_bytes()[..], kind, &content].concat()
}

/// A full box with version 0 and these flags.
fn full(kind: &[u8; 4], flags: u32, content: &[&[u8]]) -> Vec<u8> {
    boxed(kind, &[&flags.to_be_bytes()[..], &content.concat()])
}
