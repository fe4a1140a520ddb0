//! RTP packets and reports of what a viewer gets, RFC 3550.

use std::time::{SystemTime, UNIX_EPOCH};

use live::UnixMicros;
use rtp::bandwidth::Estimator;
use rtp::srtp::{Indices, Sender};
use str0m::media::Mid;
use tokio::time::Instant;

use super::batch::Batch;

/// The first sequence number of a source.
const FIRST: u16 = 1;

/// Identifiers of header extensions in the form of one byte, RFC 8285 4.2.
const IDENTIFIERS: std::ops::RangeInclusive<u8> = 1..=14;

/// Types of RTCP packets, RFC 3550 12.1.
const SENDER_REPORT: u8 = 200;
const DESCRIPTION: u8 = 202;
/// The type of RTCP packets that say that a source has ended.
const GOODBYE: u8 = 203;
/// Extended reports, and their block that answers a receiver's reference time, RFC 3611 2 and 4.5.
const EXTENDED_REPORT: u8 = 207;
const DLRR: u8 = 5;

/// The name of a participant, RFC 3550 6.5.1.
const CNAME: u8 = 1;

/// From 1900, where NTP's time begins, to 1970, in seconds (RFC 5905 6).
pub(in crate::webrtc) const NTP_BEFORE_UNIX: u32 = 2_208_988_800;

/// Receivers of one peer: one for each track, and as many that it had before.
const MOST_REFERENCES: usize = 4;

/// What an offer and its answer agree on about the packets of a track that is sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::webrtc) struct Terms {
    pub(in crate::webrtc) ssrc: u32,
    /// The source and the payload type of packets that are sent again (RFC 4588).
    pub(in crate::webrtc) resends: Option<(u32, u8)>,
    /// The identifier of the header extension with the media description's tag (RFC 8843 15).
    pub(in crate::webrtc) extension: Option<u8>,
    /// That of the extension with a transport-wide sequence number, if the viewer tells which packets came.
    pub(in crate::webrtc) numbers: Option<u8>,
}

/// Numbers packets of all sources in one sequence, and takes feedback on them
/// (draft-holmer-rmcat-transport-wide-cc-extensions-01).
#[derive(Debug)]
pub(in crate::webrtc) struct Numbers {
    identifier: u8,
    pub(in crate::webrtc) estimator: Estimator,
    /// When packets are sent, in microseconds.
    pub(in crate::webrtc) now: u64,
}

impl Numbers {
    /// Numbers packets by a header extension of this identifier. `None` if the extension's form of one byte
    /// cannot have it.
    pub(in crate::webrtc) fn new(identifier: u8) -> Option<Self> {
        let estimator = Estimator::default();
        IDENTIFIERS.contains(&identifier).then_some(Self { identifier, estimator, now: 0 })
    }

    /// The element of the next packet's header extension.
    fn element(&self) -> [u8; 3] {
        let [high, low] = (self.estimator.next() as u16).to_be_bytes();
        [self.identifier << 4 | 1, high, low]
    }
}

/// A packet without its header.
pub(in crate::webrtc) struct Packet<'a> {
    /// RTP time.
    pub(in crate::webrtc) time: u32,
    pub(in crate::webrtc) marker: bool,
    /// What comes before `payload` in it.
    pub(in crate::webrtc) head: &'a [u8],
    pub(in crate::webrtc) payload: &'a [u8],
}

/// One synchronization source (SSRC).
#[derive(Debug)]
pub(in crate::webrtc) struct Source {
    pub(in crate::webrtc) ssrc: u32,
    payload_type: u8,
    indices: Indices,
    /// The element of the header extension that says to which media description the source belongs. A
    /// viewer needs it until it has reported on the source.
    extension: Vec<u8>,
    /// Packets so far, and bytes of their payloads. Both wrap, RFC 3550 6.4.1.
    packets: u32,
    octets: u32,
}

impl Source {
    pub(in crate::webrtc) fn new(ssrc: u32, payload_type: u8, extension: &[u8]) -> Self {
        let indices = Indices::new(FIRST);
        let extension = extension.to_vec();
        Self { ssrc, payload_type, indices, extension, packets: 0, octets: 0 }
    }

