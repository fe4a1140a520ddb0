//! Long FLV tags from anyone, as in RTMP messages. Whatever a tag contains, the demuxer may make
//! only its samples and little more of it, and may keep only little of all tags.
//!
//! The input is a list of tags. For each it has a kind, the lengths of a beginning and of a unit,
//! how often the unit is repeated, and then the beginning and the unit.
#![no_main]

use bytes::Bytes;
use headwater_fuzz::{allocated, below};
use libfuzzer_sys::fuzz_target;
use media::flv::{Demuxer, Event, TagKind};

/// Memory that may be held in addition to one message and its samples.
const MEMORY: usize = 4 << 20;

/// Longest tag in bytes: enough to show whether memory grows with it. RTMP allows eight times as
/// many.
const LONGEST: usize = 2 << 20;

/// Most tags of an input, to limit time.
const TAGS: u32 = 64;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let before = allocated();
    let mut demuxer = Demuxer::new();
    for number in 0..TAGS {
        let Some((kind, payload)) = tag(&mut rest) else { return };
        // Samples may be copies, so that they do not keep the whole tag in memory.
        let events = below(before + 2 * payload.len() + MEMORY, || {
            demuxer.handle_tag(kind, number * 40, &payload);
            std::iter::from_fn(|| demuxer.poll_event()).collect::<Vec<_>>()
        });
        let samples = events.iter().map(|event| match event {
            Event::Sample { sample, .. } => sample.data.len(),
            _ => 0,
        });
        let bound = before + payload.len() + samples.sum::<usize>() + MEMORY;
        assert!(allocated() <= bound, "{} bytes where {bound} may be", allocated());
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
