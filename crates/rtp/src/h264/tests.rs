use media::codec::nal;
use proptest::prelude::*;

use super::*;
use crate::Output;
use crate::depacketizer::testing::{
    any_packets, losses, passes_what_can_be_decoded, push, unit, unit_of_all,
};
use crate::depacketizer::{MOST_BYTES, PayloadFormat};
use crate::nal::MOST_SETS;

fn sets() -> (Vec<u8>, Vec<u8>) {
    let record = avc::Config::parse(testkit::avc_record(31).into()).unwrap();
    (record.sps[0].to_vec(), record.pps[0].to_vec())
}

/// A slice of this type and length that begins a picture.
fn slice(kind: u8, length: usize) -> Vec<u8> {
    let mut nal = vec![0x60 | kind, 0x88];
    nal.extend((2..length).map(|index| (index * 7 % 251) as u8));
    nal
}

fn keyframe(length: usize) -> Vec<Vec<u8>> {
    let (sps, pps) = sets();
    vec![vec![9, 0xf0], sps, pps, slice(IDR, length)]
}

fn payloads(nals: &[Vec<u8>]) -> Vec<Arc<[u8]>> {
    packetize(nals.iter().map(Vec::as_slice), 1100)
}

#[test]
fn a_keyframe_brings_its_configuration_once() {
    let mut depacketizer = depacketizer();
    let nals = keyframe(5000);
    let packets = payloads(&nals);
    assert!(packets.len() > 5 && packets.iter().all(|packet| packet.len() <= 1100));
    let first = unit(push(&mut depacketizer, 3000, &packets, &[])).unwrap();
    let Some(Codec::Avc(config)) = first.codec else { panic!("{first:?}") };
    assert_eq!((first.time, first.key, config.nal_length_size), (3000, true, 4));
    assert_eq!((config.sps, config.pps), (vec![sets().0.into()], vec![sets().1.into()]));
    let kept: Vec<_> = nal::units(&first.data, 4).map(Result::unwrap).collect();
    assert_eq!(kept, [nals[3].as_slice()]);
    let next = unit(push(&mut depacketizer, 6000, &payloads(&[slice(1, 50)]), &[])).unwrap();
    assert_eq!((next.key, next.codec, next.data.len()), (false, None, 54));
    let again = unit(push(&mut depacketizer, 9000, &packets, &[])).unwrap();
    assert!(again.key && again.codec.is_none());
}

#[test]
fn padding_between_pictures_and_within_them_is_passed_over() {
    let mut depacketizer = depacketizer();
    let padding: Arc<[u8]> = Arc::new([]);
    for time in [3000, 6000] {
        let mut packets = payloads(&keyframe(3000));
        packets.insert(0, padding.clone());
        packets.insert(2, padding.clone());
        assert!(unit(push(&mut depacketizer, time, &packets, &[])).unwrap().key);
        let after = push(&mut depacketizer, time, &[padding.clone(), padding.clone()], &[]);
        assert!(after.is_empty(), "{after:?}");
        let next = payloads(&[slice(1, 50)]);
        assert!(unit(push(&mut depacketizer, time + 1000, &next, &[])).is_some());
    }
}

#[test]
fn after_a_loss_a_whole_keyframe_is_waited_for() {
    let key = payloads(&keyframe(5000));
    let frame = payloads(&[slice(1, 3000)]);
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
        // A whole picture is lost. The keyframe after it is whole.
        depacketizer.lose();
        assert!(unit(push(&mut depacketizer, 6, &key, &[])).is_some());
    }
}

#[test]
fn a_stream_whose_first_packets_are_overtaken_is_not_malformed() {
    let key = payloads(&keyframe(5000));
    for missing in 1..key.len() {
        let mut depacketizer = depacketizer();
        let outputs = push(&mut depacketizer, 0, &key[missing..], &[]);
        assert!(matches!(outputs.as_slice(), [Output::Broken(None)]), "{missing}: {outputs:?}");
        assert!(unit(push(&mut depacketizer, 1, &key, &[])).is_some());
    }
}

