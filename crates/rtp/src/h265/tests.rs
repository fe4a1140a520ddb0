use media::codec::nal;
use proptest::prelude::*;

use super::*;
use crate::depacketizer::testing::{
    any_packets, losses, passes_what_can_be_decoded, push, unit, unit_of_all,
};
use crate::depacketizer::{MOST_BYTES, PayloadFormat};
use crate::nal::MOST_SETS;
use crate::{AccessUnit, Output};

const TRAIL_R: u8 = 1;
const RADL_R: u8 = 7;
const RASL_R: u8 = 9;
const BLA_W_LP: u8 = 16;
const IDR_W_RADL: u8 = 19;
const CRA: u8 = 21;
const EOS: u8 = 36;
const PREFIX_SEI: u8 = 39;

/// A slice of this type and length that begins a picture.
fn slice(kind: u8, length: usize) -> Vec<u8> {
    let mut nal = vec![kind << 1, 1, 0x88];
    nal.extend((3..length).map(|index| (index * 7 % 251) as u8));
    nal
}

/// An access unit with a delimiter, parameter sets, and a picture of this type.
fn keyframe(kind: u8, length: usize) -> Vec<Vec<u8>> {
    let [vps, sps, pps] = testkit::hevc_sets();
    vec![vec![AUD << 1, 1, 0x50], vps, sps, pps, slice(kind, length)]
}

fn payloads(nals: &[Vec<u8>]) -> Vec<Arc<[u8]>> {
    packetize(nals.iter().map(Vec::as_slice), 1100)
}

fn nals(unit: &AccessUnit) -> Vec<&[u8]> {
    nal::units(&unit.data, 4).map(Result::unwrap).collect()
}

#[test]
fn a_keyframe_brings_its_configuration_once() {
    let mut depacketizer = depacketizer();
    let key = keyframe(IDR_W_RADL, 5000);
    let packets = payloads(&key);
    // What is small shares a packet: its type is 48. The slice is cut into fragments.
    let flags: Vec<_> = packets.iter().map(|packet| (packet[0] >> 1, packet[2])).collect();
    assert_eq!(flags, [(48, 0), (49, 0x93), (49, 0x13), (49, 0x13), (49, 0x13), (49, 0x53)]);
    assert!(packets.iter().all(|packet| packet.len() <= 1100 && packet[1] == 1));
    let first = unit(push(&mut depacketizer, 3000, &packets, &[])).unwrap();
    assert_eq!((first.time, first.key, nals(&first)), (3000, true, vec![key[4].as_slice()]));
    let Some(Codec::Hevc(config)) = first.codec else { panic!("{first:?}") };
    assert_eq!((config.width, config.height, config.nal_length_size), (320, 180, 4));
    assert_eq!(config.nal_units, testkit::hevc_sets());
    assert_eq!(config.rfc6381(), "hvc1.1.6.L93.90");
    let next = unit(push(&mut depacketizer, 6000, &payloads(&[slice(TRAIL_R, 50)]), &[])).unwrap();
    assert_eq!((next.key, next.codec, next.data.len()), (false, None, 54));
    let again = unit(push(&mut depacketizer, 9000, &packets, &[])).unwrap();
    assert!(again.key && again.codec.is_none());
}

#[test]
fn decoding_starts_at_each_kind_of_keyframe_and_nowhere_else() {
    for kind in 0..=31 {
        let outputs = push(&mut depacketizer(), 0, &payloads(&keyframe(kind, 50)), &[]);
        assert_eq!(unit(outputs).is_some(), IRAP.contains(&kind), "{kind}");
    }
}

