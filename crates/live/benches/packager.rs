//! What a publisher's samples cost the packager: ten seconds of 720p video and audio, cut into
//! parts and segments, with nobody watching; and what ten thousand streams cost the registry.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use live::{PublisherInfo, Registry, Settings, UnixMicros};
use media::{Codec, Sample, mp4};

struct Clip {
    codecs: Vec<(u32, Codec, u32)>,
    samples: Vec<(u32, Sample)>,
}

fn clip() -> Clip {
    let file = testkit::media_dir().join("bbb/bbb_60s_720p_h264_aac.mp4");
    let bytes = Bytes::from(std::fs::read(file).unwrap());
    let index = mp4::Index::read(&bytes).unwrap();
    let codecs = index
        .tracks
        .iter()
        .map(|track| (track.track.id, track.track.codec.clone(), track.track.timescale))
        .collect();
    let samples = mp4::Reader::new(index.merge(0..index.tracks.len()), &bytes)
        .map(|read| read.unwrap())
        .map(|read| (index.tracks[read.track].track.id, read.sample))
        .take_while(|(_, sample)| sample.dts < 900_000)
        .collect();
    Clip { codecs, samples }
}

fn publish(clip: &Clip) -> usize {
    let registry = Registry::new(Settings::default());
    let mut now = UnixMicros(1_700_000_000_000_000);
    let info = PublisherInfo { peer: None, protocol: "bench", rendition: None };
    let mut publisher = registry.publish("x", info, now).unwrap();
    for (source, codec, timescale) in &clip.codecs {
        publisher.track(*source, codec.clone(), *timescale, *b"und", now).unwrap();
    }
    for (source, sample) in &clip.samples {
        now.0 += 13_000;
        publisher.sample(*source, sample.clone(), now).unwrap();
    }
    let state = publisher.stream().state();
    state.tracks.iter().map(|track| track.window().segments.len()).sum()
}

fn packager(c: &mut Criterion) {
    let clip = clip();
    let mut group = c.benchmark_group("packager");
    group.throughput(Throughput::Elements(clip.samples.len() as u64));
    group.bench_function("publish 720p", |b| b.iter(|| publish(&clip)));
    group.finish();
}

/// What it costs to begin one stream more, beside 9,999 others.
fn registry(c: &mut Criterion) {
    let registry = Registry::new(Settings::default());
    let now = UnixMicros(1_700_000_000_000_000);
    let info = PublisherInfo { peer: None, protocol: "bench", rendition: None };
    let begin = |name: &str| registry.publish(name, info.clone(), now).unwrap();
    let held: Vec<_> = (1..10_000).map(|number| begin(&number.to_string())).collect();
    let mut group = c.benchmark_group("registry");
    // Whoever leaves before any sample is forgotten by the next sweep.
    group.bench_function("begin and sweep", |b| {
        b.iter(|| {
            drop(begin("x"));
            registry.sweep(now);
        });
    });
    group.bench_function("sweep", |b| b.iter(|| registry.sweep(now)));
    drop(held);
    group.finish();
}

criterion_group!(benches, packager, registry);
criterion_main!(benches);
