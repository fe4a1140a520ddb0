//! AV1 in RTP: AOMedia, RTP Payload Format For AV1, version 1.0.
//!
//! A temporal unit's OBUs have no sizes of their own in packets. Each packet begins with an aggregation
//! header and has OBU elements: whole OBUs, or a fragment as the first or the last element.

use std::sync::Arc;

use bytes::Bytes;
use media::codec::av1;
use media::{Codec, Error};

use crate::depacketizer::{Depacketizer, Finished, PayloadFormat, append};

/// Bits of the aggregation header, section 4.4. The first element goes on from the packet before, the last goes
/// on in the next packet, a coded video sequence begins.
const GOES_ON: u8 = 0x80;
const WILL_GO_ON: u8 = 0x40;
const BEGINS: u8 = 0x08;

/// The most elements that the aggregation header can count (W). The last of them has no length then.
const MOST_COUNTED: usize = 3;

/// The longest sequence header. Encoders write a dozen bytes.
const MOST_SEQUENCE_HEADER: usize = 4_096;

/// The shortest payload that packets can be limited to.
const LEAST: usize = 16;

/// OBUs that neither packets (section 5) nor samples (AV1-ISOBMFF 2.4) have.
fn is_left_out(kind: u8) -> bool {
    matches!(kind, av1::OBU_TEMPORAL_DELIMITER | av1::OBU_TILE_LIST | av1::OBU_PADDING)
}

/// Makes temporal units of the payloads of packets in order.
pub fn depacketizer() -> Depacketizer {
    Depacketizer::new(Format::default())
}

/// The temporal unit so far: OBUs with sizes.
#[derive(Debug, Default)]
struct Format {
    unit: Vec<u8>,
    /// Where in `unit` the OBU begins that has come in part only. It has no size yet.
    fragment: Option<usize>,
    obus: u64,
    /// Whether the first OBU is a sequence header. Then nothing is missing before it.
    has_start: bool,
    has_sequence_header: bool,
    has_picture: bool,
    /// The record of the last configuration.
    record: Option<Bytes>,
}

impl PayloadFormat for Format {
    fn name(&self) -> &'static str {
        "AV1 in RTP"
    }

    fn take(&mut self, payload: &[u8]) -> Option<()> {
        let (&header, mut rest) = payload.split_first()?;
        let goes_on = header & GOES_ON != 0;
        if goes_on != self.fragment.is_some() || rest.is_empty() {
            return None;
        }
        let count = usize::from(header >> 4 & 3);
        for index in 1.. {
            let element;
            if index == count {
                (element, rest) = (rest, &[]);
            } else {
                let (length, after) = av1::read_leb128(rest)?;
                (element, rest) = after.split_at_checked(length)?;
            }
            if element.is_empty() {
                return None;
            }
            let at = self.fragment.take().unwrap_or(self.unit.len());
            append(&mut self.unit, element)?;
            let is_last = rest.is_empty();
            if is_last && header & WILL_GO_ON != 0 {
                self.fragment = Some(at);
            } else {
                self.finish_obu(at)?;
            }
            if is_last {
                // The elements that the header counts are all there.
                return (count == 0 || index == count).then_some(());
            }
        }
        None
    }

    fn give_up_fragment(&mut self) -> bool {
        self.fragment.take().is_some()
    }

    fn finish(&mut self) -> Finished {
        let data = std::mem::take(&mut self.unit);
        self.obus = 0;
        let has_sequence_header = std::mem::take(&mut self.has_sequence_header);
        Finished {
            key: has_sequence_header && av1::is_keyframe(&data) == Ok(true),
            data,
            has_start: std::mem::take(&mut self.has_start),
            has_picture: std::mem::take(&mut self.has_picture),
            breaks: false,
            leads: false,
        }
    }

    fn configuration(&mut self, data: &[u8]) -> Result<Option<Codec>, Error> {
        let Some(config) = av1::Config::from_temporal_unit(data)? else { return Ok(None) };
        if self.record.as_ref() == Some(&config.record) {
            return Ok(None);
        }
        self.record = Some(config.record.clone());
        Ok(Some(Codec::Av1(config)))
    }
}

