//! Ogg streams from anyone: packets are bounded, and reading them in other pieces gives the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use media::ogg::{Packet, Reader};

fuzz_target!(|stream: &[u8]| {
    let packets = read(stream, 97);
    assert_eq!(packets, read(stream, usize::MAX));
    assert!(packets.iter().map(|packet| packet.data.len()).sum::<usize>() <= stream.len());
});

/// The packets before the first error.
fn read(stream: &[u8], piece: usize) -> Vec<Packet> {
    let (mut reader, mut packets) = (Reader::new(), Vec::new());
    for bytes in stream.chunks(piece) {
        reader.handle_bytes(bytes);
        loop {
            match reader.poll_packet() {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => break,
                Err(_) => return packets,
            }
        }
    }
    packets
}
