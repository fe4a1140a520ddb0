//! Transport-wide feedback: which packets came, and when
//! (draft-holmer-rmcat-transport-wide-cc-extensions-01, section 3.1).

use crate::bandwidth::MOST_SENT;
use crate::rtcp::{PADDING, packets};

/// Bytes of the header of an RTCP packet with both SSRCs (RFC 4585 6.1), and of what is before the chunks.
const HEADER: usize = 12;
const FIXED: usize = 8;

/// The first two bytes of an RTCP packet with such feedback: FMT 15 of RTPFB, without the padding's bit.
const KIND: [u8; 2] = [0x8f, 205];

/// Units of the reference time, and of the deltas, in microseconds.
const REFERENCE: i64 = 64_000;
const DELTA: i64 = 250;

/// A packet's number, and when it came in microseconds of the receiver's clock, or `None` if it has not come.
pub type Told = (u64, Option<i64>);

/// What a compound RTCP packet tells of packets, in the order of their numbers. `next` is the number of
/// the next packet: numbers are the nearest to it with the transport-wide sequence numbers. What is broken,
/// and what tells of more than [`MOST_SENT`] packets, tells nothing.
pub fn read(compound: &[u8], next: u64) -> Vec<Told> {
    let bodies = packets(compound).filter(|packet| is_feedback(packet));
    let bodies = bodies.filter_map(|packet| packet.get(HEADER..));
    bodies.flat_map(|body| message(body, next).unwrap_or_default()).collect()
}

/// Whether an RTCP packet is such feedback.
pub fn is_feedback(packet: &[u8]) -> bool {
    matches!(packet, [first, kind, ..] if [first & !PADDING, *kind] == KIND)
}

/// Reads one message. `None` if it is broken.
fn message(body: &[u8], next: u64) -> Option<Vec<Told>> {
    let (&[b0, b1, c0, c1, r0, r1, r2, _], mut rest) = body.split_first_chunk::<FIXED>()?;
    let count = usize::from(u16::from_be_bytes([c0, c1]));
    if count > MOST_SENT {
        return None;
    }
    let mut symbols = Vec::with_capacity(count);
    while symbols.len() < count {
        let (chunk, after) = rest.split_first_chunk()?;
        rest = after;
        let left = count - symbols.len();
        symbols.extend(Chunk(u16::from_be_bytes(*chunk)).symbols().take(left));
    }
    // 24 bits with a sign.
    let mut time = i64::from(i32::from_be_bytes([r0, r1, r2, 0]) >> 8) * REFERENCE;
    let behind = u16::from_be_bytes([b0, b1]).wrapping_sub(next as u16) as i16;
    let base = next.checked_add_signed(behind.into())?;
    let mut told = Vec::with_capacity(count);
    for (number, symbol) in (base..).zip(symbols) {
        let delta = match symbol {
            1 => {
                let (&[delta], after) = rest.split_first_chunk()?;
                rest = after;
                Some(i64::from(delta))
            }
            2 => {
                let (delta, after) = rest.split_first_chunk()?;
                rest = after;
                Some(i64::from(i16::from_be_bytes(*delta)))
            }
            _ => None,
        };
        time += delta.unwrap_or_default() * DELTA;
        told.push((number, delta.map(|_| time)));
    }
    Some(told)
}

/// A packet status chunk.
#[derive(Clone, Copy)]
struct Chunk(u16);

