//! Packets that a viewer asks for again (NACK, RFC 4585 6.2.1), and how they are sent (RTX, RFC 4588).
//!
//! The feed keeps the newest frames once for all viewers of a worker. A viewer only knows which packets its
//! frames became, and a frame that the feed has given up cannot be sent again.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use rtp::srtp::Sender;

use super::feed::Frame;
use crate::webrtc::send::batch::Batch;
use crate::webrtc::send::source::{Numbers, Packet, Source};

/// Frames whose packets a viewer may ask for again.
const MOST_FRAMES: usize = 512;

/// Packets that wait to be sent again. More are forgotten: the viewer asks once more.
const MOST_ASKED: usize = 512;

/// Bytes that may be sent again at once: a large keyframe that was lost.
const MOST_CREDIT: usize = 512 << 10;

/// A frame that was sent.
#[derive(Debug)]
struct Sent {
    frame: Weak<Frame>,
    /// The index of its first packet.
    first: u64,
    /// Its RTP time.
    time: u32,
}

/// What one viewer may get again.
#[derive(Debug)]
pub(super) struct Resends {
    source: Source,
    /// By the index of the first packet.
    sent: VecDeque<Sent>,
    /// Sequence numbers, in the order in which they were asked for.
    asked: VecDeque<u16>,
    /// Bytes that may be sent again: as many as were sent, up to [`MOST_CREDIT`]. So a viewer that asks
    /// for everything gets twice the stream's bit rate.
    credit: usize,
}

impl Resends {
    pub(super) fn new(source: Source) -> Self {
        Self { source, sent: VecDeque::new(), asked: VecDeque::new(), credit: 0 }
    }

    pub(super) fn source(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Notes that the packets of a frame are sent from now on. The first has this index.
    pub(super) fn begin(&mut self, frame: &Rc<Frame>, first: u64, time: u32) {
        while let Some(oldest) = self.sent.front()
            && (oldest.frame.strong_count() == 0 || self.sent.len() >= MOST_FRAMES)
        {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent { frame: Rc::downgrade(frame), first, time });
    }

    /// Notes that a packet of these bytes was sent for the first time.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.credit = (self.credit + bytes).min(MOST_CREDIT);
    }

    /// Notes that the viewer asks for the packets with these sequence numbers.
    pub(super) fn ask(&mut self, numbers: impl IntoIterator<Item = u16>) {
        let room = MOST_ASKED - self.asked.len();
        self.asked.extend(numbers.into_iter().take(room));
    }

    /// Whether packets wait to be sent again.
    pub(super) fn has_more(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Writes packets again while bytes are allowed. `next` is the index of the next new packet.
    pub(super) fn write(
        &mut self,
        next: u64,
        sender: &Sender,
        batch: &mut Batch,
        mut numbers: Option<&mut Numbers>,
        allowed: &mut usize,
    ) {
        while *allowed > 0
            && let Some(number) = self.asked.pop_front()
        {
            // The newest packet with this sequence number: any older one is long forgotten.
            let back = u64::from((next as u16).wrapping_sub(number));
            let Some(index) = next.checked_sub(back).filter(|index| *index < next) else {
                continue;
            };
            let Some((frame, place, time)) = find(&self.sent, index) else { continue };
            let Some(payload) = frame.payloads.get(place) else { continue };
            if payload.len() > self.credit {
                // It asks for more than it may have. What it still misses then, it asks for again.
                self.asked.clear();
                return;
            }
            let marker = place + 1 == frame.payloads.len();
            let head = &number.to_be_bytes();
            let packet = Packet { time, marker, head, payload };
            let numbers = numbers.as_deref_mut();
            let Some(bytes) = self.source.write(&packet, sender, batch, numbers) else { continue };
            self.credit = self.credit.saturating_sub(bytes);
            *allowed = allowed.saturating_sub(bytes);
        }
    }
}

/// The frame that the packet with this index belongs to, the packet's place in it, and its RTP time.
fn find(sent: &VecDeque<Sent>, index: u64) -> Option<(Rc<Frame>, usize, u32)> {
    let after = sent.partition_point(|sent| sent.first <= index);
    let sent = sent.get(after.checked_sub(1)?)?;
    let place = usize::try_from(index - sent.first).ok()?;
    Some((sent.frame.upgrade()?, place, sent.time))
}

/// The sequence numbers that an entry of a NACK names: one, and those of the next 16 whose bits are set.
pub(super) fn named(number: u16, following: u16) -> impl Iterator<Item = u16> {
    let following = (0..16).filter(move |bit| following >> bit & 1 == 1);
    std::iter::once(number).chain(following.map(move |bit| number.wrapping_add(bit + 1)))
}

#[cfg(test)]
mod tests {
    use rtp::srtp::Profile;

    use super::*;

