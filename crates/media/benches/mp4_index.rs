//! Cost of reading an index (`cargo bench -p media --bench mp4_index`). Prints the memory of each
//! index.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a benchmark is no library, and says what it measured"
)]

use std::hint::black_box;
use std::io;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use media::mp4::{Index, Source};

/// A `moov`, and the length of the media that would follow it.
struct Head {
    moov: Bytes,
    len: u64,
}

impl Source for Head {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut data = vec![0; len];
        // The header of mdat, to the end of the file; the media behind it is never read.
        let whole = self.moov.iter().copied().chain(*b"\0\0\0\0mdat").skip(offset as usize);
        data.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
        if offset == 0 && len == self.moov.len() {
            return Ok(self.moov.clone());
        }
        Ok(data.into())
    }
}

fn boxed(kind: &[u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut data = (payload.len() as u32 + 8).to_be_bytes().to_vec();
    data.extend_from_slice(kind);
    data.extend_from_slice(payload);
    data
}

fn full(kind: &[u8; 4], words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let payload: Vec<u8> = std::iter::once(0).chain(words).flat_map(u32::to_be_bytes).collect();
    boxed(kind, &payload)
}

/// A full box with an entry count before its entries of `each` words.
fn listed(kind: &[u8; 4], each: usize, entries: &[u32]) -> Vec<u8> {
    full(kind, std::iter::once((entries.len() / each) as u32).chain(entries.iter().copied()))
}

/// A track as encoders and ffmpeg's muxer write it.
struct Shape {
    id: u32,
    handler: [u8; 4],
    timescale: u32,
    duration: u32,
    sizes: Vec<u32>,
    offsets: Vec<u64>,
    chunks: Vec<(u64, u32)>,
    cts: Vec<u32>,
    sync_every: u32,
}

impl Shape {
    fn trak(&self) -> Vec<u8> {
        let count = self.sizes.len() as u32;
        let mut stsd = vec![0, 0, 0, 0, 0, 0, 0, 1];
        stsd.extend(boxed(b"test", &[0; 78]));
        let mut stsc: Vec<u32> = Vec::new();
        for (number, (_, samples)) in self.chunks.iter().enumerate() {
            if stsc.len() < 3 || stsc[stsc.len() - 2] != *samples {
                stsc.extend([number as u32 + 1, *samples, 1]);
            }
        }
        let mut ctts: Vec<u32> = Vec::new();
        for cts in &self.cts {
            let last = ctts.len();
            if last > 0 && ctts[last - 1] == *cts {
                ctts[last - 2] += 1;
            } else {
                ctts.extend([1, *cts]);
            }
        }
        let mut tables = [
            boxed(b"stsd", &stsd),
            listed(b"stts", 2, &[count, self.duration]),
            full(b"stsz", [0, count].into_iter().chain(self.sizes.iter().copied())),
            listed(b"stsc", 3, &stsc),
            listed(b"stco", 1, &self.chunks.iter().map(|c| c.0 as u32).collect::<Vec<_>>()),
        ]
        .concat();
        if !ctts.is_empty() {
            tables.extend(listed(b"ctts", 2, &ctts));
        }
        if self.sync_every > 1 {
            let sync: Vec<u32> = (1..=count).step_by(self.sync_every as usize).collect();
            tables.extend(listed(b"stss", 1, &sync));
        }
        let media = [
            full(b"mdhd", [0, 0, self.timescale, 0, 0x55c4_0000]),
            full(b"hdlr", [0, u32::from_be_bytes(self.handler)]),
            boxed(b"minf", &boxed(b"stbl", &tables)),
        ]
        .concat();
        let track = [full(b"tkhd", [0, 0, self.id]), boxed(b"mdia", &media)].concat();
        boxed(b"trak", &track)
    }
}

/// Two hours at 4 Mbit/s. Video: 30 frames a second with three B-frames between references and a
/// keyframe every 2 s, each in its own chunk. Audio: AAC at 48 kHz in chunks of one and two frames.
fn two_hours() -> Head {
    let mut video = Shape {
        id: 1,
        handler: *b"vide",
        timescale: 15_360,
        duration: 512,
        sizes: Vec::new(),
        offsets: Vec::new(),
        chunks: Vec::new(),
        cts: Vec::new(),
        sync_every: 60,
    };
    let mut audio = Shape {
        id: 2,
        handler: *b"soun",
        timescale: 48_000,
        duration: 1024,
        sizes: Vec::new(),
        offsets: Vec::new(),
        chunks: Vec::new(),
        cts: Vec::new(),
        sync_every: 1,
    };
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below) as u32
    };
    // Offsets as if the media came first, below 4 GiB.
    let mut at = 0u64;
    for picture in 0..2 * 3600 * 30u64 {
        let size = match picture % 60 {
            0 => 90_000 + random(60_000),
            n if n % 4 == 1 => 20_000 + random(15_000),
            _ => 4_000 + random(12_000),
        };
        video.chunks.push((at, 1));
        video.offsets.push(at);
        video.sizes.push(size);
        video.cts.push(512 * [2, 5, 2, 0, 1][(picture % 5) as usize]);
        at += u64::from(size);
        let mut frames = 0;
        let from = at;
        while (audio.sizes.len() as u64) * 1024 * 30 < (picture + 1) * 48_000 {
            let size = 330 + random(90);
            audio.sizes.push(size);
            audio.offsets.push(at);
            at += u64::from(size);
            frames += 1;
        }
        if frames > 0 {
            audio.chunks.push((from, frames));
        }
    }
    assert!(at < 1 << 32, "{at}");
    let payload = [full(b"mvhd", [0, 0, 1000, 7_200_000]), video.trak(), audio.trak()].concat();
    let moov = Bytes::from(boxed(b"moov", &payload));
    let len = at + moov.len() as u64;
    let head = Head { moov, len };
    let index = Index::read(&head).unwrap();
    for (track, shape) in index.tracks.iter().zip([&video, &audio]) {
        let found = track.samples.iter().map(|sample| (sample.offset, sample.size));
        let expected = shape.offsets.iter().copied().zip(shape.sizes.iter().copied());
        assert!(found.eq(expected), "{:?}", track.problem);
    }
    assert!(index.memory() < 4 << 20, "{} bytes", index.memory());
    head
}

