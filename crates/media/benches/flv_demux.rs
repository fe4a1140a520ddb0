//! FLV tags to samples and samples to tags, in samples per second, with a minute of Big Buck Bunny
//! at 720p (`cargo bench -p media --bench flv_demux`).

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::process::Command;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use media::Sample;
use media::flv::{Demuxer, Event, Packetizer, Reader, Tag};

/// The film as FLV, remuxed by ffmpeg, so none of our code made it.
fn film() -> Vec<u8> {
    let source = testkit::corpus_dir().join("bbb/bbb_60s_720p_h264_aac.mp4");
    let output = Command::new("ffmpeg")
        .args(["-v", "error", "-i"])
        .arg(source)
        .args(["-c", "copy", "-f", "flv", "pipe:1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn tags(film: &[u8]) -> Vec<Tag> {
    let mut reader = Reader::new();
    reader.handle_bytes(film);
    std::iter::from_fn(|| reader.poll_tag().unwrap()).collect()
}

/// Each sample with the writer of its track.
fn samples(tags: &[Tag]) -> Vec<(Packetizer, Sample)> {
    let mut demuxer = Demuxer::new();
    let mut writers = Vec::new();
    let mut samples = Vec::new();
    for tag in tags {
        demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
        while let Some(event) = demuxer.poll_event() {
            match event {
                Event::Track { track, codec } => {
                    writers.push((track, Packetizer::new(0, &codec, 1000).unwrap()));
                }
                Event::Sample { track, sample, .. } => {
                    let (_, writer) = writers.iter().find(|(id, _)| *id == track).unwrap();
                    samples.push((writer.clone(), sample));
                }
                _ => {}
            }
        }
    }
    samples
}

fn flv(c: &mut Criterion) {
    let film = film();
    let tags = tags(&film);
    let samples = samples(&tags);
    let mut group = c.benchmark_group("flv");
    group.throughput(Throughput::Elements(samples.len() as u64));

    // As with RTMP: the messages already exist.
    group.bench_function("demux", |b| {
        b.iter(|| {
            let mut demuxer = Demuxer::new();
            let mut count = 0;
            for tag in &tags {
                demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
                while let Some(event) = demuxer.poll_event() {
                    count += usize::from(matches!(event, Event::Sample { .. }));
                    black_box(&event);
                }
            }
            assert_eq!(count, samples.len());
        });
    });

    // As with a file: in reads of 64 KiB.
    group.bench_function("read_and_demux", |b| {
        b.iter_batched(
            || (Reader::new(), Demuxer::new()),
            |(mut reader, mut demuxer)| {
                for bytes in film.chunks(1 << 16) {
                    reader.handle_bytes(bytes);
                    while let Some(tag) = reader.poll_tag().unwrap() {
                        demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
                        while let Some(event) = demuxer.poll_event() {
                            black_box(&event);
                        }
                    }
                }
            },
            BatchSize::SmallInput,
        );
    });

    group.bench_function("write", |b| {
        b.iter(|| {
            for (writer, sample) in &samples {
                black_box(writer.sample(sample).unwrap());
            }
        });
    });
    group.finish();
}

criterion_group!(benches, flv);
criterion_main!(benches);
