//! Stamps, in every container that has them.

use media::cmaf::{self, ChunkInfo, SegmentStart};
use media::codec::{Codec, avc};
use media::flv::{Message, Packetizer, file_header};
use media::{Sample, stamp};

use super::search::LOOKS;
use super::{Flv, FlvEvent, Mp4, Mp4Event, Search, SegmentStamps};
use crate::playback::Stamps;

fn codec() -> Codec {
    Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap())
}

/// Makes a frame of this size, with a stamp if there is a time.
fn frame(number: i64, size: usize, time: Option<u64>) -> Sample {
    let mut data = (size as u32).to_be_bytes().to_vec();
    data.resize(4 + size, 0x41);
    if let Some(time) = time {
        data = stamp::insert(&codec(), &data, time).unwrap();
    }
    let data = data.into();
    Sample { dts: number * 40, cts: 0, duration: 40, sync: number == 0, data }
}

fn fragment(samples: &[Sample]) -> Vec<u8> {
    let mut out = Vec::new();
    let segment_start = Some(SegmentStart { reference: None });
    let info = ChunkInfo { track_id: 1, sequence_number: 1, segment_start };
    cmaf::write_chunk(&mut out, &info, samples).unwrap();
    out
}

#[test]
fn a_fragment_has_the_stamps_of_its_first_and_last_sample() {
    let frames = |times: &[Option<u64>], size: usize| -> Vec<Sample> {
        (0..).zip(times).map(|(number, time)| frame(number, size, *time)).collect()
    };
    let found = |samples: &[Sample], split: usize| {
        let (mut skimmer, mut found) = (Mp4::default(), Vec::new());
        // A fragment before it, so that positions in the file are not those in the fragment.
        let bytes = [fragment(&frames(&[None, Some(5)], 300)), fragment(samples)].concat();
        for piece in bytes.chunks(split) {
            skimmer
                .read(piece, &mut |event| match event {
                    Mp4Event::Fragment(fragment) => found.push(fragment),
                    Mp4Event::Header(_) => panic!("no header"),
                })
                .unwrap();
        }
        assert_eq!((found.len(), found[0].stamps), (2, None));
        assert_eq!(found[1].duration, samples.len() as u64 * 40);
        found[1].stamps
    };
    for split in [1, 7, 191, 1000, usize::MAX] {
        // Shorter and longer than the bytes that are examined.
        for size in [2, 100, 5000] {
            let stamps = |first, last| Some(Stamps { first, last });
            let three = frames(&[Some(10), None, Some(30)], size);
            assert_eq!(found(&three, split), stamps(10, 30), "{split} {size}");
            assert_eq!(found(&three[..1], split), stamps(10, 10), "{split} {size}");
            assert_eq!(found(&three[..2], split), None, "{split} {size}");
            assert_eq!(found(&three[1..], split), None, "{split} {size}");
        }
    }
}

#[test]
fn a_segment_has_those_of_its_ends_and_what_is_no_mp4_has_none() {
    let segment = [
        fragment(&[frame(0, 900, Some(10)), frame(1, 20, Some(20))]),
        fragment(&[frame(2, 20, None)]),
        fragment(&[frame(3, 20, Some(40)), frame(4, 900, Some(50))]),
    ]
    .concat();
    let mut inside = SegmentStamps::default();
    segment.chunks(33).for_each(|piece| inside.read(piece));
    assert_eq!(inside.stamps(), Some(Stamps { first: 10, last: 50 }));
    let mut inside = SegmentStamps::default();
    // A packet of MPEG-TS.
    inside.read(&[[0x47; 188], [0; 188]].concat());
    inside.read(&segment);
    assert_eq!(inside.stamps(), None);
}

#[test]
fn a_search_without_success_ends_and_one_with_it_does_not() {
    let (mut barren, mut lucky) = (Search::default(), Search::default());
    lucky.took(Some(Stamps { first: 1, last: 1 }));
    for _ in 0..LOOKS {
        assert!(barren.is_on());
        barren.took(None);
        lucky.took(None);
    }
    assert!(!barren.is_on() && lucky.is_on());
}

#[test]
fn a_video_tag_has_its_stamp() {
    let packetizer = Packetizer::new(0, &codec(), 1000).unwrap();
    let mut bytes = file_header(true, true).to_vec();
    bytes.extend_from_slice(&packetizer.sequence_header(0).unwrap().tag());
    for (number, time) in [(0, Some(10)), (1, None), (2, Some(30))] {
        let sample = frame(number, 1000, time);
        bytes.extend_from_slice(&packetizer.sample(&sample).unwrap().tag());
        // Audio with the same bytes is not video.
        let audio = [&[0xaf, 1][..], &frame(number, 10, Some(7)).data].concat();
        let audio = Message::new(media::flv::TagKind::Audio, number * 40, &[&audio]).unwrap();
        bytes.extend_from_slice(&audio.tag());
    }
    for split in [1, 13, 200, usize::MAX] {
        let (mut skimmer, mut found) = (Flv::default(), Vec::new());
        for piece in bytes.chunks(split) {
            skimmer
                .read(piece, &mut |event| {
                    let FlvEvent::Tag(tag) = event else { panic!("{event:?}") };
                    found.push(tag.stamps.map(|stamps| stamps.last));
                })
                .unwrap();
        }
        let tags = [None, Some(10), None, None, None, Some(30), None];
        assert_eq!(found, tags, "in pieces of {split}");
    }
}
