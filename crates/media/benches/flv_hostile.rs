//! Cost of the longest tags that RTMP allows, made by a hostile peer. They block an event loop
//! meanwhile, so each should take less than 5 ms. `cargo bench -p media --bench flv_hostile`
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark is no library")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use media::flv::{Demuxer, TagKind};

/// The longest RTMP message.
const LONGEST: usize = (16 << 20) - 2;

/// A tag of many tracks (Enhanced RTMP v2, multitrack), each with its number, its length and
/// `bytes` bytes.
fn tracks(first: &[u8], bytes: usize) -> Bytes {
    let mut tag = first.to_vec();
    for number in 0..u8::MAX {
        if tag.len() + 4 + bytes > LONGEST {
            break;
        }
        tag.push(number);
        tag.extend_from_slice(&(bytes as u32).to_be_bytes()[1..]);
        tag.resize(tag.len() + bytes, 1);
    }
    tag.into()
}

fn benches(criterion: &mut Criterion) {
    let mut empty = b"\x96\x13avc1".to_vec();
    empty.resize(LONGEST, 0);
    let cases = [
        ("four million empty tracks", Bytes::from(empty)),
        ("31 sequence headers of 512 KiB", tracks(b"\x96\x10avc1", 512 << 10)),
        ("255 sequence headers of 32 KiB", tracks(b"\x96\x10avc1", 32 << 10)),
        ("255 frames of 64 KiB", tracks(b"\x96\x11avc1", 64 << 10)),
        ("metadata of 16 MiB of arrays", [10, 0, 0, 0, 1].repeat(LONGEST / 5).into()),
    ];
    for (name, tag) in cases {
        let kind = if name.starts_with("metadata") { TagKind::Script } else { TagKind::Video };
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut demuxer = Demuxer::new();
                demuxer.handle_tag(kind, 0, black_box(&tag));
                while demuxer.poll_event().is_some() {}
            });
        });
    }
}

criterion_group!(hostile, benches);
criterion_main!(hostile);