#[test]
fn leading_pictures_are_left_out_where_what_they_refer_to_is_not_there() {
    let mut depacketizer = depacketizer();
    let mut time = 0;
    let mut passes = |depacketizer: &mut Depacketizer, kind: u8| {
        time += 1;
        let nals = if IRAP.contains(&kind) { keyframe(kind, 50) } else { vec![slice(kind, 50)] };
        let outputs = push(depacketizer, time, &payloads(&nals), &[]);
        // Nothing is wrong with those that are left out, so no keyframe is asked for.
        assert!(outputs.iter().all(|it| matches!(it, Output::Unit(_))), "{kind}: {outputs:?}");
        !outputs.is_empty()
    };
    // The first keyframe, one in the middle, one after a loss, and a link to another stream.
    for (keyframe, lost, expected) in
        [(CRA, false, false), (CRA, false, true), (CRA, true, false), (BLA_W_LP, false, false)]
    {
        if lost {
            depacketizer.lose();
        }
        assert!(passes(&mut depacketizer, keyframe));
        assert_eq!(passes(&mut depacketizer, RASL_R), expected, "{keyframe} {lost}");
        assert!(passes(&mut depacketizer, RADL_R) && passes(&mut depacketizer, TRAIL_R));
    }
}

#[test]
fn what_is_no_part_of_samples_is_passed_over() {
    let mut depacketizer = depacketizer();
    let message = vec![PREFIX_SEI << 1, 1, 4, 1, 0x80];
    let mut other = slice(TRAIL_R, 50);
    other[1] = 9;
    let mut access_unit = keyframe(IDR_W_RADL, 50);
    let picture = access_unit[4].clone();
    access_unit.insert(4, message.clone());
    access_unit.extend([vec![FD << 1, 1, 0xff], other, vec![EOS << 1, 1]]);
    let unit = unit(push(&mut depacketizer, 0, &payloads(&access_unit), &[])).unwrap();
    assert_eq!(nals(&unit), [message, picture, vec![EOS << 1, 1]]);
    // It makes no access unit either.
    let outputs = push(&mut depacketizer, 1, &payloads(&access_unit[6..7]), &[]);
    assert!(outputs.is_empty(), "{outputs:?}");
}

#[test]
fn after_a_loss_a_whole_keyframe_is_waited_for() {
    let (key, frame) = (payloads(&keyframe(IDR_W_RADL, 5000)), payloads(&[slice(TRAIL_R, 3000)]));
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
        // Its parameter sets alone are missing.
        depacketizer.lose();
        assert_eq!(unit(push(&mut depacketizer, 4, &key[1..], &[])), None);
        assert!(unit(push(&mut depacketizer, 5, &key, &[])).is_some());
        assert!(unit(push(&mut depacketizer, 6, &frame, &[])).is_some());
        // A whole picture is lost. The keyframe after it is whole.
        depacketizer.lose();
        assert!(unit(push(&mut depacketizer, 7, &key, &[])).is_some());
    }
    for missing in 1..key.len() {
        let outputs = push(&mut depacketizer(), 0, &key[missing..], &[]);
        assert!(matches!(outputs.as_slice(), [Output::Broken(None)]), "{missing}: {outputs:?}");
    }
}

#[test]
fn payloads_that_break_the_format_are_named_and_spoil_their_access_unit() {
    let mut depacketizer = depacketizer();
    let key = payloads(&keyframe(IDR_W_RADL, 50));
    unit(push(&mut depacketizer, 0, &key, &[])).unwrap();
    for (what, payload) in [
        ("half a header", &[0x02][..]),
        ("a slice without data", &[0x02, 1]),
        ("the forbidden bit", &[0x82, 1, 0x88]),
        ("no temporal layer", &[0x02, 0, 0x88]),
        ("a reserved type", &[0x7e, 1, 0x88]),
        ("PACI", &[0x64, 1, 0x04, 0x00, 0x88]),
        ("half a length", &[0x60, 1, 0]),
        ("a length beyond the end", &[0x60, 1, 0, 9, 0x02, 1]),
        ("an empty unit", &[0x60, 1, 0, 0]),
        ("packets within packets", &[0x60, 1, 0, 3, 0x60, 1, 0]),
        ("a fragment without its header", &[0x62, 1]),
        ("a fragment without data", &[0x62, 1, 0x81]),
        ("a fragment that goes on from nowhere", &[0x62, 1, 0x01, 1]),
        ("a fragment of a fragment", &[0x62, 1, 0xf1, 1]),
        ("a fragment that never ends", &[0x62, 1, 0x81, 1]),
    ] {
        let mut outputs = Vec::new();
        depacketizer.push(1, true, payload, |output| outputs.push(output));
        let [Output::Broken(error)] = outputs.as_slice() else { panic!("{what}: {outputs:?}") };
        // An access unit may end too soon because its packets are lost at the end.
        let is_named = error.as_ref().is_some_and(|it| it.to_string().contains("HEVC in RTP"));
        assert_eq!(is_named, what != "a fragment that never ends", "{what}: {error:?}");
        assert!(depacketizer.waits(), "{what}");
        unit(push(&mut depacketizer, 2, &key, &[])).unwrap();
    }
    // A sequence parameter set that is none.
    let [vps, _, pps] = testkit::hevc_sets();
    let nals = [vps, vec![SPS << 1, 1, 2, 3, 4], pps, slice(CRA, 50)];
    let outputs = push(&mut depacketizer, 3, &payloads(&nals), &[]);
    assert!(matches!(outputs[..], [Output::Broken(Some(_))]), "{outputs:?}");
}

