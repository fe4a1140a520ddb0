//! Files damaged by hand or at random: they are read or refused, without panic and in bounded
//! memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod counting;
mod mp4_support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use media::mp4::{Index, ReadError};
use mp4_support::{corpus, files, made, media, name, read, real};
use testkit::Random;

/// The most memory that reading a file may take: a fixed part, and a few bytes per byte of the
/// file.
fn bound(len: usize) -> usize {
    (128 << 10) + 16 * len
}

static READ: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Reads a file, and walks over all samples where that succeeds.
fn exercise(data: &Bytes) {
    let (index, used) = counting::used(|| Index::read(data));
    assert!(used <= bound(data.len()), "{used} bytes for a file of {}", data.len());
    let index = match index {
        Ok(index) => index,
        Err(ReadError::Format(error)) => {
            assert!(!error.to_string().is_empty());
            REFUSED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        Err(error) => panic!("read past the end: {error}"),
    };
    READ.fetch_add(1, Ordering::Relaxed);
    let _ = index.duration();
    for track in &index.tracks {
        let table = &track.samples;
        assert!(u64::from(table.len()) <= data.len() as u64);
        for (number, sample) in table.iter().enumerate().take(200) {
            let number = number as u32;
            if number.is_multiple_of(37) {
                assert_eq!(table.get(number), Some(sample));
            }
            let _ = (sample.pts(), track.edit.presents(sample.pts(), sample.duration));
        }
        let last = table.len().saturating_sub(1);
        let found = table.iter_from(last).count();
        assert_eq!(found, usize::from(!table.is_empty()));
        for number in [0, last / 2, last, u32::MAX] {
            let _ = (table.sync_at_or_before(number), table.sync_at_or_after(number));
        }
        for time in [i64::MIN, -1, 0, track.end() / 2, i64::MAX] {
            assert!(table.at_dts(time).is_none_or(|number| number < table.len()));
        }
        let _ = (table.sync_count(), table.end_dts(), track.to_string());
    }
    let merged = index.merge(0..index.tracks.len()).take(500);
    assert!(merged.count() <= data.len() * index.tracks.len());
}

fn exercise_named(label: &str, data: &Bytes) {
    let outcome = catch_unwind(AssertUnwindSafe(|| exercise(data)));
    assert!(outcome.is_ok(), "{label}");
}

/// Reads these files unchanged, and damaged in many ways. Only one such test runs in a process,
/// because the allocator counts for the whole process.
fn break_in_many_ways(good: &[(&str, Bytes)]) {
    // The file cut anywhere, and single bytes or words in its boxes changed.
    let mut random = Random::new(1);
    for (file, data) in good {
        let boxes: Vec<usize> = [b"moov", b"moof"]
            .iter()
            .flat_map(|kind| data.windows(4).enumerate().filter(move |(_, at)| at == *kind))
            .map(|(at, _)| at - 4)
            .collect();
        for _ in 0..300 {
            let near = boxes[random.index(boxes.len())] + random.index(3000);
            let cut = near.min(data.len());
            exercise_named(&format!("{file} cut at {cut}"), &data.slice(..cut));
        }
        for _ in 0..700 {
            let mut changed = data.to_vec();
            let near = boxes[random.index(boxes.len())] + random.index(2000);
            let at = near.min(data.len() - 4);
            let label = if random.index(2) == 0 {
                changed[at] ^= 1 << random.index(8);
                format!("{file}, a bit of byte {at} flipped")
            } else {
                let words = [0, 1, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];
                let word = words[random.index(words.len())];
                changed[at..at + 4].copy_from_slice(&word.to_be_bytes());
                format!("{file}, {word:#x} at byte {at}")
            };
            exercise_named(&label, &changed.into());
        }
    }
    let (read, refused) = (READ.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}

#[test]
fn broken_files_are_read_or_refused_within_bounds() {
    // The valid files, for the bound.
    for path in made() {
        exercise_named(name(&path), &read(&path));
    }
    let good = [
        "mp4/fragmented-late.mp4",
        "mp4/ac3.mp4",
        "mp4/fragmented-aac.mp4",
        "mp4/av1.mp4",
        "mp4/fragmented-hevc.mp4",
        "mp4/pcm.mov",
        "mp4/short.mp4",
        "mp4/opus.mp4",
        "mp4/timecode.mov",
        "mp4/tracks.mp4",
    ];
    break_in_many_ways(&good.map(|name| (name, media(name))));
}

#[test]
#[ignore = "corpus"]
fn corpus_broken_files_are_read_or_refused_within_bounds() {
    // Collected from the fuzzing of other readers.
    let broken = files(&testkit::corpus_dir().join("corrupt"), &[".mp4", ".bin", ".3gp"]);
    for path in &broken {
        exercise_named(name(path), &read(path));
    }
    assert!(broken.len() > 100);
    for path in corpus() {
        exercise_named(name(&path), &read(&path));
    }
    let good = [
        "mp4/androidx_sample_fragmented.mp4",
        "mp4/androidx_sample_ac3.mp4",
        "mp4/mp4ff_bbb5s_aac.isma",
        "mp4/androidx_sample_with_av1c.mp4",
        "mp4/gomp4_sample_fragmented.mp4",
        "mp4/androidx_sample_twos_pcm.mp4",
        "mp4/androidx_bt601.mov",
        "mp4/mp4ff_opus.mp4",
        "mp4/membrane_ref_video_with_tmcd.mp4",
        "mp4/scuffle_avc_aac_fragmented.mp4",
    ];
    break_in_many_ways(&good.map(|name| (name, real(name))));
}
