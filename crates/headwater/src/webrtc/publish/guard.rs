//! Which RTP packets of a publisher str0m may see. str0m extends numbers and remembers sources without bounds of its
//! own, and it does the first before it knows who sent a packet.
//!
//! The check comes before decryption, so anybody who can send in the peer's name may have made a packet. Nothing that
//! such a packet says may therefore end a session, or shut the peer out for good.

use std::collections::HashMap;

use rtp::header::Header;
use str0m::rtp::RtpHeader;

use crate::webrtc::end::End;

/// How far a number of 16 bits may be ahead of another one. A number that is further away is behind it.
const AHEAD: u32 = 1 << 15;

/// From how many sources the packets of a publisher may come, for each media description. It has one for each layer,
/// and as many for what it sends again. Others come when it begins anew.
const MOST_SOURCES: usize = 64;

/// How many sources str0m may see in a session. Sources that send nothing str0m can decrypt count too, because str0m
/// remembers them as well. Where this is reached, the sources that are known go on.
const MOST_SEEN: usize = 1024;

/// What str0m has seen of a publisher.
pub(super) struct Guard {
    /// The identifier of the header extension that has transport-wide sequence numbers.
    extension: Option<u8>,
    /// A number that the newest one in str0m is not below, if str0m has any.
    least: Option<u16>,
    /// Whether a packet with a number was decrypted.
    is_proven: bool,
    /// The sources, and whether a packet of each was decrypted.
    sources: HashMap<u32, bool>,
    most_sources: usize,
}

impl Guard {
    /// Guards the packets of so many media descriptions, whose transport-wide numbers are in this header extension.
    pub(super) fn new(extension: Option<u8>, lines: usize) -> Self {
        let most_sources = MOST_SOURCES * lines.max(1);
        Self { extension, least: None, is_proven: false, sources: HashMap::new(), most_sources }
    }

    /// Whether str0m may see a datagram.
    pub(super) fn admits(&mut self, datagram: &[u8]) -> bool {
        // It is RTCP, or str0m cannot read it either.
        let Some(header) = Header::parse(datagram) else { return true };
        let number = self.extension.and_then(|id| header.transport_number(id));
        if number.is_some_and(|number| self.is_before_all(number)) {
            return false;
        }
        let is_known = self.sources.contains_key(&header.ssrc);
        if !is_known && self.sources.len() >= MOST_SEEN {
            return false;
        }
        if !is_known {
            self.sources.insert(header.ssrc, false);
        }
        if let (Some(number), false) = (number, self.is_proven) {
            self.least = Some(self.least.map_or(number, |least| least.min(number)));
        }
        true
    }

    /// Whether str0m might take a number for one before 0. That is one just below 2^64 for str0m, which would then
    /// report all numbers up to it as lost. It would never end, and take all memory.
    ///
    /// str0m takes the first number as it is, and each other one for the nearest to the newest so far. So only a number
    /// that is far above the newest, while that has not yet reached half of the range, is one before 0. The rule asks
    /// for the least that the newest can be. That is the lowest of all numbers that were let through, or better a
    /// number that was decrypted, because a decrypted packet is the peer's own. As soon as one of these is in the
    /// upper half, nothing is refused any more.
    ///
    /// A forged number can lower the least only before the first packet was decrypted. Then a sender whose numbers
    /// begin in the upper half is not heard until they wrap, after 32,768 packets at most. Senders begin near 0.
    fn is_before_all(&self, number: u16) -> bool {
        self.least.is_some_and(|least| u32::from(number) > u32::from(least) + AHEAD)
    }

