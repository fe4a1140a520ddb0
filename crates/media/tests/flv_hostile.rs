//! Tags as long as RTMP's messages can be, made to cost more than they are: what the demuxer takes
//! for one besides the message itself, at any time while it reads it.

mod counting;

use bytes::Bytes;
use media::flv::{Demuxer, Event, MAX_PAYLOAD, TagKind};

/// What there may be besides the message.
const BESIDE: usize = 4 << 20;

/// An AVCDecoderConfigurationRecord of Baseline, 16 by 16.
const RECORD: &[u8] = b"\x01\x42\x00\x0a\xff\xe1\x00\x06\x67\x42\x00\x0a\xfb\xc8\x01\x00\x01\x68";

/// A multitrack tag of AVC as long as one can be, of tracks that are each so long and begin so.
fn tag(packet_type: u8, first: &[u8], length: usize) -> Bytes {
    let mut tag = vec![0x96, 0x10 | packet_type];
    tag.extend_from_slice(b"avc1");
    for track in 0..(MAX_PAYLOAD - tag.len()) / (length + 4) {
        tag.push(track as u8);
        tag.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
        tag.extend_from_slice(first);
        tag.resize(tag.len() + length - first.len(), track as u8);
    }
    tag.into()
}

#[test]
fn a_tag_of_many_tracks_takes_less_than_four_mebibytes_more_than_itself() {
    const SEQUENCE_START: u8 = 0;
    const CODED_FRAMES_X: u8 = 3;
    let tags = [
        ("four million empty tracks", tag(CODED_FRAMES_X, &[], 0)),
        ("four million empty sequence headers", tag(SEQUENCE_START, &[], 0)),
        ("511 sequence headers", tag(SEQUENCE_START, RECORD, 32 << 10)),
        ("255 sequence headers that are too long", tag(SEQUENCE_START, RECORD, 64 << 10)),
        ("31 frames of NAL units of nothing", tag(CODED_FRAMES_X, &[0; 4], 512 << 10)),
    ];
    for (what, tag) in tags {
        assert!(tag.len() <= MAX_PAYLOAD && tag.len() > 15 << 20, "{what}: {}", tag.len());
        let mut demuxer = Demuxer::new();
        // Again, since something is kept of the one before.
        for time in 0..3 {
            let (tracks, used) = counting::used(|| {
                demuxer.handle_tag(TagKind::Video, time, &tag);
                let events: Vec<_> = std::iter::from_fn(|| demuxer.poll_event()).collect();
                events.iter().filter(|event| matches!(event, Event::Track { .. })).count()
            });
            assert!(used < BESIDE, "{what}: {used} bytes for {tracks} tracks");
        }
    }
}
