//! H.264 in RTP, RFC 6184: packetization mode 1, and mode 0, which is a part of it.

use std::sync::Arc;

use bytes::Bytes;
use media::Error;
use media::codec::avc;

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

/// The longest access unit. Encoders of live video stay far below.
const MOST_BYTES: usize = 8 << 20;
/// The most parameter sets of each kind, and bytes in each. Encoders send one of each.
const MOST_SETS: (usize, usize) = (8, 4096);

/// An access unit that can be decoded, given all since the last keyframe.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessUnit {
    /// RTP timestamp.
    pub time: u32,
    /// Whether decoding can start here.
    pub key: bool,
    /// The configuration, if it is new.
    pub config: Option<avc::Config>,
    /// NAL units with lengths of four bytes, without parameter sets.
    pub data: Bytes,
}

/// What a packet led to.
#[derive(Debug)]
pub enum Output {
    /// A complete access unit.
    Unit(AccessUnit),
    /// A picture is lost, so all are dropped until a keyframe comes. Ask for one. The error says what is
    /// wrong where no packet is missing.
    Broken(Option<Error>),
}

/// Makes access units of the payloads of packets in order. It lets none pass that cannot be decoded:
/// after a loss it waits for a keyframe.
#[derive(Debug)]
pub struct Depacketizer {
    /// The access unit so far, and its RTP timestamp.
    unit: Vec<u8>,
    time: Option<u32>,
    /// Where in `unit` the length of a fragmented NAL unit is.
    fragment: Option<usize>,
    /// Whether something is missing from the access unit or wrong in it.
    spoilt: bool,
    /// Whether something in it breaks the format, although no packet is missing.
    malformed: bool,
    /// Whether packets are missing before the next one.
    after_loss: bool,
    /// Whether packets are missing before the access unit: perhaps its own first ones.
    uncertain: bool,
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
    waits: bool,
}

impl Default for Depacketizer {
    fn default() -> Self {
        Self {
            unit: Vec::new(),
            time: None,
            fragment: None,
            spoilt: false,
            malformed: false,
            // The first packet that comes need not be the first that was sent: others overtake it.
            after_loss: true,
            uncertain: false,
            key: false,
            has_picture: false,
            has_start: false,
            sps: Vec::new(),
            pps: Vec::new(),
            renewed: (false, false),
            repeats: false,
            record: None,
            waits: true,
        }
    }
}

impl Depacketizer {
    /// Whether it waits for a keyframe.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Notes that packets are missing before the next one.
    pub fn lose(&mut self) {
        self.spoilt |= self.time.is_some();
        self.after_loss = true;
        self.fragment = None;
        self.waits = true;
    }

    /// Takes a packet's payload. `each` gets what it leads to, at most two outputs.
    pub fn push(&mut self, time: u32, marker: bool, payload: &[u8], mut each: impl FnMut(Output)) {
        if payload.is_empty() {
            // Padding (RFC 3550 5.1): Chromium finds out so how much the link carries. It comes with the
            // time of the picture before, also after the end of that picture.
            return;
        }
        // The marker of an access unit's last packet may be missing (RFC 6184 5.1).
        if self.time.is_some_and(|current| current != time) {
            self.finish(&mut each);
        }
        let lost = std::mem::take(&mut self.after_loss);
        if self.time.replace(time).is_none() {
            self.uncertain = lost;
        }
        // After a loss, payloads may continue what is not there.
        let is_complete = !self.spoilt && !self.uncertain && !lost;
        if self.take(payload).is_none() {
            self.malformed |= is_complete;
            self.spoilt = true;
            self.fragment = None;
        }
        if marker {
            self.finish(&mut each);
        }
    }

    /// Takes a payload. `None` if it breaks the format.
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

    fn append(&mut self, data: &[u8]) -> Option<()> {
        (self.unit.len() + data.len() <= MOST_BYTES).then(|| self.unit.extend_from_slice(data))
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

    /// Ends the access unit.
    fn finish(&mut self, each: &mut impl FnMut(Output)) {
        let Some(time) = self.time.take() else { return };
        let unit = std::mem::take(&mut self.unit);
        let (key, has_start) = (std::mem::take(&mut self.key), std::mem::take(&mut self.has_start));
        let has_picture = std::mem::take(&mut self.has_picture);
        let unfinished = self.fragment.take().is_some();
        let has_sets = std::mem::take(&mut self.renewed) == (true, true);
        self.repeats |= has_sets;
        let is_whole = has_start && (has_sets || !key || !self.repeats);
        let malformed = std::mem::take(&mut self.malformed);
        let spoilt =
            std::mem::take(&mut self.spoilt) || unfinished || (self.uncertain && !is_whole);
        if spoilt {
            self.waits = true;
            let at = unit.len() as u64;
            let error = || Error::Malformed { what: "H.264 in RTP (RFC 6184)".into(), at };
            return each(Output::Broken(malformed.then(error)));
        }
        if !has_picture {
            return;
        }
        if !key {
            if !self.waits {
                each(Output::Unit(AccessUnit { time, key, config: None, data: unit.into() }));
            } else {
                each(Output::Broken(None));
            }
            return;
        }
        match self.configuration() {
            Ok(config) => {
                self.waits = false;
                each(Output::Unit(AccessUnit { time, key, config, data: unit.into() }));
            }
            Err(error) => {
                self.waits = true;
                // Packets that are missing may have had the parameter sets.
                each(Output::Broken((!self.uncertain).then_some(error)));
            }
        }
    }

    /// The configuration of a keyframe, if it is new.
    fn configuration(&mut self) -> Result<Option<avc::Config>, Error> {
        let record = avc::record(&self.sps, &self.pps)?;
        if self.record.as_ref() == Some(&record) {
            return Ok(None);
        }
        let config = avc::Config::parse(record.clone())?;
        self.record = Some(record);
        Ok(Some(config))
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
