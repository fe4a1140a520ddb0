//! H.264 in RTP, RFC 6184: packetization mode 1, and mode 0, which is a part of it.

use std::sync::Arc;

use bytes::Bytes;
use media::codec::avc;
use media::{Codec, Error};

use crate::depacketizer::{Depacketizer, Finished, PayloadFormat, append};

/// `nal_unit_type`, ISO/IEC 14496-10 table 7-1.
const SLICE: u8 = 1;
const IDR: u8 = 5;
const SPS: u8 = 7;
const PPS: u8 = 8;
/// Access unit delimiter, end of sequence, end of stream and filler data carry no picture.
const IDLE: std::ops::RangeInclusive<u8> = 9..=12;
/// Types of payloads that are no NAL units, RFC 6184 table 1.
const STAP_A: u8 = 24;
const FU_A: u8 = 28;

/// The most parameter sets of each kind, and bytes in each. Encoders send one of each.
const MOST_SETS: (usize, usize) = (8, 4096);

/// Makes access units of the payloads of packets in order.
pub fn depacketizer() -> Depacketizer {
    Depacketizer::new(Format::default())
}

/// The access unit so far, and the parameter sets of those before.
#[derive(Debug, Default)]
struct Format {
    unit: Vec<u8>,
    /// Where in `unit` the length of a fragmented NAL unit is.
    fragment: Option<usize>,
    key: bool,
    has_picture: bool,
    /// Whether the picture's first slice is there.
    has_start: bool,
    sps: Vec<Bytes>,
    pps: Vec<Bytes>,
    /// Whether `sps` and `pps` were begun anew by this access unit.
    renewed: (bool, bool),
    /// Whether keyframes bring their parameter sets, as WebRTC's encoders do.
    repeats: bool,
    /// The record of the last configuration.
    record: Option<Bytes>,
}

impl PayloadFormat for Format {
    fn name(&self) -> &'static str {
        "H.264 in RTP (RFC 6184)"
    }

    fn take(&mut self, payload: &[u8]) -> Option<()> {
        let (&first, rest) = payload.split_first()?;
        if self.fragment.is_some() && first & 0x1f != FU_A {
            return None;
        }
        match first & 0x1f {
            STAP_A => {
                let mut rest = rest;
                while !rest.is_empty() {
                    let (length, after) = rest.split_at_checked(2)?;
                    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                    let (unit, after) = after.split_at_checked(length)?;
                    self.nal(unit)?;
                    rest = after;
                }
                Some(())
            }
            FU_A => {
                let (&header, data) = rest.split_first()?;
                let (start, end) = (header & 0x80 != 0, header & 0x40 != 0);
                if data.is_empty() || start == self.fragment.is_some() {
                    return None;
                }
                if start {
                    self.fragment = Some(self.unit.len());
                    self.unit.extend_from_slice(&[0; 4]);
                    self.unit.push(first & 0xe0 | header & 0x1f);
                }
                self.append(data)?;
                if end {
                    let at = self.fragment.take()?;
                    let nal = self.unit.get(at + 4..)?.to_vec();
                    self.unit.truncate(at);
                    self.nal(&nal)?;
                }
                Some(())
            }
            1..=23 => self.nal(payload),
            _ => None,
        }
    }

    fn give_up_fragment(&mut self) -> bool {
        self.fragment.take().is_some()
    }

    fn finish(&mut self) -> Finished {
        let (key, has_start) = (std::mem::take(&mut self.key), std::mem::take(&mut self.has_start));
        let has_sets = std::mem::take(&mut self.renewed) == (true, true);
        self.repeats |= has_sets;
        Finished {
            data: std::mem::take(&mut self.unit),
            key,
            has_start: has_start && (has_sets || !key || !self.repeats),
            has_picture: std::mem::take(&mut self.has_picture),
        }
    }

    fn configuration(&mut self, _: &[u8]) -> Result<Option<Codec>, Error> {
        let record = avc::record(&self.sps, &self.pps)?;
        if self.record.as_ref() == Some(&record) {
            return Ok(None);
        }
        let config = avc::Config::parse(record.clone())?;
        self.record = Some(record);
        Ok(Some(Codec::Avc(config)))
    }
}

