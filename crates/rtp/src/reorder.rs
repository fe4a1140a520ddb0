//! Puts packets back in order, and waits for those that are missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most packets and bytes that wait for a missing packet. At 1,100 bytes a packet this is 200 ms
/// of 180 Mbit/s.
const MOST: (usize, usize) = (4096, 8 << 20);

/// One packet of an RTP stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Sequence number, extended: it does not wrap.
    pub sequence: u64,
    /// RTP timestamp.
    pub time: u32,
    /// The marker bit.
    pub marker: bool,
    /// The payload, without padding.
    pub payload: Arc<[u8]>,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The next packet.
    Packet(Packet),
    /// This many packets did not come in time.
    Lost(u64),
}

/// Packets that came before others with a lower sequence number.
///
/// It hands on each packet at once if none before it is missing. Behind a missing packet the others
/// wait, so that a retransmission can still come.
#[derive(Debug)]
pub struct Reorder {
    patience: Duration,
    /// The next sequence number, once a packet has come.
    next: Option<u64>,
    /// Packets, and when they came.
    waiting: BTreeMap<u64, (Packet, Instant)>,
    bytes: usize,
}

impl Reorder {
    /// Makes a buffer that waits for a missing packet for `patience`.
    pub fn new(patience: Duration) -> Self {
        Self { patience, next: None, waiting: BTreeMap::new(), bytes: 0 }
    }

    /// Takes a packet that came at `now`. One that comes too late or twice is dropped.
    pub fn push(&mut self, packet: Packet, now: Instant) {
        let next = *self.next.get_or_insert(packet.sequence);
        if packet.sequence < next || self.waiting.contains_key(&packet.sequence) {
            return;
        }
        self.bytes += packet.payload.len();
        self.waiting.insert(packet.sequence, (packet, now));
    }

    /// The next packet or loss, if there is one at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Next> {
        let (&first, (_, came)) = self.waiting.first_key_value()?;
        let next = self.next.unwrap_or(first);
        if first > next {
            let (packets, bytes) = MOST;
            let is_full = self.waiting.len() > packets || self.bytes > bytes;
            if !is_full && now.saturating_duration_since(*came) < self.patience {
                return None;
            }
            self.next = Some(first);
            return Some(Next::Lost(first - next));
        }
        let (_, (packet, _)) = self.waiting.pop_first()?;
        self.bytes -= packet.payload.len();
        self.next = Some(first.saturating_add(1));
        Some(Next::Packet(packet))
    }

    /// When [`Reorder::pop`] gives up the packet that is missing.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(_, (_, came))| *came + self.patience)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    fn packet(sequence: u64) -> Packet {
        Packet { sequence, time: 0, marker: false, payload: Arc::from(vec![0; 100]) }
    }

    fn all(reorder: &mut Reorder, now: Instant) -> Vec<Result<u64, u64>> {
        let next = std::iter::from_fn(|| reorder.pop(now));
        next.map(|next| match next {
            Next::Packet(packet) => Ok(packet.sequence),
            Next::Lost(count) => Err(count),
        })
        .collect()
    }

    #[test]
    fn packets_wait_for_the_one_before_them_and_not_for_ever() {
        let start = Instant::now();
        let mut reorder = Reorder::new(PATIENCE);
        for sequence in [70_000, 70_002, 70_002, 70_001, 70_000] {
            reorder.push(packet(sequence), start);
        }
        assert_eq!(all(&mut reorder, start), [Ok(70_000), Ok(70_001), Ok(70_002)]);
        assert_eq!(reorder.deadline(), None);
        reorder.push(packet(70_005), start);
        reorder.push(packet(70_007), start + PATIENCE / 2);
        assert_eq!(all(&mut reorder, start + PATIENCE - Duration::from_nanos(1)), []);
        assert_eq!(reorder.deadline(), Some(start + PATIENCE));
        assert_eq!(all(&mut reorder, start + PATIENCE), [Err(2), Ok(70_005)]);
        // It comes too late.
        reorder.push(packet(70_004), start + PATIENCE);
        reorder.push(packet(70_006), start + PATIENCE);
        assert_eq!(all(&mut reorder, start + PATIENCE), [Ok(70_006), Ok(70_007)]);
        assert_eq!(reorder.bytes, 0);
    }

    #[test]
    fn what_waits_is_bounded() {
        let start = Instant::now();
        let mut reorder = Reorder::new(PATIENCE);
        reorder.push(packet(0), start);
        for sequence in 2..100_000 {
            reorder.push(packet(sequence), start);
            all(&mut reorder, start);
            assert!(reorder.waiting.len() <= MOST.0);
        }
        assert_eq!(reorder.next, Some(100_000));
    }

    proptest! {
        /// Whatever comes, the sequence numbers rise, and losses make up for those left out.
        #[test]
        fn nothing_comes_twice_or_out_of_order(
            sequences in prop::collection::vec(0u64..60, 1..200),
            steps in prop::collection::vec(0u64..300, 200),
        ) {
            let mut now = Instant::now();
            let mut reorder = Reorder::new(PATIENCE);
            let mut expected = sequences[0];
            for (sequence, step) in sequences.into_iter().zip(steps) {
                reorder.push(packet(sequence), now);
                now += Duration::from_millis(step);
                for next in all(&mut reorder, now) {
                    match next {
                        Ok(sequence) => {
                            prop_assert_eq!(sequence, expected);
                            expected += 1;
                        }
                        Err(count) => expected += count,
                    }
                }
            }
            now += PATIENCE;
            all(&mut reorder, now);
            prop_assert!(reorder.waiting.is_empty());
        }
    }
}
