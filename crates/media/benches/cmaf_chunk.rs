//! Cost of writing a chunk: a third of a second of video at 1.7 Mbit/s, and a fifth of a second of
//! audio. `cargo bench -p media --bench cmaf_chunk`

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use media::Sample;
use media::cmaf::{self, ChunkInfo, SegmentStart};

fn samples(count: u32, duration: u32, size: usize, video: bool) -> Vec<Sample> {
    (0..count)
        .map(|number| Sample {
            dts: i64::from(number * duration),
            cts: if video { (number % 3 * duration) as i32 } else { 0 },
            duration,
            sync: !video || number == 0,
            data: Bytes::from(vec![0x5A; size + number as usize]),
        })
        .collect()
}

fn chunk(c: &mut Criterion) {
    let mut group = c.benchmark_group("cmaf_chunk");
    for (name, samples) in [
        ("video, 6 samples of 9 KB", samples(6, 3000, 9_000, true)),
        ("audio, 9 samples of 340 B", samples(9, 1024, 340, false)),
    ] {
        let info = ChunkInfo {
            track_id: 1,
            sequence_number: 1,
            segment_start: Some(SegmentStart::default()),
        };
        let size: usize = samples.iter().map(|sample| sample.data.len()).sum();
        group.throughput(Throughput::Bytes(size as u64));
        let mut out = Vec::with_capacity(2 * size);
        group.bench_function(format!("{name}, whole"), |b| {
            b.iter(|| {
                out.clear();
                cmaf::write_chunk(&mut out, &info, black_box(&samples)).expect("writes")
            });
        });
        group.bench_function(format!("{name}, head only"), |b| {
            b.iter(|| {
                out.clear();
                cmaf::write_chunk_head(&mut out, &info, black_box(&samples)).expect("writes")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, chunk);
criterion_main!(benches);
