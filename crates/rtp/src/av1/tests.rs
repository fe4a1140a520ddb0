use proptest::prelude::*;

use super::*;
use crate::Output;
use crate::depacketizer::MOST_BYTES;
use crate::depacketizer::testing::{
    any_packets, losses, passes_what_can_be_decoded, push, unit, unit_of_all,
};

/// A sequence header of libaom's: profile 0, 320x240.
const SEQUENCE_HEADER: [u8; 13] = [0x0a, 11, 0, 0, 0, 4, 0x3c, 0xff, 0xbd, 0xff, 0xf9, 0x84, 0x40];

/// A frame of this length, with a header of this first byte.
fn frame(first: u8, length: usize) -> Vec<u8> {
    obu(0x32, &[&[first], pattern(length - 1).as_slice()].concat())
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 251) as u8).collect()
}

/// An OBU with this first byte.
fn obu(header: u8, payload: &[u8]) -> Vec<u8> {
    let mut obu = vec![header];
    av1::write_leb128(payload.len(), &mut obu);
    [&obu, payload].concat()
}

/// A temporal unit with a key frame that is shown.
fn keyframe(length: usize) -> Vec<u8> {
    [&SEQUENCE_HEADER[..], &frame(0x10, length)].concat()
}

/// One with an inter frame that is shown.
fn inter(length: usize) -> Vec<u8> {
    frame(0x30, length)
}

fn payloads(unit: &[u8]) -> Vec<Arc<[u8]>> {
    packetize(unit, av1::is_keyframe(unit).unwrap(), 1100).unwrap()
}

#[test]
fn a_keyframe_brings_its_configuration_once() {
    let mut depacketizer = depacketizer();
    let key = keyframe(5000);
    // The encoder's delimiter and its padding are not sent.
    let encoded = [&[0x12, 0][..], &key, &obu(0x7a, &[0, 0, 0x80])].concat();
    let packets = payloads(&encoded);
    let flags: Vec<_> = packets.iter().map(|packet| packet[0]).collect();
    assert_eq!(flags, [0x68, 0xd0, 0xd0, 0xd0, 0x90], "Z, Y, W and N");
    assert!(packets.iter().take(4).all(|packet| packet.len() == 1100));
    let first = unit(push(&mut depacketizer, 3000, &packets, &[])).unwrap();
    let Some(Codec::Av1(config)) = first.codec else { panic!("{first:?}") };
    assert_eq!((first.time, first.key, first.data.as_ref()), (3000, true, key.as_slice()));
    assert_eq!((config.width, config.height, config.profile), (320, 240, 0));
    assert_eq!(config.obus(), SEQUENCE_HEADER);
    let next = unit(push(&mut depacketizer, 6000, &payloads(&inter(50)), &[])).unwrap();
    assert_eq!((next.key, next.codec, next.data.as_ref()), (false, None, inter(50).as_slice()));
    let again = unit(push(&mut depacketizer, 9000, &packets, &[])).unwrap();
    assert!(again.key && again.codec.is_none());
}

#[test]
fn decoding_starts_at_key_frames_that_are_shown_and_have_a_sequence_header() {
    for (what, start, is_key) in [
        ("a key frame", keyframe(50), true),
        ("one that is shown later", [&SEQUENCE_HEADER[..], &frame(0x00, 50)].concat(), false),
        ("one that is shown again", [&SEQUENCE_HEADER[..], &obu(0x1a, &[0x80])].concat(), false),
        ("a frame of intra blocks", [&SEQUENCE_HEADER[..], &frame(0x50, 50)].concat(), false),
        ("no sequence header", frame(0x10, 50), false),
        (
            "a sequence header that is late",
            [frame(0x10, 50), SEQUENCE_HEADER.into()].concat(),
            false,
        ),
    ] {
        let outputs = push(&mut depacketizer(), 0, &payloads(&start), &[]);
        assert_eq!(unit(outputs).is_some(), is_key, "{what}");
    }
    // All layers of a temporal unit stay together. Those above the first are frames of their own.
    let mut second = obu(0x36, &pattern(700));
    second.insert(1, 0x08);
    let layers = [keyframe(50), second].concat();
    let outputs = push(&mut depacketizer(), 0, &payloads(&layers), &[]);
    assert_eq!(unit(outputs).unwrap().data, layers);
}

