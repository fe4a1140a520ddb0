//! An MP4, read box by box as its bytes come.

use media::cmaf::{Defaults, Header};
use media::stamp::REACH;

use super::boxes::{children, movie_duration, prft};
use super::fragment::{Extent, Fragment};
use crate::playback::Stamps;
use crate::{Error, Micros};

/// What [`Mp4`] found.
#[derive(Debug)]
pub enum Mp4Event {
    /// A `moov`.
    Header(Header),
    /// A fragment whose `mdat` has come.
    Fragment(Fragment),
}

/// Longest `moov` that is accepted, in bytes.
const MAX_MOOV: u64 = 32 << 20;
/// Longest `moof` that is accepted, in bytes.
const MAX_MOOF: u64 = 1 << 20;

/// The start of a fragment's first or last sample, which may hold a stamp.
#[derive(Debug, Clone, Copy)]
struct Probe {
    /// Index of the fragment in `waiting`.
    fragment: usize,
    is_last: bool,
    /// Position in the file.
    at: u64,
    /// How many bytes are examined.
    len: usize,
}

/// Reads an MP4, progressive or fragmented, or media segments, as their bytes come. It reads only
/// headers and `moof` boxes (ISO/IEC 14496-12).
#[derive(Debug, Default)]
pub struct Mp4 {
    at: u64,
    head: [u8; 16],
    len: usize,
    /// Bytes of the current box still to come; `None` between boxes.
    left: Option<u64>,
    kind: [u8; 4],
    /// Body of the current box, if it is needed.
    body: Vec<u8>,
    /// Fragments whose `mdat` has not come whole yet.
    waiting: Vec<Fragment>,
    /// The places to examine in their media; the next one is the last.
    probes: Vec<Probe>,
    /// Bytes of the next place, as far as they have come.
    front: Vec<u8>,
    defaults: Vec<Defaults>,
    captured: Option<(u32, Micros, u64)>,
    /// Milliseconds that `mvhd` or `mehd` gives.
    duration: Option<u64>,
    /// Bytes of the largest `mdat`: how many have come, and its size.
    data: Option<(u64, u64)>,
}

impl Mp4 {
    /// Makes a reader of segments that belong to this header.
    pub fn with_header(header: &Header) -> Self {
        Self { defaults: header.defaults.clone(), ..Self::default() }
    }

    /// Whether the last box is whole and no other has begun.
    pub fn is_between_boxes(&self) -> bool {
        self.left.is_none() && self.len == 0
    }

    /// Bytes of media (`mdat`): how many have come, and how many the file announces.
    pub fn data(&self) -> Option<(u64, u64)> {
        self.data
    }

