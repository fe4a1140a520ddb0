//! Reads the packets of an Ogg stream (RFC 3533).
//!
//! Ogg is what programs of any age write Opus in, packet by packet (RFC 7845).

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::Error;

/// Bytes of a page before its table of segments (RFC 3533 6).
const HEAD: usize = 27;

/// The longest packet that is read, in bytes.
const MAX_PACKET: usize = 1 << 20;

/// A packet of one logical stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its bytes.
    pub data: Bytes,
    /// The granule position where it ends, in the codec's own units. Only the last packet that ends on
    /// a page has one.
    pub end: Option<i64>,
}

/// Reads one logical stream from its first page on. The bytes may come in any pieces. Checksums are not
/// checked: the reader is for pipes, where bytes do not change.
#[derive(Debug, Default)]
pub struct Reader {
    bytes: BytesMut,
    /// Position of the first of `bytes` in the stream.
    at: u64,
    /// The beginning of a packet that goes on with the next page.
    begun: Vec<u8>,
    packets: VecDeque<Packet>,
}

impl Reader {
    /// A reader at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. Poll all packets before the next call: so at most one page waits.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet, if it is complete.
    ///
    /// # Errors
    /// The bytes are no page, or a packet is too long. Nothing can be read after that.
    pub fn poll_packet(&mut self) -> Result<Option<Packet>, Error> {
        while self.packets.is_empty() {
            if !self.page()? {
                return Ok(None);
            }
        }
        Ok(self.packets.pop_front())
    }

    /// Reads a page. Returns false if it is not complete.
    fn page(&mut self) -> Result<bool, Error> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD>() else { return Ok(false) };
        let &[b'O', b'g', b'g', b'S', version, flags, ref rest_of_head @ ..] = head else {
            return Err(Error::malformed("no Ogg page", self.at));
        };
        if version != 0 {
            return Err(Error::unsupported(format!("Ogg version {version}"), self.at));
        }
        let &[g0, g1, g2, g3, g4, g5, g6, g7, .., segments] = rest_of_head;
        let granule = i64::from_le_bytes([g0, g1, g2, g3, g4, g5, g6, g7]);
        let Some(table) = rest.get(..segments.into()) else { return Ok(false) };
        let length =
            HEAD + table.len() + table.iter().map(|&size| usize::from(size)).sum::<usize>();
        if self.bytes.len() < length {
            return Ok(false);
        }
        let goes_on = flags & 1 != 0;
        if goes_on == self.begun.is_empty() {
            return Err(Error::malformed(
                "a packet goes on that did not begin, or ends nowhere",
                self.at,
            ));
        }
        let mut page = self.bytes.split_to(length).freeze();
        let table = page.slice(HEAD..HEAD + usize::from(segments));
        page.advance(HEAD + table.len());
        for &size in &table {
            self.begun.extend_from_slice(&page.split_to(size.into()));
            if self.begun.len() > MAX_PACKET {
                let (value, limit) = (self.begun.len() as u64, MAX_PACKET as u64);
                return Err(Error::Limit { what: "packet".into(), at: self.at, value, limit });
            }
            // A packet ends with the first segment that is not full (RFC 3533 5).
            if size < u8::MAX {
                let data = std::mem::take(&mut self.begun).into();
                self.packets.push_back(Packet { data, end: None });
            }
        }
        // A page on which no packet ends has the position -1.
        if let Some(last) = self.packets.back_mut().filter(|_| granule >= 0) {
            last.end = Some(granule);
        }
        self.at += length as u64;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pages that carry these packets, with at most so many segments each. The position after a packet
    /// is its number, from 1.
    fn pages(packets: &[Vec<u8>], most: usize) -> Vec<u8> {
        let segments: Vec<(&[u8], Option<i64>)> = (1..)
            .zip(packets)
            .flat_map(|(number, packet)| {
                let mut segments: Vec<_> = packet.chunks(255).map(|chunk| (chunk, None)).collect();
                if packet.len() % 255 == 0 {
                    segments.push((&[], None));
                }
                segments.last_mut().unwrap().1 = Some(number);
                segments
            })
            .collect();
        let (mut out, mut goes_on) = (Vec::new(), false);
        for page in segments.chunks(most) {
            let granule = page.iter().rev().find_map(|(_, end)| *end).unwrap_or(-1);
            out.extend_from_slice(b"OggS\0");
            out.push(u8::from(goes_on));
            out.extend_from_slice(&granule.to_le_bytes());
            out.extend_from_slice(&[0; 12]);
            out.push(u8::try_from(page.len()).unwrap());
            out.extend(page.iter().map(|(chunk, _)| u8::try_from(chunk.len()).unwrap()));
            out.extend(page.iter().flat_map(|(chunk, _)| *chunk));
            goes_on = page.last().unwrap().1.is_none();
        }
        out
    }

    proptest! {
        #[test]
        fn packets_come_back_whatever_the_pieces(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..800), 0..20),
            most in 1_usize..=255,
            piece in 1_usize..2000,
        ) {
            let mut reader = Reader::new();
            let mut read = Vec::new();
            for bytes in pages(&packets, most).chunks(piece) {
                reader.handle_bytes(bytes);
                while let Some(packet) = reader.poll_packet().unwrap() {
                    read.push(packet);
                }
            }
            prop_assert_eq!(read.len(), packets.len());
            for ((number, packet), read) in (1..).zip(&packets).zip(&read) {
                prop_assert_eq!(&*read.data, packet.as_slice());
                prop_assert!(read.end.is_none_or(|end| end == number));
            }
            prop_assert!(read.last().is_none_or(|last| last.end.is_some()));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut reader = Reader::new();
            reader.handle_bytes(b"OggS");
            reader.handle_bytes(&bytes);
            while let Ok(Some(_)) = reader.poll_packet() {}
        }
    }

    #[test]
    fn what_ffmpeg_writes_is_read() {
        let mut reader = Reader::new();
        reader.handle_bytes(include_bytes!("../../../fuzz/seeds/ogg/opus"));
        let packets: Vec<_> = std::iter::from_fn(|| reader.poll_packet().unwrap()).collect();
        assert!(
            packets[0].data.starts_with(b"OpusHead") && packets[1].data.starts_with(b"OpusTags")
        );
        let ends: Vec<_> = packets.iter().skip(2).map(|packet| packet.end.unwrap()).collect();
        // Packets of 20 ms, one on each page. The last is shorter, and 2.5 ms come before the first.
        assert_eq!(ends, [960, 1920, 2880, 3840, 4800, 4920]);
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let refusal = |bytes: &[u8]| {
            let mut reader = Reader::new();
            reader.handle_bytes(bytes);
            reader.poll_packet().unwrap_err().to_string()
        };
        assert_eq!(refusal(&[b'x'; HEAD]), "no Ogg page at byte 0");
        let whole = pages(&[vec![1; 300]], 1);
        let (_, second) = whole.split_at(HEAD + 1 + 255);
        assert!(refusal(second).contains("did not begin"), "{}", refusal(second));
        let endless: Vec<u8> = pages(&[vec![1; MAX_PACKET + 1]], 255);
        let mut reader = Reader::new();
        let error = endless.chunks(1000).find_map(|bytes| {
            reader.handle_bytes(bytes);
            reader.poll_packet().err()
        });
        assert!(error.unwrap().to_string().contains("exceeds the limit"));
    }
}