#[test]
fn an_access_unit_has_a_limit() {
    let mut format = Format::<H265>::default();
    let fragment = |head| [&[0x62, 1, head], vec![1; 60_000].as_slice()].concat();
    assert!(format.take(&fragment(0x81)).is_some());
    let taken = (0..1000).filter(|_| format.take(&fragment(0x01)).is_some()).count();
    assert!(taken < 1000 && format.unit.len() <= MOST_BYTES && format.give_up_fragment());
    // Short units are many, and each takes time.
    let mut format = Format::<H265>::default();
    let short = [&[0x60, 1][..], &[0, 2, 0x48, 1].repeat(1000)].concat();
    let taken = (0..1000).filter(|_| format.take(&short).is_some()).count();
    assert!(taken == 16 && format.unit.len() < 100_000, "{taken} {}", format.unit.len());
    let mut format = Format::<H265>::default();
    for (kind, set) in testkit::hevc_sets().iter().enumerate() {
        let more = (0..100u8).map(|number| [set.as_slice(), &[number]].concat());
        assert_eq!(more.filter(|set| format.take(set).is_some()).count(), MOST_SETS.0);
        assert_eq!(format.sets[kind].len(), MOST_SETS.0);
    }
    let long = [testkit::hevc_sets()[0].as_slice(), &vec![1; MOST_SETS.1]].concat();
    assert!(Format::<H265>::default().take(&long).is_none());
}

#[test]
fn a_packet_of_several_units_has_their_lowest_layers() {
    let units: [&[u8]; 3] = [&[0x4e, 0x0b, 1], &[0xce, 0x0a, 1], &[0x4f, 0x13, 1]];
    let [packet] = packetize(units, 100).try_into().unwrap();
    assert_eq!(packet[..7], [0xe0, 0x0a, 0, 3, 0x4e, 0x0b, 1]);
}

proptest! {
    /// Any NAL units come back, whatever the size of packets.
    #[test]
    fn comes_back(
        sizes in prop::collection::vec(4usize..4000, 1..12),
        most in 20usize..1500,
    ) {
        let slices: Vec<_> = sizes.iter().map(|&size| slice(IDR_W_RADL, size)).collect();
        let all = [testkit::hevc_sets().to_vec(), slices.clone()].concat();
        let packets = packetize(all.iter().map(Vec::as_slice), most);
        let unit = unit_of_all(depacketizer(), &packets, most);
        prop_assert_eq!(nals(&unit), slices);
    }

    /// Whatever comes in whatever order, each unit that goes out follows a whole keyframe.
    #[test]
    fn nothing_undecodable_passes(losses in losses()) {
        let pictures = [payloads(&keyframe(CRA, 3000)), payloads(&[slice(TRAIL_R, 2500)])];
        passes_what_can_be_decoded(depacketizer(), pictures, losses)?;
    }

    #[test]
    fn no_input_panics(input in any_packets()) {
        let mut depacketizer = depacketizer();
        for (time, marker, payload) in input {
            depacketizer.push(time, marker, &payload, |_| {});
            packetize([payload.as_slice()], 20);
        }
    }
}