impl Chunk {
    /// The symbols of its packets: 0 has not come, 1 has a small delta, 2 a large or negative one.
    fn symbols(self) -> impl Iterator<Item = u8> {
        let Self(bits) = self;
        let (count, symbol): (u16, fn(u16, u16) -> u16) = match bits >> 14 {
            0b10 => (14, |bits, at| bits >> (13 - at) & 1),
            0b11 => (7, |bits, at| bits >> (12 - 2 * at) & 3),
            // A run.
            _ => (bits & 0x1fff, |bits, _| bits >> 13 & 3),
        };
        (0..count).map(move |at| symbol(bits, at) as u8)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unusual_byte_groupings, reason = "fields of a chunk")]

    use super::*;

    const NEXT: u64 = (1 << 16) + 100;

    /// An RTCP packet with feedback on packets from number 65,536 + `base` on.
    fn packet(base: u16, count: u16, reference: i32, chunks: &[u16], deltas: &[u8]) -> Vec<u8> {
        let mut out = vec![0x8f, 205, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
        out.extend([base.to_be_bytes(), count.to_be_bytes()].concat());
        out.extend(&(reference << 8).to_be_bytes()[..3]);
        out.push(0);
        out.extend(chunks.iter().flat_map(|chunk| chunk.to_be_bytes()));
        out.extend(deltas);
        let padding = out.len().next_multiple_of(4) - out.len();
        if padding > 0 {
            out[0] |= PADDING;
            out.resize(out.len() + padding, 0);
            *out.last_mut().unwrap() = padding as u8;
        }
        out[3] = (out.len() / 4 - 1) as u8;
        out
    }

    fn number(base: u64) -> u64 {
        (1 << 16) + base
    }

    #[test]
    fn the_chunks_of_the_draft() {
        // Its examples of 3.1.3 and 3.1.4: a run of 221 packets that have not come, one of 24 of symbol 1 (the
        // draft's second example has the reserved symbol), and vectors of one bit and of two bits.
        let symbols = |bits| Chunk(bits).symbols().collect::<Vec<_>>();
        assert_eq!(symbols(0b0_00_0000011011101), [0; 221]);
        assert_eq!(symbols(0b0_11_0000000011000), [3; 24]);
        assert_eq!(symbols(0b10_01111100011100), [0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0]);
        assert_eq!(symbols(0b11_00110101010000), [0, 3, 1, 1, 1, 0, 0]);
    }

    #[test]
    fn packets_that_came_have_times() {
        // One small delta, one that is missing, one negative delta, and a run of two large ones.
        let chunks = [0b11_01_00_10_00_00_00_00, 0b0_10_0000000000010];
        let deltas = [4, 0xff, 0xfe, 0x01, 0x00, 0x01, 0x00];
        let bytes = packet(7, 9, 2, &chunks, &deltas);
        let times = [Some(129_000), None, Some(128_500), None, None, None, None];
        let times = times.into_iter().chain([Some(192_500), Some(256_500)]);
        let expected: Vec<_> = (number(7)..).zip(times).collect();
        assert_eq!(read(&bytes, NEXT), expected);
        // After another packet, and before one.
        let report = [0x80, 201, 0, 1, 0, 0, 0, 1];
        assert_eq!(read(&[&report[..], &bytes, &report].concat(), NEXT), expected);
        // Clocks may be before their zero. Symbols that no packet has are left out.
        let before = packet(1, 1, -1, &[0b10_10000000000000], &[0]);
        assert_eq!(read(&before, NEXT), [(number(1), Some(-64_000))]);
    }

    #[test]
    fn numbers_are_the_nearest_to_the_next() {
        let of = |base, next| read(&packet(base, 1, 0, &[0b0_01_0000000000001], &[0]), next)[0].0;
        assert_eq!(of(65_535, 1 << 16), 65_535);
        assert_eq!(of(3, 2 << 16), (2 << 16) + 3);
        assert_eq!(of(65_530, (2 << 16) + 5), (2 << 16) - 6);
        // There is no number below 0.
        assert_eq!(read(&packet(60_000, 1, 0, &[1], &[]), 0), []);
    }

    #[test]
    fn what_is_broken_tells_nothing() {
        let whole = packet(7, 3, 0, &[0b11_10_10_10_00_00_00_00], &[0, 1, 0, 1, 0, 1]);
        assert_eq!(read(&whole, NEXT).len(), 3);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length], NEXT), [], "{length}");
            // The same, with a length that says so.
            let mut cut = whole[..length / 4 * 4].to_vec();
            if let Some(words) = cut.get_mut(3) {
                *words = (length / 4 - 1) as u8;
            }
            assert_eq!(read(&cut, NEXT), [], "{length}");
        }
        // More packets than are remembered, by runs that may be empty, and without an end.
        let runs = [0x1fff; 8];
        assert_eq!(read(&packet(0, u16::MAX, 0, &runs, &[]), NEXT), []);
        assert_eq!(read(&packet(0, 4_000, 0, &runs, &[]), NEXT).len(), 4_000);
        assert_eq!(read(&packet(0, 9, 0, &[0x2000, 0x2000, 0x4000], &[]), NEXT), []);
        // An empty run of small deltas before large ones.
        let empty = packet(0, 1, 0, &[0x2000, 0b11_10_00_00_00_00_00_00], &[0, 4]);
        assert_eq!(read(&empty, NEXT), [(number(0), Some(1_000))]);
    }
}