    /// The index of the next packet.
    pub(in crate::webrtc) fn next(&self) -> u64 {
        self.indices.next()
    }

    /// Notes that the viewer has reported on this source.
    pub(in crate::webrtc) fn is_known(&mut self) {
        self.extension = Vec::new();
    }

    /// Adds an encrypted packet to those that are to be sent, with a number if it gets one. Returns its
    /// bytes, or `None` if the source has no more indices.
    pub(in crate::webrtc) fn write(
        &mut self,
        packet: &Packet<'_>,
        sender: &Sender,
        batch: &mut Batch,
        numbers: Option<&mut Numbers>,
    ) -> Option<usize> {
        let index = self.indices.take()?;
        let Packet { time, marker, head, payload } = packet;
        let number = numbers.as_ref().map(|numbers| numbers.element());
        let number = number.as_ref().map_or([].as_slice(), |number| number);
        let extended = self.extension.len() + number.len();
        let written = batch.add(|out| {
            let start = out.len();
            // Version 2, and whether there is an extension.
            out.push(0x80 | if extended == 0 { 0 } else { 0x10 });
            out.push(self.payload_type | if *marker { 0x80 } else { 0 });
            out.extend_from_slice(&index.sequence().to_be_bytes());
            out.extend_from_slice(&time.to_be_bytes());
            out.extend_from_slice(&self.ssrc.to_be_bytes());
            if extended > 0 {
                // The form of one byte, RFC 8285 4.2, which ends at a word.
                let words = extended.div_ceil(4);
                out.extend_from_slice(&[0xbe, 0xde, 0, words as u8]);
                let end = out.len() + 4 * words;
                out.extend_from_slice(&self.extension);
                out.extend_from_slice(number);
                out.resize(end, 0);
            }
            let header = out.len() - start;
            out.extend_from_slice(head);
            out.extend_from_slice(payload);
            sender.protect(index, out, start, header)?;
            Some(out.len() - start)
        })?;
        if let Some(numbers) = numbers {
            numbers.estimator.sent(written, numbers.now);
        }
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add((head.len() + payload.len()) as u32);
        Some(written)
    }

    /// Bytes of payloads so far. They wrap.
    pub(in crate::webrtc) fn octets(&self) -> u32 {
        self.octets
    }

    /// Leaves out packets, as if they had been sent.
    #[cfg(test)]
    pub(in crate::webrtc) fn skip(&mut self, packets: usize) {
        (0..packets).for_each(|_| _ = self.indices.take());
    }

    /// The content of a report on this source. `time` is the source's RTP time now.
    pub(in crate::webrtc) fn counts(&self, time: u32) -> Counts {
        Counts { ssrc: self.ssrc, time, packets: self.packets, octets: self.octets }
    }
}

/// The element of a header extension of one byte's form (RFC 8285 4.2) with the tag of a media description.
/// Empty if that form cannot have it.
pub(in crate::webrtc) fn extension(identifier: u8, mid: Mid) -> Vec<u8> {
    let tag = mid.as_bytes();
    if !IDENTIFIERS.contains(&identifier) || !(1..=16).contains(&tag.len()) {
        return Vec::new();
    }
    [&[identifier << 4 | (tag.len() - 1) as u8], tag].concat()
}

/// What a report says of a source.
#[derive(Debug, Clone, Copy)]
pub(in crate::webrtc) struct Counts {
    ssrc: u32,
    time: u32,
    packets: u32,
    octets: u32,
}

/// The reference time of a receiver (RFC 3611 4.4), and when it came. By an answer the receiver learns the
/// round trip, which tells it when to ask once more for a packet.
#[derive(Debug, Clone, Copy)]
pub(in crate::webrtc) struct Reference {
    ssrc: u32,
    /// The middle 32 bits of NTP's time.
    time: u32,
    came: Instant,
}

impl Reference {
    /// `None` if the receiver's clock shows a time before 1970.
    pub(in crate::webrtc) fn new(ssrc: u32, time: SystemTime, came: Instant) -> Option<Self> {
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        let seconds = (since.as_secs() as u32).wrapping_add(NTP_BEFORE_UNIX);
        // Rounded, because `SystemTime` has no fractions of two.
        let fraction = ((u64::from(since.subsec_nanos()) << 16) + 500_000_000) / 1_000_000_000;
        Some(Self { ssrc, time: (seconds << 16).wrapping_add(fraction as u32), came })
    }

