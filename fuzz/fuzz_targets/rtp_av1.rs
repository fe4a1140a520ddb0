//! Payloads of AV1 in RTP from any peer, in any order. Temporal units that come out are whole, and packets that are
//! made of them lead to the same again.
#![no_main]

use headwater_fuzz::access_units;
use libfuzzer_sys::fuzz_target;
use media::codec::av1;
use rtp::Output;
use rtp::av1::{depacketizer, packetize};

/// A packet with a keyframe: a sequence header, and the start of a frame.
const KEYFRAME: [u8; 17] =
    [0x28, 12, 0x08, 0, 0, 0, 4, 0x3c, 0xff, 0xbd, 0xff, 0xf9, 0x84, 0x40, 0x30, 0x10, 0];

fuzz_target!(|data: &[u8]| {
    for unit in access_units(depacketizer(), data) {
        av1::check(&unit.data).expect("sizes add up");
        let payloads = packetize(&unit.data, unit.key, 100).expect("sizes add up");
        let (mut depacketizer, mut again) = (depacketizer(), None);
        depacketizer.push(0, true, &KEYFRAME, |_| {});
        for (index, payload) in payloads.iter().enumerate() {
            assert!(payload.len() <= 100);
            let marker = index + 1 == payloads.len();
            depacketizer.push(1, marker, payload, |output| again = Some(output));
        }
        let Some(Output::Unit(again)) = again else { panic!("{again:?}") };
        assert_eq!((again.key, again.data), (unit.key, unit.data));
    }
    // Bytes of any kind make no packets, or such as are not too long.
    let payloads = packetize(data, false, 100).unwrap_or_default();
    assert!(payloads.iter().all(|payload| payload.len() <= 100));
});