    /// Notes a packet that str0m has decrypted.
    ///
    /// # Errors
    /// The publisher has sent from too many sources. str0m remembers each for as long as the session lasts.
    pub(super) fn decrypted(&mut self, header: &RtpHeader) -> Result<(), End> {
        if let Some(number) = header.ext_vals.transport_cc {
            let least = self.least.filter(|_| self.is_proven);
            self.least = Some(least.map_or(number, |least| least.max(number)));
            self.is_proven = true;
        }
        if self.sources.insert(*header.ssrc, true) == Some(true) {
            return Ok(());
        }
        let count = self.sources.values().filter(|is_decrypted| **is_decrypted).count();
        if count > self.most_sources {
            return Err(End::Stream("the publisher sends from too many sources"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXTENSION: u8 = 3;

    /// A packet of a source with a number.
    fn packet(ssrc: u32, number: Option<u16>) -> Vec<u8> {
        let mut packet = vec![0x90, 96, 0, 1, 0, 0, 0, 2];
        packet.extend(ssrc.to_be_bytes());
        packet.extend([0xbe, 0xde, 0, 1]);
        match number {
            Some(number) => {
                packet.extend([[0x31], [(number >> 8) as u8], [number as u8], [0]].concat());
            }
            None => packet.extend([0; 4]),
        }
        packet
    }

    fn header(ssrc: u32, number: Option<u16>) -> RtpHeader {
        let mut header = RtpHeader { ssrc: ssrc.into(), ..RtpHeader::default() };
        header.ext_vals.transport_cc = number;
        header
    }

    #[test]
    fn a_number_before_the_first_is_refused() {
        let guard = || Guard::new(Some(EXTENSION), 2);
        let mut its = guard();
        assert!(its.admits(&packet(1, Some(0))));
        its.decrypted(&header(1, Some(0))).unwrap();
        assert!(!its.admits(&packet(1, Some(40_000))));
        assert!(!its.admits(&packet(1, Some(u16::MAX))), "swapped across the wrap");
        assert!(its.admits(&packet(1, Some(1 << 15))));
        // The numbers of a packet that was not decrypted prove nothing.
        assert!(!its.admits(&packet(1, Some(40_000))));
        its.decrypted(&header(1, Some(1 << 15))).unwrap();
        for number in [40_000, u16::MAX, 0, 40_000] {
            assert!(its.admits(&packet(1, Some(number))), "{number}");
        }
        // Without the extension the bytes mean something else.
        let mut its = Guard::new(None, 1);
        assert!(its.admits(&packet(1, Some(0))) && its.admits(&packet(1, Some(40_000))));
    }

    #[test]
    fn forged_packets_shut_nobody_out() {
        // The peer begins at 100. Before that, and between its packets, others send in its name.
        let mut guard = Guard::new(Some(EXTENSION), 1);
        for number in (0..200_000u32).map(|number| (100 + number) as u16) {
            for forged in [0, 20_000, 50_000, u16::MAX, number.wrapping_add(30_000)] {
                guard.admits(&packet(1, Some(forged)));
            }
            assert!(guard.admits(&packet(1, Some(number))), "{number}");
            guard.decrypted(&header(1, Some(number))).unwrap();
        }
        // One that begins in the upper half is heard again when its numbers wrap.
        let mut guard = Guard::new(Some(EXTENSION), 1);
        guard.admits(&packet(1, Some(0)));
        let heard = (0u16..).find(|it| guard.admits(&packet(1, Some(50_000u16.wrapping_add(*it)))));
        assert_eq!(heard, Some(15_536));
    }

    #[test]
    fn sources_are_bounded() {
        let mut guard = Guard::new(None, 2);
        let mut from = |ssrc| {
            assert!(guard.admits(&packet(ssrc, None)));
            guard.decrypted(&header(ssrc, None))
        };
        for ssrc in (0..2 * MOST_SOURCES as u32).chain([5, 6, 5]) {
            from(ssrc).unwrap();
        }
        let why = from(1 << 20).unwrap_err().to_string();
        assert_eq!(why, "the publisher sends from too many sources");
        // Those that are not decrypted end nothing. Known ones go on.
        let mut guard = Guard::new(None, 1);
        guard.admits(&packet(7, None));
        guard.decrypted(&header(7, None)).unwrap();
        let admitted = (100..5000).filter(|ssrc| guard.admits(&packet(*ssrc, None))).count();
        assert_eq!(admitted, MOST_SEEN - 1);
        assert!(guard.admits(&packet(7, None)));
        guard.decrypted(&header(7, None)).unwrap();
        assert!(guard.sources.len() <= MOST_SEEN);
    }

    /// How str0m extends a number of 16 bits (`src/rtp/header.rs`, `extend_u16`), as far as it is above 0.
    fn extend(newest: Option<u64>, number: u16) -> Option<u64> {
        let Some(newest) = newest else { return Some(number.into()) };
        let (turns, last, number) = (newest >> 16, newest & 0xffff, u64::from(number));
        let half = u64::from(AHEAD);
        let turns = if last < half && number > half + last {
            turns.checked_sub(1)?
        } else if last >= half && last > number + half {
            turns + 1
        } else {
            turns
        };
        Some((turns << 16) + number)
    }

    /// What becomes of a packet that str0m sees.
    #[derive(Debug, Clone, Copy)]
    enum Fate {
        Forged,
        /// It is padding: str0m counts its number, and tells nobody.
        Counted,
        Told,
    }

    proptest! {
        #[test]
        fn str0m_never_takes_a_number_for_one_before_0(
            packets in prop::collection::vec(
                (
                    prop_oneof![any::<u16>(), 32_700u16..32_900, 0u16..100, 65_400..=u16::MAX],
                    prop_oneof![Just(Fate::Forged), Just(Fate::Counted), Just(Fate::Told)],
                ),
                0..200,
            ),
        ) {
            let mut guard = Guard::new(Some(EXTENSION), 1);
            let mut newest = None;
            for (number, fate) in packets {
                if !guard.admits(&packet(1, Some(number))) || matches!(fate, Fate::Forged) {
                    continue;
                }
                let extended = extend(newest, number);
                prop_assert!(extended.is_some(), "{} after {:?}", number, newest);
                newest = newest.max(extended);
                if matches!(fate, Fate::Told) {
                    prop_assert!(guard.decrypted(&header(1, Some(number))).is_ok());
                }
            }
        }

        #[test]
        fn any_bytes_may_come(
            datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20),
        ) {
            let mut guard = Guard::new(Some(EXTENSION), 1);
            for mut datagram in datagrams {
                guard.admits(&datagram);
                datagram.splice(..datagram.len().min(2), [0x90, 96]);
                guard.admits(&datagram);
            }
        }
    }
}