#[test]
fn the_end_of_one_picture_and_the_start_of_the_next_are_lost() {
    let key = payloads(&keyframe(5000));
    let mut depacketizer = depacketizer();
    let last = key.len() - 1;
    let mut outputs = Vec::new();
    for payload in &key[..last] {
        depacketizer.push(0, false, payload, |output| outputs.push(output));
    }
    depacketizer.lose();
    for payload in &key[3..] {
        depacketizer.push(1, false, payload, |output| outputs.push(output));
    }
    depacketizer.push(2, true, &key[0], |output| outputs.push(output));
    assert_eq!(unit(outputs), None);
}

#[test]
fn what_is_no_h264_is_refused() {
    let mut depacketizer = depacketizer();
    let mut spoils = |payload: &[u8]| {
        let mut outputs = Vec::new();
        depacketizer.push(0, true, payload, |output| outputs.push(output));
        assert!(matches!(outputs[..], [Output::Broken(_)]), "{payload:?}: {outputs:?}");
    };
    // A reserved type, aggregates that run out, fragments without start, data or end, and
    // a keyframe without parameter sets.
    for payload in [
        &[0x60][..],
        &[0x7e, 1, 2],
        &[0x78, 0],
        &[0x78, 0, 9, 1],
        &[0x78, 0, 0],
        &[0x7c],
        &[0x7c, 0x85],
        &[0x7c, 0x05, 1],
        &[0x7c, 0x85, 1],
        &[0x65, 0x88, 1],
    ] {
        spoils(payload);
    }
    // A sequence parameter set that is none.
    let nals = [vec![0x67, 1, 2, 3, 4], sets().1, slice(IDR, 50)];
    let outputs = push(&mut depacketizer, 1, &payloads(&nals), &[]);
    assert!(matches!(outputs[..], [Output::Broken(Some(_))]), "{outputs:?}");
}

#[test]
fn an_access_unit_has_a_limit() {
    let mut format = Format::<H264>::default();
    let fragment = |head| [&[0x7c, head], vec![1; 60_000].as_slice()].concat();
    assert!(format.take(&fragment(0x81)).is_some());
    let taken = (0..1000).filter(|_| format.take(&fragment(0x01)).is_some()).count();
    assert!(taken < 1000 && format.unit.len() <= MOST_BYTES && format.give_up_fragment());
    let (sps, _) = sets();
    let more = (0..100u8).map(|number| [sps.as_slice(), &[number]].concat());
    assert_eq!(more.filter(|set| format.take(set).is_some()).count(), MOST_SETS.0);
    assert_eq!(format.sets[0].len(), MOST_SETS.0);
}

proptest! {
    /// Any NAL units come back, whatever the size of packets.
    #[test]
    fn comes_back(
        sizes in prop::collection::vec(2usize..4000, 1..12),
        most in 20usize..1500,
    ) {
        let (sps, pps) = sets();
        let slices: Vec<_> = sizes.iter().map(|&size| slice(IDR, size)).collect();
        let nals = [vec![sps, pps], slices.clone()].concat();
        let packets = packetize(nals.iter().map(Vec::as_slice), most);
        let unit = unit_of_all(depacketizer(), &packets, most);
        let kept: Vec<_> = nal::units(&unit.data, 4).map(Result::unwrap).collect();
        prop_assert_eq!(kept, slices);
    }

    /// Whatever comes in whatever order, each unit that goes out follows a whole keyframe.
    #[test]
    fn nothing_undecodable_passes(losses in losses()) {
        let pictures = [payloads(&keyframe(3000)), payloads(&[slice(1, 2500)])];
        passes_what_can_be_decoded(depacketizer(), pictures, losses)?;
    }

    #[test]
    fn no_input_panics(input in any_packets()) {
        let mut depacketizer = depacketizer();
        for (time, marker, payload) in input {
            depacketizer.push(time, marker, &payload, |_| {});
        }
    }
}