impl Format {
    /// Gives the OBU at `at`, which is the end of the temporal unit, its size. An OBU may have one already.
    fn finish_obu(&mut self, at: usize) -> Option<()> {
        self.obus += 1;
        if self.obus > av1::MAX_OBUS {
            return None;
        }
        let bytes = self.unit.split_off(at);
        let mut obus = av1::obus(&bytes);
        let obu = obus.next()?.ok()?;
        if obus.next().is_some() {
            return None;
        }
        match obu.kind {
            kind if is_left_out(kind) => return Some(()),
            av1::OBU_SEQUENCE_HEADER if obu.payload.len() > MOST_SEQUENCE_HEADER => return None,
            av1::OBU_SEQUENCE_HEADER => {
                self.has_start |= self.unit.is_empty();
                self.has_sequence_header |= !self.has_picture;
            }
            av1::OBU_FRAME | av1::OBU_FRAME_HEADER => self.has_picture = true,
            _ => {}
        }
        obu.write(true, &mut self.unit);
        Some(())
    }
}

/// Makes the payloads of a temporal unit's packets, each of `most` bytes at most. The last packet's marker is
/// set. `begins` says whether a coded video sequence begins with it. `None` if it is broken.
///
/// Packets are full, and each OBU goes on in the next packet where that is possible: receivers that are not told
/// of frames otherwise, as by the dependency descriptor, take an OBU that begins a packet for a new frame.
pub fn packetize(temporal_unit: &[u8], begins: bool, most: usize) -> Option<Vec<Arc<[u8]>>> {
    let most = most.max(LEAST);
    let mut obus = Vec::new();
    for obu in av1::obus(temporal_unit) {
        let obu = obu.ok()?;
        if !is_left_out(obu.kind) {
            let mut bytes = Vec::with_capacity(2 + obu.payload.len());
            obu.write(false, &mut bytes);
            obus.push(bytes);
        }
    }
    let (mut payloads, mut packet) = (Vec::new(), Packet::new(if begins { BEGINS } else { 0 }));
    for (index, obu) in obus.iter().enumerate() {
        let is_last = index + 1 == obus.len();
        let mut rest = obu.as_slice();
        loop {
            let room = most - packet.bytes;
            let is_counted = packet.elements.len() < MOST_COUNTED;
            let needed = match is_last {
                true if is_counted => rest.len(),
                true => with_length(rest.len()),
                // The next OBU needs a length and a byte at least.
                false => with_length(rest.len()) + 3,
            };
            if needed <= room {
                packet.add(rest);
                break;
            }
            let room = if is_counted { room } else { room + room - with_length(room) };
            // The last byte is left for the next packet.
            let (now, later) = rest.split_at_checked(room.min(rest.len() - 1))?;
            let goes_on = !now.is_empty();
            if goes_on {
                packet.add(now);
            }
            payloads.push(packet.write(goes_on));
            packet = Packet::new(if goes_on { GOES_ON } else { 0 });
            rest = later;
        }
    }
    if !packet.elements.is_empty() {
        payloads.push(packet.write(false));
    }
    Some(payloads)
}

/// Bytes of an element of this length, with the length.
fn with_length(length: usize) -> usize {
    length + length.max(1).ilog2() as usize / 7 + 1
}

/// OBU elements that share a packet.
struct Packet<'a> {
    header: u8,
    elements: Vec<&'a [u8]>,
    /// Bytes of the header and the elements, each with its length.
    bytes: usize,
}

impl<'a> Packet<'a> {
    fn new(header: u8) -> Self {
        Self { header, elements: Vec::new(), bytes: 1 }
    }

    fn add(&mut self, element: &'a [u8]) {
        self.bytes += with_length(element.len());
        self.elements.push(element);
    }

    /// The payload. The last element may go on in the next packet.
    fn write(&self, will_go_on: bool) -> Arc<[u8]> {
        let count = self.elements.len();
        let counted = if count <= MOST_COUNTED { count } else { 0 };
        let mut payload = Vec::with_capacity(self.bytes);
        let flag = if will_go_on { WILL_GO_ON } else { 0 };
        payload.push(self.header | flag | (counted as u8) << 4);
        for (index, element) in self.elements.iter().enumerate() {
            if index + 1 != counted {
                av1::write_leb128(element.len(), &mut payload);
            }
            payload.extend_from_slice(element);
        }
        payload.into()
    }
}

#[cfg(test)]
mod tests;