#[test]
fn packets_of_other_senders_are_read() {
    // Of libwebrtc's and str0m's tests.
    for (packets, expected) in [
        (&[&[0x10, 0x30, 0x14, 0x1e, 0x28][..]][..], &[0x32, 3, 0x14, 0x1e, 0x28][..]),
        (&[&[0x10, 0x32, 3, 0x14, 0x1e, 0x28]], &[0x32, 3, 0x14, 0x1e, 0x28]),
        (&[&[0x10, 0x34, 0x48, 0x14]], &[0x36, 0x48, 1, 0x14]),
        (&[&[0x20, 2, 0x08, 0x0a, 0x30, 0x14]], &[0x0a, 1, 0x0a, 0x32, 1, 0x14]),
        (
            &[&[0x60, 2, 0x08, 0x0a, 0x30, 0x14, 0x1e], &[0x90, 0x28]],
            &[0x0a, 1, 0x0a, 0x32, 3, 0x14, 0x1e, 0x28],
        ),
        (
            &[
                &[
                    0x40, 2, 0x08, 0x0a, 2, 0x28, 0x14, 4, 0x2c, 0x30, 0x14, 0x1e, 5, 0x34, 0x30,
                    0x28, 0x32, 0x3c,
                ],
                &[0x90, 0x46, 0x50, 0x5a],
            ],
            &[
                0x0a, 1, 0x0a, 0x2a, 1, 0x14, 0x2e, 0x30, 2, 0x14, 0x1e, 0x36, 0x30, 6, 0x28, 0x32,
                0x3c, 0x46, 0x50, 0x5a,
            ],
        ),
        (
            &[&[0x50, 0x30, 0x0b, 0x0c], &[0xd0, 0x0d], &[0x90, 0x12]],
            &[0x32, 4, 0x0b, 0x0c, 0x0d, 0x12],
        ),
    ] {
        let mut format = Format::default();
        let taken = packets.iter().all(|packet| format.take(packet).is_some());
        assert!(taken && !format.give_up_fragment(), "{packets:x?}");
        assert_eq!(format.finish().data, expected, "{packets:x?}");
    }
}

#[test]
fn after_a_loss_a_whole_keyframe_is_waited_for() {
    let (key, frame) = (payloads(&keyframe(5000)), payloads(&inter(3000)));
    assert_eq!(frame.len(), 3);
    for lost in 0..3 {
        let mut depacketizer = depacketizer();
        unit(push(&mut depacketizer, 0, &key, &[])).unwrap();
        let mut outputs = push(&mut depacketizer, 1, &frame, &[lost]);
        outputs.extend(push(&mut depacketizer, 2, &frame, &[]));
        assert!(depacketizer.waits(), "{lost}");
        assert!(outputs.iter().all(|output| matches!(output, Output::Broken(None))), "{lost}");
        // A keyframe that begins right after the loss may lack its first packets.
        depacketizer.lose();
        assert_eq!(unit(push(&mut depacketizer, 3, &key[2..], &[])), None);
        assert!(unit(push(&mut depacketizer, 4, &key, &[])).is_some());
        assert!(unit(push(&mut depacketizer, 5, &frame, &[])).is_some());
        // A whole temporal unit is lost. The keyframe after it is whole.
        depacketizer.lose();
        assert!(unit(push(&mut depacketizer, 6, &key, &[])).is_some());
    }
    for missing in 1..key.len() {
        let outputs = push(&mut depacketizer(), 0, &key[missing..], &[]);
        assert!(matches!(outputs.as_slice(), [Output::Broken(None)]), "{missing}: {outputs:?}");
    }
}

#[test]
fn payloads_that_break_the_format_are_named_and_spoil_their_temporal_unit() {
    let mut depacketizer = depacketizer();
    unit(push(&mut depacketizer, 0, &payloads(&keyframe(50)), &[])).unwrap();
    for (what, payload) in [
        ("no elements", &[0x10][..]),
        ("an element that goes on from nowhere", &[0x90, 0x30, 1]),
        ("an element that never ends", &[0x50, 0x30, 1]),
        ("an empty element", &[0x00, 0]),
        ("a length that is cut off", &[0x00, 0x80]),
        ("a length of nine bytes", &[0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0x30]),
        ("a length beyond the end", &[0x00, 9, 0x30, 1]),
        ("a length of 32 bits", &[0x00, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x30, 1]),
        ("fewer elements than are counted", &[0x20, 2, 0x30, 1]),
        ("the forbidden bit", &[0x10, 0xb0, 1]),
        ("an OBU without its extension", &[0x10, 0x34]),
        ("an OBU with a size beyond its element", &[0x10, 0x32, 3, 1]),
        ("an OBU with a size before the end", &[0x10, 0x32, 1, 1, 1]),
    ] {
        let mut outputs = Vec::new();
        depacketizer.push(1, true, payload, |output| outputs.push(output));
        let [Output::Broken(error)] = outputs.as_slice() else { panic!("{what}: {outputs:?}") };
        // A temporal unit may end too soon because its packets are lost at the end.
        let is_named = error.as_ref().is_some_and(|error| error.to_string().contains("AV1 in RTP"));
        assert_eq!(is_named, what != "an element that never ends", "{what}: {error:?}");
        assert!(depacketizer.waits(), "{what}");
        unit(push(&mut depacketizer, 2, &payloads(&keyframe(50)), &[])).unwrap();
    }
    // A sequence header that cannot be read: it has a reserved profile.
    let reserved = [&obu(0x0a, &[0xff; 11])[..], &frame(0x10, 50)].concat();
    let outputs = push(&mut depacketizer, 3, &payloads(&reserved), &[]);
    let [Output::Broken(Some(error))] = outputs.as_slice() else { panic!("{outputs:?}") };
    assert!(error.to_string().contains("a reserved profile"), "{error}");
    assert!(packetize(&[0x32, 9, 1], false, 1100).is_none(), "a temporal unit that is cut off");
}

