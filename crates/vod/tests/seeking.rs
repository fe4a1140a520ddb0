//! A seek in a segment of very many samples must not list them: a player may seek again and again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../media/tests/counting/mod.rs"]
mod counting;
mod support;

use std::fs::{self, OpenOptions};
use std::time::Duration;

use support::folder;
use testkit::boxes::{boxed, full, moov};

/// Samples of one byte and 1 ms, of which only the first is a keyframe.
const SAMPLES: u32 = 200_000;

#[test]
fn a_seek_does_not_list_its_segment() {
    let (root, library) = folder(64 << 20);
    let avcc = boxed(b"avcC", &testkit::avc_record(31));
    let entry = boxed(b"avc1", &[vec![0; 78], avcc].concat());
    let tables = [
        boxed(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1], &*entry].concat()),
        full(b"stts", 0, 0, &[1, SAMPLES, 1]),
        full(b"stss", 0, 0, &[1, 1]),
        full(b"stsz", 0, 0, &[1, SAMPLES]),
        full(b"stsc", 0, 0, &[1, 1, SAMPLES, 1]),
        full(b"stco", 0, 0, &[1, 0]),
    ];
    let path = root.path().join("long.mp4");
    fs::write(&path, moov(&tables, None, &[])).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(u64::from(SAMPLES) + 4096).unwrap();
    let title = library.title("long.mp4").unwrap();
    let track = &title.tracks[0];
    assert_eq!(track.segment_count(), 1);
    let sync = track.sync_at(Duration::from_secs(150));
    let (found, used) = counting::used(|| title.last_sample(&[0], 0, sync));
    let (at, sample) = found.unwrap();
    assert_eq!((at, sample.sync), (0, true));
    assert!(used < 1024, "{used} bytes");
    let (last, used) = counting::used(|| title.last_sample(&[0], 0, i64::MAX));
    assert_eq!(last.unwrap().0, SAMPLES as usize - 1);
    assert!(used < 1024, "{used} bytes");
    let (first, used) = counting::used(|| title.first_sample(&[0], 0));
    assert_eq!(first, Some(sample));
    assert!(used < 1024, "{used} bytes");
}