    /// Puts this reference among those that are not answered yet. There is one of each receiver.
    pub(in crate::webrtc) fn keep(self, among: &mut Vec<Self>) {
        among.retain(|other| other.ssrc != self.ssrc);
        if among.len() == MOST_REFERENCES {
            among.remove(0);
        }
        among.push(self);
    }
}

/// A compound packet of RTCP that reports on sources, answers reference times of receivers, and says farewell
/// if the sources end. The clocks show `now`.
pub(in crate::webrtc) fn report(
    sources: &[Counts],
    cname: &str,
    references: &[Reference],
    (now, wall): (Instant, UnixMicros),
    ends: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    // NTP's time, of 32 bits each for seconds and for fractions of them. It wraps in 2036.
    let seconds = (wall.0 / 1_000_000) as u32;
    let seconds = seconds.wrapping_add(NTP_BEFORE_UNIX);
    let fraction = ((wall.0 % 1_000_000) << 32) / 1_000_000;
    for source in sources {
        out.extend_from_slice(&[0x80, SENDER_REPORT, 0, 6]);
        let words = [source.ssrc, seconds, fraction as u32, source.time];
        for word in words.into_iter().chain([source.packets, source.octets]) {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
    let count = sources.len() as u8;
    let name = &cname.as_bytes()[..cname.len().min(255)];
    // Each name ends with a zero, and then at a multiple of four bytes.
    let words = 1 + (2 + name.len()) / 4 + 1;
    out.extend_from_slice(&[0x80 | count, DESCRIPTION]);
    out.extend_from_slice(&((words * sources.len()) as u16).to_be_bytes());
    for source in sources {
        let end = out.len() + 4 * words;
        out.extend_from_slice(&source.ssrc.to_be_bytes());
        out.extend_from_slice(&[CNAME, name.len() as u8]);
        out.extend_from_slice(name);
        out.resize(end, 0);
    }
    if let Some(source) = sources.first().filter(|_| !references.is_empty()) {
        let words = 3 * references.len() as u8;
        out.extend_from_slice(&[0x80, EXTENDED_REPORT, 0, 2 + words]);
        out.extend_from_slice(&source.ssrc.to_be_bytes());
        out.extend_from_slice(&[DLRR, 0, 0, words]);
        for reference in references {
            let since = now.saturating_duration_since(reference.came).as_micros();
            // In units of 1/65,536 s. 0 would mean that nothing came.
            let since = ((since << 16) / 1_000_000).max(1) as u32;
            for word in [reference.ssrc, reference.time, since] {
                out.extend_from_slice(&word.to_be_bytes());
            }
        }
    }
    if ends {
        out.extend_from_slice(&[0x80 | count, GOODBYE, 0, count]);
        out.extend(sources.iter().flat_map(|source| source.ssrc.to_be_bytes()));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rtp::srtp::Profile;

    use super::*;

    #[test]
    fn headers_have_the_tag_until_the_viewer_knows_the_source() {
        let sender = Sender::new(Profile::AeadAes128Gcm, &[1; 16], &[2; 12]).unwrap();
        let extension = extension(1, "ab".into());
        assert_eq!(extension, [0x11, b'a', b'b']);
        let mut source = Source::new(0x0102_0304, 102, &extension);
        let mut batch = Batch::default();
        let mut numbers = Numbers::new(14).unwrap();
        let mut write = |source: &mut Source, marker, is_numbered: bool| {
            let packet = Packet { time: 9, marker, head: &[], payload: &[7; 100] };
            let numbers = is_numbered.then_some(&mut numbers);
            source.write(&packet, &sender, &mut batch, numbers).unwrap()
        };
        assert_eq!(write(&mut source, false, false), 12 + 8 + 100 + 16);
        assert_eq!(write(&mut source, false, true), 12 + 12 + 100 + 16);
        source.is_known();
        assert_eq!(write(&mut source, false, true), 12 + 8 + 100 + 16);
        assert_eq!(write(&mut source, true, false), 12 + 100 + 16);
        assert_eq!(source.next(), 5);
        assert_eq!(numbers.estimator.next() as u16, 2);
        let packets: Vec<_> = batch.groups().flat_map(|(bytes, size)| bytes.chunks(size)).collect();
        let head = [0x90, 102, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4, 0xbe, 0xde, 0, 1, 0x11, b'a', b'b', 0];
        assert_eq!(packets[0][..20], head);
        let numbered = [0xbe, 0xde, 0, 2, 0x11, b'a', b'b', 0xe1, 0, 0, 0, 0];
        assert_eq!(packets[1][12..24], numbered);
        assert_eq!(packets[2][12..20], [0xbe, 0xde, 0, 1, 0xe1, 0, 1, 0]);
        assert_eq!(packets[3][..12], [0x80, 0x80 | 102, 0, 4, 0, 0, 0, 9, 1, 2, 3, 4]);
        let counts = source.counts(5);
        assert_eq!((counts.packets, counts.octets), (4, 400));
    }

    #[test]
    fn tags_that_do_not_fit_are_left_out() {
        for identifier in [0, 15] {
            assert!(extension(identifier, "0".into()).is_empty());
            assert!(Numbers::new(identifier).is_none());
        }
        assert_eq!(extension(14, "0123456789abcdef".into()).len(), 17);
    }

    #[test]
    fn a_report_and_a_farewell() {
        let counts = |ssrc, time| Counts { ssrc, time, packets: 3, octets: 300 };
        // Half a second after 1970 began.
        let at = (Instant::now(), UnixMicros(500_000));
        let bytes = report(&[counts(1, 7), counts(2, 8)], "me", &[], at, true);
        let sender = |ssrc, time| {
            let mut expected = vec![0x80, 200, 0, 6, 0, 0, 0, ssrc];
            expected.extend(NTP_BEFORE_UNIX.to_be_bytes());
            expected.extend([0x80, 0, 0, 0, 0, 0, 0, time, 0, 0, 0, 3, 0, 0, 1, 44]);
            expected
        };
        let mut expected = [sender(1, 7), sender(2, 8)].concat();
        expected.extend([0x82, 202, 0, 6]);
        for ssrc in [1, 2] {
            expected.extend([0, 0, 0, ssrc, 1, 2, b'm', b'e', 0, 0, 0, 0]);
        }
        expected.extend([0x82, 203, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(bytes, expected);
        // Without a farewell, and with a name that ends at a word.
        let bytes = report(&[counts(1, 7)], "of6old", &[], at, false);
        let description = [0x81, 202, 0, 4, 0, 0, 0, 1, 1, 6, b'o', b'f', b'6', b'o', b'l', b'd'];
        assert_eq!(bytes[28..44], description);
        assert_eq!(bytes[44..], [0; 4]);
    }

    #[test]
    fn a_report_answers_the_newest_reference_time_of_each_receiver() {
        let counts = Counts { ssrc: 1, time: 7, packets: 3, octets: 300 };
        let came = Instant::now();
        let mut references = Vec::new();
        for ssrc in [9, 5, 6, 7, 8, 9] {
            // Two and a quarter seconds after 1970 began.
            let time = UNIX_EPOCH + Duration::from_millis(2_250);
            Reference::new(ssrc, time, came).unwrap().keep(&mut references);
        }
        assert!(Reference::new(1, UNIX_EPOCH - Duration::from_secs(1), came).is_none());
        assert_eq!(references.len(), MOST_REFERENCES);
        let at = (came + Duration::from_millis(500), UnixMicros(0));
        let before = report(&[counts], "me", &[], at, false).len();
        let bytes = report(&[counts], "me", &references, at, false);
        assert_eq!(bytes[before..before + 12], [0x80, 207, 0, 14, 0, 0, 0, 1, 5, 0, 0, 12]);
        let time = ((NTP_BEFORE_UNIX + 2) << 16 | 0x4000).to_be_bytes();
        let last = [&[0, 0, 0, 9][..], &time, &[0, 0, 0x80, 0]].concat();
        assert!(bytes.ends_with(&last), "{bytes:?}");
        assert_eq!(bytes.len(), before + 12 + 4 * 12);
    }
}