    /// Duration that the file gives, in milliseconds.
    pub fn duration(&self) -> Option<u64> {
        self.duration
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The bytes are not MP4.
    pub fn read(
        &mut self,
        mut input: &[u8],
        event: &mut impl FnMut(Mp4Event),
    ) -> Result<(), Error> {
        while !input.is_empty() {
            let Some(left) = self.left else {
                let wanted = if self.len >= 8 { 16 } else { 8 };
                let taken = (wanted - self.len).min(input.len());
                self.head[self.len..self.len + taken].copy_from_slice(&input[..taken]);
                self.len += taken;
                self.at += taken as u64;
                input = &input[taken..];
                if self.len == wanted {
                    self.header(event)?;
                }
                continue;
            };
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
            if self.is_wanted() {
                self.body.extend_from_slice(&input[..taken]);
            }
            if self.kind == *b"mdat" {
                self.look(&input[..taken]);
                if let Some((come, _)) = &mut self.data {
                    *come += taken as u64;
                }
            }
            input = &input[taken..];
            self.at += taken as u64;
            self.left = Some(left - taken as u64);
            if left == taken as u64 {
                self.end(event)?;
            }
        }
        Ok(())
    }

    /// Looks for stamps in these bytes of an `mdat`, where a sample starts.
    fn look(&mut self, bytes: &[u8]) {
        while let Some(&probe) = self.probes.last() {
            let ahead = (probe.at + self.front.len() as u64).checked_sub(self.at);
            let Some(from) = ahead else {
                // Samples overlap: its start has passed.
                self.found(probe, None);
                continue;
            };
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            let Some(bytes) = bytes.get(from..).filter(|bytes| !bytes.is_empty()) else { return };
            let wanted = bytes.len().min(probe.len - self.front.len());
            self.front.extend_from_slice(&bytes[..wanted]);
            if self.front.len() < probe.len {
                return;
            }
            self.found(probe, Stamps::of_one(&self.front));
        }
    }

    /// Takes the result for the next place.
    fn found(&mut self, probe: Probe, stamps: Option<Stamps>) {
        self.probes.pop();
        self.front.clear();
        if let Some(fragment) = self.waiting.get_mut(probe.fragment) {
            fragment.stamps = match (probe.is_last, fragment.stamps, stamps) {
                (false, _, found) => found,
                (true, Some(first), Some(last)) => {
                    Some(Stamps { first: first.first, last: last.last })
                }
                (true, _, _) => None,
            };
        }
    }

    fn is_wanted(&self) -> bool {
        matches!(&self.kind, b"moov" | b"moof" | b"prft")
    }

    fn error(&self, kind: crate::Kind, what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::new(kind, what).at(format!("byte {}", self.at))
    }

    fn header(&mut self, event: &mut impl FnMut(Mp4Event)) -> Result<(), Error> {
        let [a, b, c, d, k0, k1, k2, k3, large @ ..] = self.head;
        self.kind = [k0, k1, k2, k3];
        if !self.kind.iter().all(|byte| matches!(byte, 0x20..=0x7E | 0xA9)) {
            return Err(self.error(crate::Kind::Garbage, "not an MP4 box"));
        }
        let size = match u32::from_be_bytes([a, b, c, d]) {
            1 if self.len == 8 => return Ok(()),
            1 => u64::from_be_bytes(large).checked_sub(16),
            // To the end of the file.
            0 => Some(u64::MAX),
            size => u64::from(size).checked_sub(8),
        };
        let Some(size) = size else {
            return Err(self.error(crate::Kind::Garbage, "MP4 box smaller than its header"));
        };
        let limit = match &self.kind {
            b"moov" => MAX_MOOV,
            b"moof" => MAX_MOOF,
            b"prft" => 256,
            _ => u64::MAX,
        };
        if size > limit {
            return Err(self.error(crate::Kind::Garbage, format!("MP4 box of {size} bytes")));
        }
        if self.kind == *b"mdat" && self.data.is_none_or(|(_, known)| size >= known) {
            self.data = Some((0, size));
        }
        self.len = 0;
        self.left = Some(size);
        if size == 0 { self.end(event) } else { Ok(()) }
    }

    fn end(&mut self, event: &mut impl FnMut(Mp4Event)) -> Result<(), Error> {
        self.left = None;
        let body = std::mem::take(&mut self.body);
        match &self.kind {
            b"moov" => {
                // `read_header` needs the whole box.
                let mut whole = (u32::try_from(body.len() + 8).unwrap_or(0)).to_be_bytes().to_vec();
                whole.extend_from_slice(b"moov");
                whole.extend_from_slice(&body);
                let header = media::cmaf::read_header(&whole).map_err(|error| {
                    Error::from(error).at(format!("moov before byte {}", self.at))
                })?;
                self.duration = movie_duration(&body);
                self.defaults.clone_from(&header.defaults);
                event(Mp4Event::Header(header));
            }
            b"moof" => {
                self.waiting.clear();
                self.moof(&body)?;
            }
            b"prft" => self.captured = prft(&body),
            b"mdat" => {
                while let Some(&probe) = self.probes.last() {
                    self.found(probe, None);
                }
                for fragment in self.waiting.drain(..) {
                    event(Mp4Event::Fragment(fragment));
                }
                self.captured = None;
            }
            _ => {}
        }
        // The buffer is kept for the next box, unless the box was a large one, which comes once.
        if body.capacity() <= 4096 {
            self.body = body;
            self.body.clear();
        }
        Ok(())
    }

    fn moof(&mut self, body: &[u8]) -> Result<(), Error> {
        // `moof` is limited to a size that needs no header of 16 bytes.
        let start = self.at.saturating_sub(body.len() as u64 + 8);
        self.probes.clear();
        self.front.clear();
        for (kind, traf) in children(body) {
            if kind == *b"traf" {
                let (mut fragment, ends) = Fragment::read(traf, start, &self.defaults)
                    .ok_or_else(|| self.error(crate::Kind::Corrupt, "malformed traf"))?;
                let captured = self.captured.filter(|(track, ..)| *track == fragment.track_id);
                fragment.captured = captured.map(|(_, unix, media)| (unix, media));
                let number = self.waiting.len();
                let probe = |is_last: bool, place: Extent| Probe {
                    fragment: number,
                    is_last,
                    at: place.at,
                    len: usize::try_from(place.size).unwrap_or(usize::MAX).clamp(1, REACH),
                };
                if let Some((first, last)) = ends {
                    self.probes.push(probe(false, first));
                    if last.at != first.at {
                        self.probes.push(probe(true, last));
                    }
                }
                self.waiting.push(fragment);
            }
        }
        self.probes.sort_by_key(|probe| std::cmp::Reverse(probe.at));
        Ok(())
    }
}
