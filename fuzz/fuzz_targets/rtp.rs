//! Payloads of H.264 in RTP from any peer, in any order. Units that come out are whole, and can be
//! packetized again.
#![no_main]

use headwater_fuzz::access_units;
use libfuzzer_sys::fuzz_target;
use media::codec::nal;
use rtp::h264::{depacketizer, packetize};

fuzz_target!(|data: &[u8]| {
    for unit in access_units(depacketizer(), data) {
        let nals = nal::units(&unit.data, 4).map(|nal| nal.expect("lengths add up"));
        let payloads = packetize(nals, 100);
        assert!(payloads.iter().all(|payload| payload.len() <= 100));
    }
});
