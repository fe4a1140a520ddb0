//! Packets for one viewer that are sent together.
//!
//! The kernel takes packets of one size, but for a shorter last one, as one datagram that it cuts itself
//! (UDP_SEGMENT, udp(7)). An access unit's packets are so, because `rtp::h264` and `rtp::h265` make
//! fragments of one size, and `rtp::av1` full packets.

use std::ops::Range;

/// The most packets and bytes that the kernel takes as one (UDP_MAX_SEGMENTS, and the longest datagram
/// without its headers).
const MOST: (usize, usize) = (64, 65_000);

/// Packets in the order in which they are sent. It is used again and again, and keeps its memory.
#[derive(Debug)]
pub(in crate::webrtc) struct Batch {
    bytes: Vec<u8>,
    groups: Vec<Group>,
    most_packets: usize,
}

#[derive(Debug)]
struct Group {
    bytes: Range<usize>,
    /// Bytes of each packet but for the last.
    size: usize,
    packets: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: Vec::new(), groups: Vec::new(), most_packets: MOST.0 }
    }
}

impl Batch {
    /// A batch that joins more packets than a kernel may take.
    #[cfg(test)]
    pub(in crate::webrtc) fn joining(most_packets: usize) -> Self {
        Self { most_packets, ..Self::default() }
    }

    /// Adds the packet that `write` appends. If it returns `None`, nothing is added.
    pub(in crate::webrtc) fn add<T>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Option<T>,
    ) -> Option<T> {
        let start = self.bytes.len();
        let Some(written) = write(&mut self.bytes) else {
            self.bytes.truncate(start);
            return None;
        };
        let end = self.bytes.len();
        let size = end - start;
        if let Some(last) = self.groups.last_mut()
            // A shorter packet was the last.
            && last.bytes.len() == last.size * last.packets
            && size <= last.size
            && last.packets < self.most_packets
            && end - last.bytes.start <= MOST.1
        {
            last.bytes.end = end;
            last.packets += 1;
        } else {
            self.groups.push(Group { bytes: start..end, size, packets: 1 });
        }
        Some(written)
    }

    /// Adds a packet.
    pub(in crate::webrtc) fn add_packet(&mut self, packet: &[u8]) {
        self.add(|out| {
            out.extend_from_slice(packet);
            Some(())
        });
    }

    /// Bytes of all packets.
    pub(in crate::webrtc) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Packets that can be sent as one, and the size of each of them but for the last.
    pub(in crate::webrtc) fn groups(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let bytes = |group: &Group| self.bytes.get(group.bytes.clone()).unwrap_or_default();
        self.groups.iter().map(move |group| (bytes(group), group.size))
    }

    /// The packets.
    pub(in crate::webrtc) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.groups().flat_map(|(bytes, size)| bytes.chunks(size.max(1)))
    }

    /// Forgets the packets.
    pub(in crate::webrtc) fn clear(&mut self) {
        self.bytes.clear();
        self.groups.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the packets of each group, after packets of these sizes.
    fn groups(sizes: &[usize]) -> Vec<Vec<usize>> {
        let mut batch = Batch::default();
        for (number, size) in sizes.iter().enumerate() {
            let bytes = vec![number as u8; *size];
            batch.add_packet(&bytes);
        }
        let groups = batch.groups().map(|(bytes, size)| {
            let packets = bytes.chunks(size);
            assert!(packets.clone().all(|packet| packet.iter().all(|byte| *byte == packet[0])));
            packets.map(<[u8]>::len).collect()
        });
        groups.collect()
    }

    #[test]
    fn packets_of_one_size_and_a_shorter_one_go_together() {
        assert_eq!(groups(&[]), [[0_usize; 0]; 0]);
        assert_eq!(groups(&[9]), [vec![9]]);
        assert_eq!(groups(&[9, 9, 9]), [vec![9, 9, 9]]);
        assert_eq!(groups(&[9, 9, 5]), [vec![9, 9, 5]]);
        // Nothing follows a shorter one, not even one of its size.
        assert_eq!(groups(&[9, 5, 5, 9]), [vec![9, 5], vec![5], vec![9]]);
        assert_eq!(groups(&[40, 900, 900, 30]), [vec![40], vec![900, 900, 30]]);
    }

    #[test]
    fn a_group_is_no_larger_than_the_kernel_takes() {
        let of = |groups: Vec<Vec<usize>>| groups.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(of(groups(&[100; 150])), [64, 64, 22]);
        assert_eq!(of(groups(&[1200; 60])), [54, 6]);
    }

    #[test]
    fn what_is_not_written_to_its_end_leaves_nothing() {
        let mut batch = Batch::default();
        batch.add_packet(b"one");
        let failed: Option<()> = batch.add(|out| {
            out.extend_from_slice(b"half");
            None
        });
        assert_eq!(failed, None);
        assert_eq!(batch.groups().collect::<Vec<_>>(), [(b"one".as_slice(), 3)]);
        batch.clear();
        assert_eq!(batch.groups().count(), 0);
    }
}