impl Format {
    fn append(&mut self, data: &[u8]) -> Option<()> {
        append(&mut self.unit, data)
    }

    /// Takes a whole NAL unit.
    fn nal(&mut self, nal: &[u8]) -> Option<()> {
        let (&header, rest) = nal.split_first()?;
        match header & 0x1f {
            SPS => renew(&mut self.sps, &mut self.renewed.0, nal),
            PPS => renew(&mut self.pps, &mut self.renewed.1, nal),
            kind if IDLE.contains(&kind) => Some(()),
            kind => {
                if (SLICE..=IDR).contains(&kind) {
                    self.has_picture = true;
                    self.key |= kind == IDR;
                    // `first_mb_in_slice` is 0, which is written as a single bit 1.
                    self.has_start |= rest.first()? & 0x80 != 0;
                }
                self.append(&u32::try_from(nal.len()).ok()?.to_be_bytes())?;
                self.append(nal)
            }
        }
    }
}

/// Adds a parameter set to those of its kind. The first of an access unit replaces those before.
fn renew(sets: &mut Vec<Bytes>, renewed: &mut bool, set: &[u8]) -> Option<()> {
    if !std::mem::replace(renewed, true) {
        sets.clear();
    }
    let (most, longest) = MOST_SETS;
    if sets.len() >= most || set.len() > longest {
        return None;
    }
    if !sets.iter().any(|known| known == set) {
        sets.push(Bytes::copy_from_slice(set));
    }
    Some(())
}

/// Makes the payloads of an access unit's packets, each of `most` bytes at most. The last packet's
/// marker is set.
///
/// Small NAL units that follow each other share a packet. Large ones are cut into fragments of equal
/// size.
pub fn packetize<'a>(nals: impl IntoIterator<Item = &'a [u8]>, most: usize) -> Vec<Arc<[u8]>> {
    let most = most.max(16);
    let (mut payloads, mut small) = (Vec::new(), Small::default());
    for nal in nals {
        let Some((&header, rest)) = nal.split_first() else { continue };
        if nal.len() <= most {
            if !small.fits(nal, most) {
                small.flush(&mut payloads);
            }
            small.add(nal);
            continue;
        }
        small.flush(&mut payloads);
        let room = most - 2;
        let size = rest.len().div_ceil(rest.len().div_ceil(room));
        let last = rest.chunks(size).len() - 1;
        for (index, data) in rest.chunks(size).enumerate() {
            let start = if index == 0 { 0x80 } else { 0 };
            let end = if index == last { 0x40 } else { 0 };
            let heads = [header & 0xe0 | FU_A, header & 0x1f | start | end];
            payloads.push([heads.as_slice(), data].concat().into());
        }
    }
    small.flush(&mut payloads);
    payloads
}

/// NAL units that will share a packet.
#[derive(Default)]
struct Small<'a> {
    nals: Vec<&'a [u8]>,
    bytes: usize,
}

impl<'a> Small<'a> {
    /// Whether another NAL unit fits into the packet.
    fn fits(&self, nal: &[u8], most: usize) -> bool {
        1 + self.bytes + 2 + nal.len() <= most
    }

    fn add(&mut self, nal: &'a [u8]) {
        self.bytes += 2 + nal.len();
        self.nals.push(nal);
    }

    fn flush(&mut self, payloads: &mut Vec<Arc<[u8]>>) {
        let nals = std::mem::take(&mut self.nals);
        match nals.as_slice() {
            [] => {}
            [nal] => payloads.push((*nal).into()),
            nals => {
                // F is set if any NAL unit's is. NRI is the greatest of them (RFC 6184 5.7).
                let forbidden = nals.iter().fold(0, |bits, nal| bits | nal[0] & 0x80);
                let reference = nals.iter().map(|nal| nal[0] & 0x60).max().unwrap_or(0);
                let mut payload = Vec::with_capacity(1 + self.bytes);
                payload.push(forbidden | reference | STAP_A);
                for nal in nals {
                    // A NAL unit that shares a packet is shorter than the packet.
                    payload.extend_from_slice(&(nal.len() as u16).to_be_bytes());
                    payload.extend_from_slice(nal);
                }
                payloads.push(payload.into());
            }
        }
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests;
