//! Cost of making a title: `cargo bench -p vod`. Prints the memory that a title takes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a benchmark is no library, and says what it measured"
)]

use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use media::mp4::{Index, OnDisk};
use testkit::Program;
use vod::{Library, Piece, Root, Settings, gather};

/// CPU time of this thread.
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

fn benches(criterion: &mut Criterion) {
    let root = tempfile::tempdir().unwrap();
    // Two hours: sixty repetitions of a film of two minutes, as ffmpeg interleaves it.
    let source = testkit::corpus_dir().join("bbb/bbb_2min_240p_h264_aac.mp4");
    let mut remux = Command::new("ffmpeg");
    remux.args(["-nostdin", "-v", "error", "-stream_loop", "59", "-i"]).arg(source);
    remux.args(["-c", "copy"]).arg(root.path().join("hours.mp4"));
    Program::output(&mut remux, Duration::from_secs(300));
    let library = || Library::new(Root::new(root.path()), Settings::default());

    let kept = library();
    let title = kept.title("hours.mp4").unwrap();
    let seconds = title.duration.as_secs();
    eprintln!("{seconds} s: {} bytes kept, {} with its name", title.memory(), kept.usage().1);
    assert!(title.memory() < 4 << 20);

    // CPU time, because other programs on the machine affect the wall-clock time.
    let before = on_cpu();
    for _ in 0..20 {
        library().title(black_box("hours.mp4")).unwrap();
    }
    eprintln!("a title made: {:?} on the CPU", (on_cpu() - before) / 20);
    let file = OnDisk::new(std::fs::File::open(root.path().join("hours.mp4")).unwrap()).unwrap();
    let before = on_cpu();
    for _ in 0..20 {
        Index::read(black_box(&file)).unwrap();
    }
    eprintln!("of which its index: {:?}", (on_cpu() - before) / 20);

    criterion.bench_function("title/two_hours_cold", |b| {
        b.iter(|| library().title(black_box("hours.mp4")).unwrap());
    });
    criterion.bench_function("title/two_hours_kept", |b| {
        b.iter(|| kept.title(black_box("hours.mp4")).unwrap());
    });
    for track in &title.tracks {
        let mut n = 0;
        let mut next = || {
            n = (n + 1_009) % track.segment_count();
            n
        };
        let name = &track.name;
        criterion.bench_function(&format!("segment/{name}_pieces"), |b| {
            b.iter(|| track.segment(next()).unwrap());
        });
        criterion.bench_function(&format!("segment/{name}_gathered"), |b| {
            b.iter(|| gather(track.segment(next()).unwrap(), 16 << 10).unwrap());
        });
        let pieces = track.segment(1).unwrap();
        let files = pieces.iter().filter(|piece| matches!(piece, Piece::File { .. })).count();
        eprintln!("{name}: {files} ranges of the file in a segment");
    }
    let chosen = title.chosen();
    criterion.bench_function("samples/two_seconds_listed", |b| {
        b.iter(|| title.samples(&chosen, black_box(1_800)).unwrap());
    });
    criterion.bench_function("samples/two_seconds_read", |b| {
        b.iter(|| title.read(&title.samples(&chosen, black_box(1_800)).unwrap()).unwrap());
    });
}

criterion_group!(title, benches);
criterion_main!(title);
