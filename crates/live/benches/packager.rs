//! Cost of a publisher's samples in the packager: ten seconds of 720p video and audio, cut into
//! parts and segments, without viewers. Also the cost of one more stream in a registry of ten
//! thousand.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use live::{PublisherInfo, Registry, Settings, UnixMicros};
use media::{Codec, Sample, mp4};

struct Clip {
    codecs: Vec<(u32, Codec, u32)>,
    samples: Vec<(u32, Sample)>,
}

fn clip() -> Clip {
    let file = testkit::corpus_dir().join("bbb/bbb_60s_720p_h264_aac.mp4");
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

/// A stream whose window is full: 30 small frames a second, and a keyframe every two seconds.
struct Long {
    publisher: live::Publisher,
    frame: i64,
}

impl Long {
    fn new(window: Duration) -> Self {
        let registry = Registry::new(Settings { window, ..Settings::default() });
        let info = PublisherInfo { peer: None, protocol: "bench", rendition: None };
        let mut publisher = registry.publish("x", info, Self::at(0)).unwrap();
        let record = testkit::avc_record(31).into();
        let codec = Codec::Avc(media::codec::avc::Config::parse(record).unwrap());
        publisher.track(0, codec, 1000, *b"und", Self::at(0)).unwrap();
        let mut long = Self { publisher, frame: 0 };
        let full = i64::try_from((window + Duration::from_secs(60)).as_secs()).unwrap() * 30;
        while long.frame < full {
            long.publish();
        }
        long
    }

    fn at(frame: i64) -> UnixMicros {
        UnixMicros(1_700_000_000_000_000 + frame.unsigned_abs() * 33_333)
    }

    fn publish(&mut self) {
        let (dts, sync) = (self.frame * 100 / 3, self.frame % 60 == 0);
        let data = Bytes::from_static(&[0; 256]);
        let sample = Sample { dts, cts: 0, duration: 0, sync, data };
        self.publisher.sample(0, sample, Self::at(self.frame)).unwrap();
        self.frame += 1;
    }
}

/// Cost of a segment of ten parts when the window is full.
fn windows(c: &mut Criterion) {
    let mut group = c.benchmark_group("window");
    // Ten parts of six frames each.
    group.throughput(Throughput::Elements(10));
    for (name, seconds) in [("30 s", 30), ("6 h", 6 * 3600)] {
        let mut long = Long::new(Duration::from_secs(seconds));
        group.bench_function(name, |b| b.iter(|| (0..60).for_each(|_| long.publish())));
    }
    group.finish();
}

fn packager(c: &mut Criterion) {
    let clip = clip();
    let mut group = c.benchmark_group("packager");
    group.throughput(Throughput::Elements(clip.samples.len() as u64));
    group.bench_function("publish 720p", |b| b.iter(|| publish(&clip)));
    group.finish();
}

/// Cost of one more stream beside 9,999 others.
fn registry(c: &mut Criterion) {
    let registry = Registry::new(Settings::default());
    let now = UnixMicros(1_700_000_000_000_000);
    let info = PublisherInfo { peer: None, protocol: "bench", rendition: None };
    let begin = |name: &str| registry.publish(name, info.clone(), now).unwrap();
    let held: Vec<_> = (1..10_000).map(|number| begin(&number.to_string())).collect();
    let mut group = c.benchmark_group("registry");
    // The next sweep forgets a stream whose publisher leaves before any sample.
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

criterion_group!(benches, windows, packager, registry);
criterion_main!(benches);
