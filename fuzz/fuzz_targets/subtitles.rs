//! Subtitles beside a movie, and inside one. If the first byte is even, the rest is a WebVTT file;
//! if it is odd, a sample of timed text. The title's subtitles must be WebVTT again, and must read
//! the same.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use headwater_fuzz::within;
use libfuzzer_sys::fuzz_target;
use vod::{Library, Settings, Title};

/// A second of video, and one sample of timed text: `x`, 900 times.
const MOVIE: &[u8] = include_bytes!("../fixtures/subtitled.mp4");

/// Memory for making a title of it, and memory per byte of subtitles.
const MEMORY: (usize, usize) = (4 << 20, 64);

fuzz_target!(|data: &[u8]| {
    let Some((&kind, input)) = data.split_first() else { return };
    let folder = folder();
    let (movie, beside) = (folder.join("movie.mp4"), folder.join("movie.en.vtt"));
    if kind & 1 == 0 {
        std::fs::write(&movie, MOVIE).expect("a file");
        std::fs::write(&beside, input).expect("a file");
    } else {
        let _ = std::fs::remove_file(&beside);
        let sample = MOVIE.windows(900).position(|bytes| bytes.iter().all(|byte| *byte == b'x'));
        // Two bytes before the text are its length.
        let at = sample.expect("the text") - 2;
        let mut bytes = MOVIE.to_vec();
        let size = input.len().min(902);
        bytes[at..at + size].copy_from_slice(&input[..size]);
        std::fs::write(&movie, bytes).expect("a file");
    }
    let most = MEMORY.0 + MEMORY.1 * input.len();
    let Ok(title) = within(most, || library().title("movie.mp4")) else {
        panic!("the movie itself is sound");
    };
    let written = walk(&title);
    // The title's WebVTT is used as a file, and must give the same subtitles again.
    if let Some(text) = written {
        std::fs::write(&beside, &text).expect("a file");
        let again = library().title("movie.mp4").expect("the movie is sound");
        let beside = again.texts.iter().find(|other| other.all() == text);
        assert!(beside.is_some(), "{}", String::from_utf8_lossy(&text));
    }
});

/// Requests everything that a viewer may request of the first subtitles.
fn walk(title: &Title) -> Option<Vec<u8>> {
    for text in &title.texts {
        assert!(text.all().starts_with(b"WEBVTT\n"));
        assert!(std::str::from_utf8(&text.all()).is_ok());
        for number in 0..text.segment_count() {
            let segment = text.segment(number).expect("there are so many");
            assert!(segment.starts_with(b"WEBVTT\nX-TIMESTAMP-MAP="));
        }
        assert!(text.segment(text.segment_count()).is_none());
    }
    title.texts.first().map(|text| text.all().to_vec())
}

fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(headwater_fuzz::folder)
}

fn library() -> Library {
    Library::new(folder().clone(), Settings::default())
}
