//! Long FLV tags from anybody, as RTMP messages are: whatever they hold, what the demuxer makes of one is
//! no more than its samples and a little beside it, and what it keeps of all is as little.
//!
//! The input is a list of tags, each a kind, how long its beginning is and what follows, how often that is
//! said again, and both.
#![no_main]

use bytes::Bytes;
use headwater_fuzz::{allocated, below};
use libfuzzer_sys::fuzz_target;
use media::flv::{Demuxer, TagKind};

/// What may be held beside one message and its samples.
const MEMORY: usize = 4 << 20;

/// Bytes of a tag: enough for what grows with it to show. RTMP allows eight times as many.
const LONGEST: usize = 2 << 20;

/// Tags of an input: time is limited, too.
const TAGS: u32 = 64;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let before = allocated();
    let mut demuxer = Demuxer::new();
    for number in 0..TAGS {
        let Some((kind, payload)) = tag(&mut rest) else { return };
        // Samples may be copied out of it, so that they do not keep all of it.
        below(before + 2 * payload.len() + MEMORY, || {
            demuxer.handle_tag(kind, number * 40, &payload);
            while demuxer.poll_event().is_some() {}
        });
    }
});

/// The next tag of the input.
fn tag(rest: &mut &[u8]) -> Option<(TagKind, Bytes)> {
    let (&[kind, sizes, times], after) = rest.split_first_chunk()?;
    let (first, after) = after.split_at_checked(usize::from(sizes >> 4))?;
    let (unit, after) = after.split_at_checked(usize::from(sizes & 15))?;
    *rest = after;
    let kind = match kind % 3 {
        0 => TagKind::Audio,
        1 => TagKind::Video,
        _ => TagKind::Script,
    };
    let times = (1 << (times % 24)).min(LONGEST / unit.len().max(1) - 1);
    let mut payload = Vec::with_capacity(first.len() + times * unit.len());
    payload.extend_from_slice(first);
    for _ in 0..times {
        payload.extend_from_slice(unit);
    }
    Some((kind, payload.into()))
}
