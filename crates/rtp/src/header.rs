//! The header of an RTP packet (RFC 3550 5.1) and its extensions (RFC 8285). SRTP leaves both in the clear, so they can
//! be read before a packet is decrypted. Nothing shows then that the sender wrote them.

/// Bytes of the part that all RTP packets begin with.
const FIXED: usize = 12;

/// Set in the first byte of a packet whose header has extensions.
const EXTENDED: u8 = 0x10;

/// The identifier after which the one-byte form has no further extensions, RFC 8285 4.2.
const STOP: u8 = 15;

/// What the header of an RTP packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The source.
    pub ssrc: u32,
    /// All extensions with their heads, and whether these have two bytes.
    extensions: (&'a [u8], bool),
}

impl<'a> Header<'a> {
    /// Reads the header of a packet. `None` if it has none of RTP: so does RTCP on the same port (RFC 5761 4).
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = packet.split_first_chunk::<FIXED>()?;
        let &[first, second, _, _, _, _, _, _, s0, s1, s2, s3] = fixed;
        if first >> 6 != 2 || (64..96).contains(&(second & 0x7f)) {
            return None;
        }
        let ssrc = u32::from_be_bytes([s0, s1, s2, s3]);
        // The sources that a mixer put together.
        let rest = rest.get(4 * usize::from(first & 0x0f)..)?;
        if first & EXTENDED == 0 {
            return Some(Self { ssrc, extensions: (&[], false) });
        }
        let (&[p0, p1, l0, l1], rest) = rest.split_first_chunk::<4>()?;
        let extensions = rest.get(..4 * usize::from(u16::from_be_bytes([l0, l1])))?;
        let has_two_bytes = match u16::from_be_bytes([p0, p1]) {
            0xbede => false,
            0x1000..=0x100f => true,
            _ => return None,
        };
        Some(Self { ssrc, extensions: (extensions, has_two_bytes) })
    }

    /// The extensions in order: the identifier of each, and its data. The list ends where one is cut off.
    pub fn extensions(&self) -> impl Iterator<Item = (u8, &'a [u8])> {
        let (mut rest, has_two_bytes) = self.extensions;
        std::iter::from_fn(move || {
            // A byte 0 is padding.
            while let [0, after @ ..] = rest {
                rest = after;
            }
            let (id, length, after) = match rest {
                [id, length, after @ ..] if has_two_bytes => (*id, usize::from(*length), after),
                [head, after @ ..] if !has_two_bytes && head >> 4 != STOP => {
                    (head >> 4, usize::from(head & 0x0f) + 1, after)
                }
                _ => return None,
            };
            let (data, after) = after.split_at_checked(length)?;
            rest = after;
            Some((id, data))
        })
    }

    /// The transport-wide sequence number, if the extension `id` has it. Of several the last one counts.
    pub fn transport_number(&self, id: u8) -> Option<u16> {
        let numbers = self.extensions().filter(|(its, _)| *its == id);
        let numbers = numbers.filter_map(|(_, data)| data.first_chunk());
        numbers.last().map(|number| u16::from_be_bytes(*number))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet of the source 7 with `sources` sources behind it, and this profile and these extensions.
    fn packet(sources: u8, profile: u16, extensions: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x90 | sources, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 7];
        packet.extend([9; 4].repeat(sources.into()));
        packet.extend(profile.to_be_bytes());
        let mut extensions = extensions.to_vec();
        extensions.resize(extensions.len().next_multiple_of(4), 0);
        packet.extend((extensions.len() as u16 / 4).to_be_bytes());
        packet.extend(extensions);
        packet.extend(b"payload");
        packet
    }

    #[test]
    fn numbers_of_both_forms() {
        let number = |profile, extensions: &[u8]| {
            let packet = packet(2, profile, extensions);
            let header = Header::parse(&packet).unwrap();
            assert_eq!(header.ssrc, 7);
            header.transport_number(5)
        };
        assert_eq!(number(0xbede, &[0x51, 0xab, 0xcd]), Some(0xabcd));
        assert_eq!(number(0xbede, &[0x10, 1, 0, 0, 0x52, 0xab, 0xcd, 9]), Some(0xabcd));
        assert_eq!(number(0xbede, &[0x51, 0, 1, 0x51, 0, 2]), Some(2), "the last");
        assert_eq!(number(0xbede, &[0x50, 1]), None, "too short");
        assert_eq!(number(0xbede, &[0x41, 0, 1]), None, "another extension");
        assert_eq!(number(0xbede, &[0xf0, 0x51, 0, 1]), None, "after the end");
        assert_eq!(number(0xbede, &[0x51, 0, 1, 0x5f]), Some(1), "the next is cut off");
        assert_eq!(number(0x1003, &[5, 2, 0xab, 0xcd]), Some(0xabcd));
        assert_eq!(number(0x1000, &[20, 0, 0, 5, 3, 0xab, 0xcd, 1]), Some(0xabcd));
        assert_eq!(number(0x1000, &[5, 1, 0xab]), None, "too short");
        assert_eq!(number(0x1000, &[5, 2, 0, 1, 5, 9]), Some(1), "the next is cut off");
        let plain = [0x80, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 7];
        assert_eq!(Header::parse(&plain).unwrap().transport_number(5), None);
    }

    #[test]
    fn what_is_no_rtp_has_no_header() {
        let whole = packet(1, 0xbede, &[0x51, 0, 1]);
        let head = whole.len() - b"payload".len();
        for length in 0..whole.len() {
            assert_eq!(Header::parse(&whole[..length]).is_some(), length >= head, "{length}");
        }
        assert_eq!(Header::parse(&packet(0, 0xbedf, &[])), None, "an unknown form");
        for (at, byte) in [(0, 0x50), (0, 0xd0), (1, 200), (1, 64), (1, 95)] {
            let mut other = whole.clone();
            other[at] = byte;
            assert_eq!(Header::parse(&other), None, "{byte}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            form in prop::option::of(0xbedeu16..=0xbede),
        ) {
            if let (Some(form), Some(head)) = (form, bytes.get_mut(..14)) {
                head[0] = 0x90;
                head[12..].copy_from_slice(&form.to_be_bytes());
            }
            if let Some(header) = Header::parse(&bytes) {
                let all: usize = header.extensions().map(|(_, data)| data.len() + 1).sum();
                prop_assert!(all <= bytes.len());
                for id in 0..=255 {
                    let named = header.extensions().any(|(its, data)| its == id && data.len() > 1);
                    prop_assert_eq!(header.transport_number(id).is_some(), named);
                }
            }
        }
    }
}
