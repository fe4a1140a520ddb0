//! The part that H.264 and HEVC share in RTP: a packet has a NAL unit, several of them, or a fragment of one.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use media::codec::nal::MAX_UNITS;
use media::{Codec, Error};

use crate::depacketizer::{Finished, PayloadFormat, append};

/// The most parameter sets of each kind, and bytes in each. Encoders send one of each.
pub(crate) const MOST_SETS: (usize, usize) = (8, 4096);

/// The shortest payload that packets can be limited to.
const LEAST: usize = 16;

/// Bits of the header of a fragment: it is the first, or the last. The other bits are the NAL unit's type.
const START: u8 = 0x80;
const END: u8 = 0x40;

/// How a codec writes NAL units, and a payload format makes packets of them.
pub(crate) trait Syntax: Debug + Send + Sync + 'static {
    /// The name of the payload format, for errors.
    const NAME: &'static str;
    /// Bytes of a NAL unit's header. Payloads begin with such a header, too.
    const HEADER: usize;
    /// The largest type of a NAL unit: all bits of the type are set.
    const TYPES: u8;
    /// The types of payloads that have several NAL units, and a fragment of one.
    const AGGREGATE: u8;
    const FRAGMENT: u8;
    /// How many kinds of parameter sets there are.
    const SETS: usize;

    /// The type in the first byte of a header.
    fn kind(first: u8) -> u8;

    /// The first byte of a header with another type.
    fn with_kind(first: u8, kind: u8) -> u8;

    /// What a NAL unit is. `None` if no packet may have such a unit.
    fn meaning(header: &[u8], rest: &[u8]) -> Option<Meaning>;

    /// Writes the header of a packet with several NAL units.
    fn aggregate(nals: &[&[u8]], payload: &mut Vec<u8>);

    /// Makes a configuration record of the parameter sets of each kind.
    fn record(sets: &[Vec<Bytes>]) -> Result<Bytes, Error>;

    /// Reads a configuration record.
    fn codec(record: Bytes) -> Result<Codec, Error>;
}

/// What a NAL unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A parameter set. Its kind is the place among those of the codec.
    Set(usize),
    /// No part of a sample.
    Idle,
    /// A slice, and whether it begins its picture.
    Slice(Picture, bool),
    /// A part of a sample that is no picture.
    Other,
}

/// What a picture means for decoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Picture {
    #[default]
    Plain,
    /// It may refer to pictures before the keyframe.
    Leading,
    /// Decoding can start here.
    Key,
    /// The same, and what later pictures refer to before it is not there.
    BrokenLink,
}

/// The access unit so far, and the parameter sets of those before.
#[derive(Debug)]
pub(crate) struct Format<S> {
    pub(crate) unit: Vec<u8>,
    /// Where in `unit` the length of a fragmented NAL unit is.
    fragment: Option<usize>,
    /// NAL units in `unit`.
    nals: usize,
    picture: Option<Picture>,
    /// Whether the picture's first slice is there.
    has_start: bool,
    /// The parameter sets of each kind.
    pub(crate) sets: Vec<Vec<Bytes>>,
    /// Whether those of a kind were begun anew by this access unit.
    renewed: Vec<bool>,
    /// Whether keyframes bring their parameter sets, as WebRTC's encoders do.
    repeats: bool,
    /// The record of the last configuration.
    record: Option<Bytes>,
    syntax: PhantomData<S>,
}

impl<S: Syntax> Default for Format<S> {
    fn default() -> Self {
        Self {
            unit: Vec::new(),
            fragment: None,
            nals: 0,
            picture: None,
            has_start: false,
            sets: vec![Vec::new(); S::SETS],
            renewed: vec![false; S::SETS],
            repeats: false,
            record: None,
            syntax: PhantomData,
        }
    }
}

impl<S: Syntax> PayloadFormat for Format<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn take(&mut self, payload: &[u8]) -> Option<()> {
        let (header, mut rest) = payload.split_at_checked(S::HEADER)?;
        let (&first, second) = header.split_first()?;
        let kind = S::kind(first);
        if self.fragment.is_some() && kind != S::FRAGMENT {
            return None;
        }
        if kind == S::AGGREGATE {
            while !rest.is_empty() {
                let (length, after) = rest.split_first_chunk()?;
                let (nal, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
                self.nal(nal)?;
                rest = after;
            }
            return Some(());
        }
        if kind != S::FRAGMENT {
            return self.nal(payload);
        }
        let (&flags, data) = rest.split_first()?;
        let (start, end) = (flags & START != 0, flags & END != 0);
        if data.is_empty() || start == self.fragment.is_some() {
            return None;
        }
        if start {
            let at = self.unit.len();
            append(&mut self.unit, &[0, 0, 0, 0, S::with_kind(first, flags & S::TYPES)])?;
            append(&mut self.unit, second)?;
            self.fragment = Some(at);
        }
        append(&mut self.unit, data)?;
        if end {
            let at = self.fragment.take()?;
            let nal = self.unit.get(at + 4..)?.to_vec();
            self.unit.truncate(at);
            self.nal(&nal)?;
        }
        Some(())
    }

    fn give_up_fragment(&mut self) -> bool {
        self.fragment.take().is_some()
    }