    /// What a viewer was sent: three frames of two packets, which begin at an index.
    struct Test {
        resends: Resends,
        sender: Sender,
        frames: Vec<Rc<Frame>>,
        next: u64,
    }

    const SIZE: usize = 100;

    fn test(first: u64) -> Test {
        let sender = Sender::new(Profile::AeadAes128Gcm, &[1; 16], &[2; 12]).unwrap();
        let mut resends = Resends::new(Source::new(5, 103, &[]));
        let frame = |number: u8| {
            let payloads = vec![vec![number; SIZE].into(), vec![number; SIZE / 2].into()];
            Rc::new(Frame { number: 0, key: false, time: 0, payloads })
        };
        let frames: Vec<_> = (0..3).map(frame).collect();
        for (number, frame) in (0..).zip(&frames) {
            resends.begin(frame, first + 2 * number, 1000 + number as u32);
        }
        Test { resends, sender, frames, next: first + 6 }
    }

    impl Test {
        /// The times and the lengths of the packets that are sent again, and which have the marker.
        fn write(&mut self, allowed: usize) -> Vec<(u32, usize, bool)> {
            let (mut batch, mut allowed) = (Batch::default(), allowed);
            self.resends.write(self.next, &self.sender, &mut batch, None, &mut allowed);
            let packets = batch.groups().flat_map(|(bytes, size)| bytes.chunks(size));
            let of = |packet: &[u8]| {
                assert_eq!((packet[1] & 0x7f, &packet[8..12]), (103, [0, 0, 0, 5].as_slice()));
                let time = u32::from_be_bytes(packet[4..8].try_into().unwrap());
                // The header, the original sequence number and the tag are not of the payload.
                (time, packet.len() - 12 - 2 - 16, packet[1] & 0x80 != 0)
            };
            packets.map(of).collect()
        }
    }

    #[test]
    fn what_is_asked_for_is_sent_again_as_it_was() {
        // The sequence numbers wrap in the middle of the frames.
        for first in [1, 65_533] {
            let mut test = test(first);
            test.resends.earn(10_000);
            let number = |index: u64| (first + index) as u16;
            test.resends.ask([number(1), number(2), number(5)]);
            assert!(test.resends.has_more());
            let half = SIZE / 2;
            assert_eq!(
                test.write(25_000),
                [(1000, half, true), (1001, SIZE, false), (1002, half, true)]
            );
            assert!(!test.resends.has_more());
            // What was never sent, and what is too old.
            test.resends.ask([number(6), number(0).wrapping_sub(1), number(40_000)]);
            assert_eq!(test.write(25_000), []);
        }
    }

    #[test]
    fn what_the_feed_gave_up_is_gone() {
        let mut test = test(1);
        test.resends.earn(10_000);
        test.frames.remove(1);
        test.resends.ask([1, 3, 5]);
        assert_eq!(test.write(25_000), [(1000, SIZE, false), (1002, SIZE, false)]);
        // Frames that are gone are forgotten once they are the oldest.
        test.frames.clear();
        let frame = Rc::new(Frame { number: 0, key: false, time: 0, payloads: Vec::new() });
        test.resends.begin(&frame, 7, 0);
        assert_eq!(test.resends.sent.len(), 1);
    }

    #[test]
    fn who_asks_for_everything_gets_no_more_than_was_sent() {
        let mut test = test(1);
        let mut again = 0;
        for _ in 0..1000 {
            // Three frames were sent once more, and all is asked for ten times.
            test.resends.earn(3 * (SIZE + SIZE / 2));
            for _ in 0..10 {
                test.resends.ask(1..7);
            }
            again += test.write(25_000).iter().map(|(_, bytes, _)| bytes).sum::<usize>();
        }
        let sent = 1000 * 3 * (SIZE + SIZE / 2);
        assert!(again <= sent && again > sent / 2, "{again} of {sent}");
        // Who asks for much after a long time gets one large keyframe.
        test.resends.earn(usize::MAX / 2);
        assert_eq!(test.resends.credit, MOST_CREDIT);
        test.resends.ask((0..10_000).map(|_| 1));
        assert_eq!(test.resends.asked.len(), MOST_ASKED);
    }

    #[test]
    fn bursts_are_as_long_as_those_of_new_packets() {
        let mut test = test(1);
        test.resends.earn(10_000);
        test.resends.ask(1..7);
        assert_eq!(test.write(150).len(), 2);
        assert!(test.resends.has_more());
        assert_eq!(test.write(25_000).len(), 4);
    }

    #[test]
    fn entries_of_a_nack() {
        assert_eq!(named(7, 0).collect::<Vec<_>>(), [7]);
        assert_eq!(named(65_535, 0x8001).collect::<Vec<_>>(), [65_535, 0, 15]);
    }
}