#[test]
fn a_temporal_unit_has_a_limit() {
    let mut format = Format::default();
    let mut fragment = pattern(60_000);
    fragment[..2].copy_from_slice(&[0x50, 0x30]);
    assert!(format.take(&fragment).is_some());
    fragment[0] = 0xd0;
    let taken = (0..1000).filter(|_| format.take(&fragment).is_some()).count();
    assert!(taken < 1000 && format.unit.len() <= MOST_BYTES);
    // Short OBUs are many, and each takes time.
    let mut format = Format::default();
    let short = [&[0x00][..], &[2, 0x28, 0].repeat(500)].concat();
    let taken = (0..1000).filter(|_| format.take(&short).is_some()).count();
    assert!(taken == 32 && format.unit.len() < 60_000, "{taken} {}", format.unit.len());
    // A sequence header is kept, so it has a limit of its own.
    let long = [&[0x10, 0x08], pattern(MOST_SEQUENCE_HEADER + 1).as_slice()].concat();
    assert!(Format::default().take(&long).is_none());
    assert!(Format::default().take(&long[..long.len() - 1]).is_some());
}

proptest! {
    /// Any OBUs come back, whatever the size of packets. Each packet goes on with the OBU that the packet before
    /// ends with, so that all are one frame to a receiver.
    #[test]
    fn comes_back(
        sizes in prop::collection::vec(5usize..400, 1..12),
        large in 1usize..4000,
        most in 16usize..1500,
    ) {
        let frames = sizes.iter().chain([&large]).flat_map(|&size| frame(0x10, size));
        let whole: Vec<_> = SEQUENCE_HEADER.into_iter().chain(frames).collect();
        let packets = packetize(&whole, true, most).unwrap();
        for (index, packet) in packets.iter().enumerate() {
            let (is_first, is_last) = (index == 0, index + 1 == packets.len());
            prop_assert_eq!(packet[0] & (GOES_ON | WILL_GO_ON | BEGINS), match (is_first, is_last) {
                (true, true) => BEGINS,
                (true, false) => BEGINS | WILL_GO_ON,
                (false, true) => GOES_ON,
                (false, false) => GOES_ON | WILL_GO_ON,
            });
            prop_assert!(is_last || packet.len() + 6 >= most, "{} of {most}", packet.len());
        }
        let unit = unit_of_all(depacketizer(), &packets, most);
        prop_assert_eq!(unit.data, whole);
    }

    /// OBUs of a byte come back, too. They cannot be cut.
    #[test]
    fn short_ones_come_back(count in 1usize..60, most in 16usize..40) {
        let short = [0x2a, 0].repeat(count);
        let whole = [&SEQUENCE_HEADER[..], &short, &frame(0x10, 30), &short].concat();
        let packets = packetize(&whole, true, most).unwrap();
        let unit = unit_of_all(depacketizer(), &packets, most);
        prop_assert_eq!(unit.data, whole);
    }

    /// Whatever comes in whatever order, each unit that goes out follows a whole keyframe.
    #[test]
    fn nothing_undecodable_passes(losses in losses()) {
        let pictures = [payloads(&keyframe(3000)), payloads(&inter(2500))];
        passes_what_can_be_decoded(depacketizer(), pictures, losses)?;
    }

    #[test]
    fn no_input_panics(input in any_packets()) {
        let mut depacketizer = depacketizer();
        for (time, marker, payload) in input {
            depacketizer.push(time, marker, &payload, |_| {});
            packetize(&payload, marker, 20);
        }
    }
}
