//! Media of any server, read by a player that keeps none of them. In any pieces the result is the
//! same, and little memory is held.
#![no_main]

use headwater_fuzz::within;
use libfuzzer_sys::fuzz_target;
use viewer::skim::{Flv, Mp4, SegmentStamps, whole_fragments};

/// Memory that is held for a file, and memory per byte of it.
const MEMORY: (usize, usize) = (64 << 10, 64);

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else { return };
    let cut = usize::from(cut).max(1);
    within(MEMORY.0 + MEMORY.1 * input.len(), || {
        assert_eq!(mp4(input.chunks(cut)), mp4(input.chunks(input.len().max(1))));
        assert_eq!(flv(input.chunks(cut)), flv(input.chunks(input.len().max(1))));
        assert!(whole_fragments(input) <= input.len());
        let mut stamps = SegmentStamps::default();
        input.chunks(cut).for_each(|piece| stamps.read(piece));
        let _ = stamps.stamps();
    });
});

fn mp4<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
    let (mut reader, mut events) = (Mp4::default(), Vec::new());
    for piece in pieces {
        if reader.read(piece, &mut |event| events.push(format!("{event:?}"))).is_err() {
            return (events, false);
        }
    }
    (events, true)
}

fn flv<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
    let (mut reader, mut tags) = (Flv::default(), Vec::new());
    for piece in pieces {
        if reader.read(piece, &mut |tag| tags.push(format!("{tag:?}"))).is_err() {
            return (tags, false);
        }
    }
    (tags, true)
}