fn report(name: &str, index: &Index) {
    let samples: u32 = index.tracks.iter().map(|track| track.samples.len()).sum();
    let memory = index.memory();
    let each = memory as f64 / f64::from(samples);
    eprintln!("{name}: {samples} samples, {memory} bytes of index, {each:.2} a sample");
}

fn benches(criterion: &mut Criterion) {
    let file = testkit::corpus_dir().join("bbb/bbb_60s_720p_h264_aac.mp4");
    let minute = Bytes::from(std::fs::read(file).unwrap());
    report("bbb_60s_720p", &Index::read(&minute).unwrap());
    criterion.bench_function("mp4_index/bbb_60s_720p", |b| {
        b.iter(|| Index::read(black_box(&minute)).unwrap());
    });

    let hours = two_hours();
    let index = Index::read(&hours).unwrap();
    report("two hours", &index);
    criterion.bench_function("mp4_index/two_hours", |b| {
        b.iter(|| Index::read(black_box(&hours)).unwrap());
    });
    criterion.bench_function("mp4_index/two_hours_merge", |b| {
        b.iter(|| index.merge(0..2).map(|(_, sample)| u64::from(sample.size)).sum::<u64>());
    });
    let video = &index.tracks[0].samples;
    let mut number = 0;
    criterion.bench_function("mp4_index/sample_by_number", |b| {
        b.iter(|| {
            number = (number + 104_729) % video.len();
            video.get(black_box(number))
        });
    });
    criterion.bench_function("mp4_index/keyframe_by_time", |b| {
        b.iter(|| {
            number = (number + 104_729) % video.len();
            let sample = video.at_dts(i64::from(black_box(number)) * 512).unwrap();
            video.sync_at_or_before(sample)
        });
    });
}

criterion_group!(mp4_index, benches);
criterion_main!(mp4_index);