    fn finish(&mut self) -> Finished {
        let has_sets = self.renewed.iter().all(|renewed| *renewed);
        self.renewed.fill(false);
        self.nals = 0;
        self.repeats |= has_sets;
        let picture = self.picture.take();
        let (has_picture, picture) = (picture.is_some(), picture.unwrap_or_default());
        let key = matches!(picture, Picture::Key | Picture::BrokenLink);
        let has_start = std::mem::take(&mut self.has_start);
        Finished {
            data: std::mem::take(&mut self.unit),
            key,
            has_start: has_start && (has_sets || !key || !self.repeats),
            has_picture,
            breaks: picture == Picture::BrokenLink,
            leads: picture == Picture::Leading,
        }
    }

    fn configuration(&mut self, _: &[u8]) -> Result<Option<Codec>, Error> {
        let record = S::record(&self.sets)?;
        if self.record.as_ref() == Some(&record) {
            return Ok(None);
        }
        let codec = S::codec(record.clone())?;
        self.record = Some(record);
        Ok(Some(codec))
    }
}

impl<S: Syntax> Format<S> {
    /// Takes a whole NAL unit.
    fn nal(&mut self, nal: &[u8]) -> Option<()> {
        let (header, rest) = nal.split_at_checked(S::HEADER)?;
        match S::meaning(header, rest)? {
            Meaning::Set(kind) => return self.renew(kind, nal),
            Meaning::Idle => return Some(()),
            Meaning::Slice(picture, is_first) => {
                // The slices of a picture are of one kind. If not, decoders may begin here anyway.
                self.picture = self.picture.max(Some(picture));
                self.has_start |= is_first;
            }
            Meaning::Other => {}
        }
        self.nals += 1;
        if self.nals > MAX_UNITS {
            return None;
        }
        append(&mut self.unit, &u32::try_from(nal.len()).ok()?.to_be_bytes())?;
        append(&mut self.unit, nal)
    }

    /// Adds a parameter set to those of its kind. The first of an access unit replaces those before.
    fn renew(&mut self, kind: usize, set: &[u8]) -> Option<()> {
        let (sets, renewed) = (self.sets.get_mut(kind)?, self.renewed.get_mut(kind)?);
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
}

/// Makes the payloads of an access unit's packets, each of `most` bytes at most. The last packet's
/// marker is set.
///
/// Small NAL units that follow each other share a packet. Large ones are cut into fragments of equal
/// size.
pub(crate) fn packetize<'a, S: Syntax>(
    nals: impl IntoIterator<Item = &'a [u8]>,
    most: usize,
) -> Vec<Arc<[u8]>> {
    let most = most.max(LEAST);
    let (mut payloads, mut small) = (Vec::new(), Small::default());
    for nal in nals {
        let Some((header, rest)) = nal.split_at_checked(S::HEADER) else { continue };
        if nal.len() <= most {
            if !small.fits::<S>(nal, most) {
                small.flush::<S>(&mut payloads);
            }
            small.add(nal);
            continue;
        }
        small.flush::<S>(&mut payloads);
        let room = most - S::HEADER - 1;
        let size = rest.len().div_ceil(rest.len().div_ceil(room));
        let last = rest.chunks(size).len() - 1;
        for (index, data) in rest.chunks(size).enumerate() {
            let start = if index == 0 { START } else { 0 };
            let end = if index == last { END } else { 0 };
            let mut payload = Vec::with_capacity(most);
            payload.extend_from_slice(header);
            payload[0] = S::with_kind(header[0], S::FRAGMENT);
            payload.push(S::kind(header[0]) | start | end);
            payload.extend_from_slice(data);
            payloads.push(payload.into());
        }
    }
    small.flush::<S>(&mut payloads);
    payloads
}

/// NAL units that will share a packet.
#[derive(Default)]
struct Small<'a> {
    nals: Vec<&'a [u8]>,
    /// Bytes of the units, each with its length.
    bytes: usize,
}

impl<'a> Small<'a> {
    /// Whether another NAL unit fits into the packet.
    fn fits<S: Syntax>(&self, nal: &[u8], most: usize) -> bool {
        S::HEADER + self.bytes + 2 + nal.len() <= most
    }

    fn add(&mut self, nal: &'a [u8]) {
        self.bytes += 2 + nal.len();
        self.nals.push(nal);
    }

    fn flush<S: Syntax>(&mut self, payloads: &mut Vec<Arc<[u8]>>) {
        let nals = std::mem::take(&mut self.nals);
        match nals.as_slice() {
            [] => {}
            [nal] => payloads.push((*nal).into()),
            nals => {
                let mut payload = Vec::with_capacity(S::HEADER + self.bytes);
                S::aggregate(nals, &mut payload);
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
mod tests {
    use super::*;
    use crate::depacketizer::MOST_BYTES;

    /// A peer sends nothing but beginnings of fragments, all with one time.
    #[test]
    fn beginnings_of_fragments_make_no_endless_access_unit() {
        let mut format = Format::<crate::h264::H264>::default();
        let long = [&[0x7C, START | 5][..], &[0; 60_000]].concat();
        for payload in [&long[..], &[0x7C, START | 5, 0]] {
            for _ in 0..1000 {
                let taken = format.take(payload);
                assert!(taken.is_some() || format.unit.len() > MOST_BYTES - payload.len() - 5);
                format.give_up_fragment();
            }
        }
        assert!(format.unit.len() <= MOST_BYTES);
    }
}
