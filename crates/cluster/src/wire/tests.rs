use live::mirror::{Changes, Mirror, Taken};
use live::{Publisher as Right, PublisherInfo, Registry, Settings, UnixMicros};
use media::codec::{aac, avc, opus};
use media::{Codec, Sample};
use proptest::prelude::*;

use super::*;

const START: UnixMicros = UnixMicros(1_700_000_000_000_000);

/// A stream with a keyframe each second, some of them longer than a piece.
fn stream(codec: Codec) -> (Registry, Right) {
    let registry = Registry::new(Settings::default());
    let peer = Some("192.0.2.1:5000".parse().unwrap());
    let info = PublisherInfo { peer, protocol: "rtmp", rendition: None };
    let mut publisher = registry.publish("x", info, START).unwrap();
    publisher.track(0, codec, 1000, *b"und", START).unwrap();
    let is_video = publisher.stream().state().tracks[0].kind == media::Kind::Video;
    for frame in 0..200_i64 {
        let sync = !is_video || frame % 25 == 0;
        let size = if is_video && frame % 50 == 0 { 2 * PIECE + 700 } else { 300 };
        let (dts, data) = (frame * 40, Bytes::from(vec![frame as u8; size]));
        let sample = Sample { dts, cts: if is_video { 80 } else { 0 }, duration: 40, sync, data };
        let now = UnixMicros(START.0 + frame.unsigned_abs() * 40_000);
        publisher.sample(0, sample, now).unwrap();
    }
    (registry, publisher)
}

fn codecs() -> Vec<Codec> {
    vec![
        Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap()),
        Codec::Aac(aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).unwrap()),
        Codec::Opus(
            opus::Config::parse(Bytes::from_static(&[0, 2, 1, 56, 0, 0, 187, 128, 0, 0, 0]))
                .unwrap(),
        ),
    ]
}

/// All messages that tell of a stream.
fn told(publisher: &Right) -> Vec<Bytes> {
    let mut changes = Changes::new(publisher.stream());
    let mut messages = Vec::new();
    while let Some(change) = changes.take() {
        messages.extend(write(7, &Message::Change(change)).unwrap());
    }
    messages
}

#[test]
fn a_stream_of_each_codec_arrives_as_it_is() {
    for codec in codecs() {
        let (_registry, publisher) = stream(codec);
        let elsewhere = Registry::new(Settings::default());
        let mut mirror: Option<Mirror> = None;
        let mut reader = Reader::default();
        let messages = told(&publisher);
        assert!(messages.iter().all(|bytes| bytes.len() < PIECE + 10_000));
        for bytes in &messages {
            let Some((epoch, Message::Change(change))) = reader.read(bytes).unwrap() else {
                continue;
            };
            assert_eq!(epoch, 7);
            if let Change::Stream(of) = &change {
                mirror.get_or_insert_with(|| elsewhere.mirror("x", of, START).unwrap());
            }
            assert_eq!(mirror.as_mut().unwrap().apply(&change, START).unwrap(), Taken::Yes);
        }
        let (of, copy) = (publisher.stream(), elsewhere.stream("x").unwrap());
        assert_eq!(of.settings(), copy.settings());
        assert_eq!(of.state().publishers, copy.state().publishers);
        let (of, it) = (of.state().tracks[0].window(), copy.state().tracks[0].window());
        assert!(of.all().count() >= 3);
        assert_eq!(of.all().count(), it.all().count());
        // Each message has a header of its own. The copy keeps one of them.
        let headers: Vec<_> = it.all().map(|segment| &segment.header).collect();
        assert!(headers.windows(2).all(|pair| Arc::ptr_eq(pair[0], pair[1])));
        for (one, other) in of.all().zip(it.all()) {
            assert_eq!(
                (one.msn, one.duration, one.captured),
                (other.msn, other.duration, other.captured)
            );
            assert_eq!(one.header.track, other.header.track);
            for (one, other) in one.parts.iter().zip(&other.parts) {
                assert_eq!(one.region.as_ref(), other.region.as_ref());
                assert_eq!(one.samples, other.samples);
            }
        }
    }
}

