//! Cost of reading and building chunks: `cargo bench -p protocol --bench rtmp_chunks`

#![allow(missing_docs, reason = "the macros generate undocumented items")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use protocol::rtmp::chunk::{Reader, csid, shared_message};
use protocol::rtmp::message;
use protocol::rtmp::message::Limits;

/// A second of a 2 Mbit/s stream: a keyframe, 29 other video frames, 47 audio frames.
fn second() -> Vec<(u8, u32, Vec<u8>)> {
    let video = (0..30).map(|index| {
        (message::VIDEO, index * 33, vec![0x27; if index == 0 { 60_000 } else { 6000 }])
    });
    let audio = (0..47).map(|index| (message::AUDIO, index * 21, vec![0xAF; 350]));
    let mut messages: Vec<_> = video.chain(audio).collect();
    messages.sort_by_key(|(_, timestamp, _)| *timestamp);
    messages
}

fn wire(chunk_size: usize) -> Vec<u8> {
    let mut bytes = shared_message(
        csid::CONTROL,
        message::SET_CHUNK_SIZE,
        0,
        &(chunk_size as u32).to_be_bytes(),
        128,
    )
    .to_vec();
    for (kind, timestamp, payload) in second() {
        bytes.extend_from_slice(&shared_message(
            u32::from(kind),
            kind,
            timestamp,
            &payload,
            chunk_size,
        ));
    }
    bytes
}

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("rtmp/read one second of 2 Mbit/s");
    for chunk_size in [1, 128, 4096, 65536] {
        let bytes = wire(chunk_size);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_with_input(BenchmarkId::new("chunk size", chunk_size), &bytes, |b, bytes| {
            b.iter(|| {
                let mut reader = Reader::new(Limits::default(), 0);
                let mut messages = 0;
                for piece in bytes.chunks(16 << 10) {
                    let mut input = piece;
                    while let Ok(Some(read)) = reader.read(&mut input) {
                        black_box(read);
                        messages += 1;
                    }
                }
                assert_eq!(messages, 77);
            });
        });
    }
    group.finish();
}

fn write(c: &mut Criterion) {
    let messages: Vec<(u8, u32, Bytes)> = second()
        .into_iter()
        .map(|(kind, timestamp, payload)| (kind, timestamp, payload.into()))
        .collect();
    let total: usize = messages.iter().map(|(_, _, payload)| payload.len()).sum();
    let mut group = c.benchmark_group("rtmp/build one second of 2 Mbit/s for all players");
    group.throughput(Throughput::Bytes(total as u64));
    for chunk_size in [128, 4096, 65536] {
        group.bench_function(BenchmarkId::new("chunk size", chunk_size), |b| {
            b.iter(|| {
                for (kind, timestamp, payload) in &messages {
                    let csid = u32::from(*kind);
                    black_box(shared_message(csid, *kind, *timestamp, payload, chunk_size));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, read, write);
criterion_main!(benches);
