//! Payloads of HEVC in RTP from any peer, in any order. Access units that come out are whole, and packets that are
//! made of them have the same NAL units again.
#![no_main]

use headwater_fuzz::access_units;
use libfuzzer_sys::fuzz_target;
use media::codec::{Codec, hevc, nal};
use rtp::Output;
use rtp::h265::{depacketizer, packetize};

fuzz_target!(|data: &[u8]| {
    let (mut again, mut config, mut time) = (depacketizer(), None::<hevc::Config>, 0);
    for unit in access_units(depacketizer(), data) {
        match unit.codec {
            Some(Codec::Hevc(new)) => config = Some(new),
            Some(codec) => panic!("{codec:?}"),
            None => {}
        }
        let config = config.as_ref().expect("a configuration before the first picture");
        let is_key = config.is_random_access(&unit.data).expect("lengths add up");
        assert_eq!(is_key, unit.key);
        let sets = config.nal_units.iter().filter(|_| unit.key).map(AsRef::as_ref);
        let nals = nal::units(&unit.data, config.nal_length_size);
        let nals = nals.map(|nal| nal.expect("lengths add up"));
        let payloads = packetize(sets.chain(nals), 100);
        let mut outputs = Vec::new();
        time += 1;
        for (index, payload) in payloads.iter().enumerate() {
            assert!(payload.len() <= 100);
            let marker = index + 1 == payloads.len();
            again.push(time, marker, payload, |output| outputs.push(output));
        }
        match outputs.as_slice() {
            [Output::Unit(same)] => assert_eq!((same.key, &same.data), (unit.key, &unit.data)),
            // Keyframes that lack their first slice are not known to be whole.
            outputs => assert!(outputs.len() <= 1, "{outputs:?}"),
        }
    }
    // Bytes of any kind make no packets that are too long.
    assert!(packetize([data], 100).iter().all(|payload| payload.len() <= 100));
});
