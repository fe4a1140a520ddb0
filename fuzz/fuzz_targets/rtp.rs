//! Payloads of H.264 in RTP from any peer, in any order. Units that come out are whole, and can be
//! packetized again.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use media::codec::nal;
use rtp::Output;
use rtp::h264::{depacketizer, packetize};
use rtp::reorder::{Next, Packet, Reorder};

fuzz_target!(|data: &[u8]| {
    let mut depacketizer = depacketizer();
    let mut reorder = Reorder::new(Duration::from_millis(200));
    let (mut rest, mut now, mut units) = (data, Instant::now(), Vec::new());
    // Each packet: its sequence number, flags (the marker, a new picture, a pause), length, payload.
    while let &[sequence, flags, length, ref after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(length.into()));
        rest = after;
        let time = u32::from(flags >> 4);
        let sequence = u64::from(sequence);
        let packet = Packet { sequence, time, marker: flags & 1 != 0, payload: payload.into() };
        reorder.push(packet, now);
        now += Duration::from_millis(u64::from(flags & 2) * 150);
        while let Some(next) = reorder.pop(now) {
            match next {
                Next::Lost(_) => depacketizer.lose(),
                Next::Packet(packet) => {
                    depacketizer.push(packet.time, packet.marker, &packet.payload, |output| {
                        if let Output::Unit(unit) = output {
                            units.push(unit);
                        }
                    });
                }
            }
        }
    }
    for unit in units {
        let nals = nal::units(&unit.data, 4).map(|nal| nal.expect("lengths add up"));
        let payloads = packetize(nals, 100);
        assert!(payloads.iter().all(|payload| payload.len() <= 100));
    }
});