#[test]
fn a_lost_piece_costs_its_part_only() {
    let (_registry, publisher) = stream(codecs().remove(0));
    let messages = told(&publisher);
    let all = messages.iter().filter(|bytes| bytes.len() > PIECE).count();
    assert!(all >= 4, "{all} pieces");
    let first = messages.iter().position(|bytes| bytes.len() > PIECE).unwrap();
    let (mut reader, mut parts) = (Reader::default(), [0, 0]);
    for (turn, skipped) in [None, Some(first)].into_iter().enumerate() {
        for (at, bytes) in messages.iter().enumerate().filter(|(at, _)| Some(*at) != skipped) {
            match reader.read(bytes) {
                Ok(Some((_, Message::Change(Change::Part(_))))) => parts[turn] += 1,
                Ok(_) => {}
                // The pieces after the lost one.
                Err(error) => assert!(matches!(error, Error::Piece) && at > first, "{at}: {error}"),
            }
        }
    }
    assert_eq!(parts[1], parts[0] - 1);
}

#[test]
fn another_version_is_named() {
    let bytes = write(7, &Message::Done).unwrap().remove(0);
    let mut other = bytes.to_vec();
    other[SUM] = 9;
    let error = Reader::default().read(&seal(other)).unwrap_err();
    assert_eq!(error.to_string(), "a message of format 9, not 4");
    let ask = Ask::Changes(vec![(1, (5, 3))]);
    let mut question = Question { asker: "edge-1".to_owned(), stream: "a/b".to_owned(), ask };
    let written = question.write().unwrap();
    assert_eq!(Question::read(&written).unwrap(), question);
    question.asker = "n".repeat(LONGEST_NAME + 1);
    let written = question.write().unwrap();
    assert!(matches!(Question::read(&written), Err(Error::Range(_))));
    assert!(matches!(Question::read(&seal(vec![0; SUM + 1])), Err(Error::Version(0))));
    assert!(matches!(Question::read(&seal(vec![0; SUM])), Err(Error::Format(_))));
    assert!(matches!(Question::read(&[2]), Err(Error::Damaged)));
}

#[test]
fn no_byte_of_a_message_can_change() {
    let (_registry, publisher) = stream(codecs().remove(1));
    for bytes in told(&publisher).iter().take(5) {
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x10;
            let read = Reader::default().read(&damaged.into());
            assert!(matches!(read, Err(Error::Damaged)), "byte {at}");
        }
    }
}

proptest! {
    /// Whatever comes with a right checksum, a reader and a copy stay usable.
    #[test]
    fn damaged_messages_are_refused_or_taken_but_do_no_harm(
        seed in any::<u64>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (_registry, publisher) = stream(codecs().remove(1));
        let elsewhere = Registry::with_memory(Settings::default(), 64 << 20);
        let mut random = testkit::Random::new(seed);
        let (mut reader, mut mirror) = (Reader::default(), None);
        for bytes in told(&publisher) {
            let mut damaged = bytes.to_vec();
            if random.below(4) == 0 {
                for (at, value) in &flips {
                    let at = SUM + at.index((damaged.len() - SUM).min(200));
                    damaged[at] ^= value;
                }
            }
            let Ok(Some((_, Message::Change(change)))) = reader.read(&seal(damaged)) else { continue };
            if mirror.is_none() && let Change::Stream(of) = &change {
                // A damaged description may be refused.
                mirror = elsewhere.mirror("x", of, START).ok();
            }
            if let Some(mirror) = &mut mirror {
                let _ = mirror.apply(&change, START);
                let stream = mirror.stream();
                prop_assert!(stream.state().tracks.iter().all(|track| track.window().all().count() < 1000));
                stream.state().tracks.iter().for_each(|track| {
                    let _ = track.bitrate();
                });
            }
        }
    }
}
