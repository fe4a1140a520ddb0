//! An MP4 from anyone as a title: it is cut into segments, its subtitles are read, and every
//! segment is written.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use headwater_fuzz::within;
use libfuzzer_sys::fuzz_target;
use vod::{Library, Settings, Title};

/// Memory for making a title, and memory per byte of its file.
const MEMORY: (usize, usize) = (64 << 20, 256);

/// Most segments that are checked.
const SEGMENTS: u32 = 50;

fuzz_target!(|data: &[u8]| {
    let folder = folder();
    std::fs::write(folder.join("movie.mp4"), data).expect("a file");
    let library = Library::new(folder.clone(), Settings::default());
    within(MEMORY.0 + MEMORY.1 * data.len(), || {
        if let Ok(title) = library.title("movie.mp4") {
            walk(&title);
        }
    });
});

fn walk(title: &Title) {
    assert!(!title.tracks.is_empty());
    for track in &title.tracks {
        let media = track.header();
        media::cmaf::read_header(&media).expect("reads what was written");
        for (number, segment) in (0..).zip(track.segments()).take(SEGMENTS as usize) {
            assert!(segment.start >= 0, "{segment:?}");
            let pieces = track.segment(number).expect("there are so many");
            assert_eq!(pieces.iter().map(vod::Piece::len).sum::<u64>(), segment.bytes);
        }
        assert!(track.segment(track.segment_count()).is_none());
        for number in 0..track.iframe_count().min(SEGMENTS) {
            track.iframe(number).expect("there are so many");
        }
        for time in [Duration::ZERO, title.duration / 2, title.duration, Duration::MAX] {
            assert!(track.segment_at(time) < track.segment_count());
            let _ = track.sync_at(time);
        }
    }
    for number in 0..title.tracks[0].segment_count().min(SEGMENTS) {
        let samples = title.samples(&title.chosen(), number).expect("there are so many");
        for sample in samples {
            assert!(sample.dts >= 0, "{sample:?}");
        }
    }
    for text in &title.texts {
        for number in 0..text.segment_count().min(SEGMENTS) {
            text.segment(number).expect("there are so many");
        }
    }
}

fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(headwater_fuzz::folder)
}
