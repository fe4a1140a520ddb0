//! Containers read for their times alone: payloads are passed over, whatever their size, and
//! nothing is kept but what tells when media play and were captured. For viewers that are not
//! verified.

use media::Kind;
use media::clock::Unwrapper;
use media::cmaf::Header;

use media::stamp::REACH;

use crate::playback::{Stamps, Track};
use crate::{Error, Micros};

/// Whether an FLV tag or RTMP message whose payload starts with these bytes holds an access unit,
/// and not a sequence header, the end of a sequence or a command (FLV annex E.4.2.1 and E.4.3.1;
/// Enhanced RTMP v2, "ExAudioTagHeader" and "ExVideoTagHeader").
pub fn is_media(track: Track, start: [u8; 2]) -> bool {
    let [first, second] = start;
    match track {
        Track::Video if first & 0x80 != 0 => !matches!(first & 0x0F, 0 | 2 | 4 | 5),
        Track::Video if first >> 4 == 5 => false,
        // AVC, and HEVC as many encoders write it.
        Track::Video if matches!(first & 0x0F, 7 | 12) => second == 1,
        Track::Audio if first >> 4 == 9 => !matches!(first & 0x0F, 0 | 2 | 4),
        // AAC.
        Track::Audio if first >> 4 == 10 => second == 1,
        Track::Video | Track::Audio => true,
    }
}

/// The longest step between two messages of a track, in milliseconds, that is taken for the first
/// one's duration. What is longer is a hole.
const MAX_FRAME: i64 = 1000;

/// Turns the timestamps of FLV tags and RTMP messages into media that play: each is known to last
/// when the next one comes.
#[derive(Debug)]
pub struct FlvTimes {
    clock: Unwrapper,
    last: [Option<i64>; 2],
}

impl Default for FlvTimes {
    fn default() -> Self {
        Self { clock: Unwrapper::new(32), last: [None; 2] }
    }
}

impl FlvTimes {
    /// From when to when there are media to play now that an access unit of `timestamp`
    /// milliseconds has come.
    pub fn unit(&mut self, track: Track, timestamp: u32) -> (Micros, Micros) {
        let to = self.clock.unwrap(timestamp.into());
        let last = self.last[track as usize].replace(to).unwrap_or(to);
        let from = if (0..=MAX_FRAME).contains(&(to - last)) { last } else { to };
        (from.saturating_mul(1000), to.saturating_mul(1000))
    }
}

/// An FLV tag without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlvTag {
    /// Video or audio.
    pub track: Track,
    /// Milliseconds, all 32 bits.
    pub timestamp: u32,
    /// First bytes of the payload.
    pub start: [u8; 2],
    /// Of video, if it has one near its start.
    pub stamps: Option<Stamps>,
}

/// Reads the tags of an FLV file or HTTP-FLV response as it comes (FLV annex E.2 and E.3).
#[derive(Debug)]
pub struct Flv {
    /// Position in the file.
    at: u64,
    stage: FlvStage,
    /// What of the current header has come.
    head: [u8; 13],
    len: usize,
    /// Payload still to be passed over.
    skip: u64,
    /// First bytes of a video tag's payload behind those in `head`.
    front: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlvStage {
    File,
    BackLink,
    Tag,
}

/// Tag type of video, annex E.4.1.
const VIDEO: u8 = 9;

/// Keeps of the bytes what may hold a stamp.
fn keep_front(front: &mut Vec<u8>, bytes: &[u8]) {
    let wanted = bytes.len().min(REACH.saturating_sub(front.len()));
    if wanted > 0 {
        front.reserve_exact(REACH - front.len());
        front.extend_from_slice(&bytes[..wanted]);
    }
}

impl Default for Flv {
    fn default() -> Self {
        Self { at: 0, stage: FlvStage::File, head: [0; 13], len: 0, skip: 0, front: Vec::new() }
    }
}

impl Flv {
    /// Takes the next bytes; `tag` gets each audio and video tag once its payload is there.
    ///
    /// # Errors
    /// It is not FLV.
    pub fn read(&mut self, mut input: &[u8], tag: &mut impl FnMut(FlvTag)) -> Result<(), Error> {
        while !input.is_empty() {
            if self.skip > 0 {
                let taken = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
                if self.stage == FlvStage::Tag && self.head[0] == VIDEO {
                    keep_front(&mut self.front, &input[..taken]);
                }
                input = &input[taken..];
                self.advance_skip(taken, tag);
                continue;
            }
            // A tag's header is read with the first two bytes of its payload, if it has them.
            let wanted = match self.stage {
                FlvStage::File => 9,
                FlvStage::BackLink => 4,
                FlvStage::Tag if self.len < 4 => 4,
                FlvStage::Tag => 11 + self.payload().min(2),
            };
            let taken = (wanted - self.len).min(input.len());
            self.head[self.len..self.len + taken].copy_from_slice(&input[..taken]);
            self.len += taken;
            self.at += taken as u64;
            input = &input[taken..];
            if self.len == wanted {
                self.header(tag)?;
            }
        }
        Ok(())
    }

    fn payload(&self) -> usize {
        let [_, a, b, c, ..] = self.head;
        u32::from_be_bytes([0, a, b, c]) as usize
    }

    fn header(&mut self, tag: &mut impl FnMut(FlvTag)) -> Result<(), Error> {
        let garbage = |what: &'static str| {
            Error::new(crate::Kind::Garbage, what).at(format!("byte {}", self.at))
        };
        match self.stage {
            FlvStage::File => {
                let [f, l, v, _, _, a, b, c, d, ..] = self.head;
                let length = u32::from_be_bytes([a, b, c, d]);
                if [f, l, v] != *b"FLV" || !(9..=1024).contains(&length) {
                    return Err(garbage("not an FLV header"));
                }
                self.skip = u64::from(length - 9);
                self.next(FlvStage::BackLink);
            }
            FlvStage::BackLink => self.next(FlvStage::Tag),
            FlvStage::Tag if self.len == 4 => {
                if !matches!(self.head[0], 8 | 9 | 18) {
                    return Err(garbage("not an FLV tag"));
                }
            }
            FlvStage::Tag => {
                let start = self.len - 11;
                self.skip = (self.payload() - start) as u64;
                if self.skip == 0 {
                    self.end_tag(tag);
                }
            }
        }
        Ok(())
    }

    fn next(&mut self, stage: FlvStage) {
        self.stage = stage;
        self.len = 0;
    }

    fn advance_skip(&mut self, taken: usize, tag: &mut impl FnMut(FlvTag)) {
        self.skip -= taken as u64;
        self.at += taken as u64;
        if self.skip == 0 && self.stage == FlvStage::Tag {
            self.end_tag(tag);
        }
    }

    fn end_tag(&mut self, tag: &mut impl FnMut(FlvTag)) {
        let [kind, _, _, _, t2, t1, t0, t3, _, _, _, a, b] = self.head;
        let payload = self.payload();
        let start = [if payload > 0 { a } else { 0 }, if payload > 1 { b } else { 0 }];
        let track = if kind == VIDEO { Track::Video } else { Track::Audio };
        let timestamp = u32::from_be_bytes([t3, t2, t1, t0]);
        let stamps = Stamps::of_one(&self.front);
        self.front.clear();
        if kind != 18 && payload > 0 {
            tag(FlvTag { track, timestamp, start, stamps });
        }
        self.next(FlvStage::BackLink);
    }
}

/// Media of one track in one fragment, without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// track_ID.
    pub track_id: u32,
    /// Decode time of the first sample, in the track's timescale.
    pub decode_time: u64,
    /// Durations of the samples together, in the track's timescale.
    pub duration: u64,
    /// What a `prft` before it said of this track: microseconds since 1970, at a media time in
    /// the track's timescale.
    pub captured: Option<(Micros, u64)>,
    /// Of its first and its last sample, if both have one near their start.
    pub stamps: Option<Stamps>,
}

/// The start of a fragment's first or last sample, where there may be a stamp.
#[derive(Debug, Clone, Copy)]
struct Probe {
    /// Index of the fragment among those that wait.
    fragment: usize,
    is_last: bool,
    /// Position in the file.
    at: u64,
    /// How many bytes are looked at.
    len: usize,
}

/// Position in the file and size of a sample.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u64,
    size: u64,
}

/// What [`Mp4`] came upon.
#[derive(Debug)]
pub enum Mp4Event {
    /// The `moov`.
    Header(Header),
    /// A fragment whose `mdat` is there.
    Fragment(Fragment),
}

/// Longest `moov` that is read.
const MAX_MOOV: u64 = 32 << 20;
/// Longest `moof` that is read.
const MAX_MOOF: u64 = 1 << 20;

/// Reads an MP4, progressive or fragmented, or media segments, as they come: headers and `moof`
/// boxes only (ISO/IEC 14496-12).
#[derive(Debug, Default)]
pub struct Mp4 {
    at: u64,
    head: [u8; 16],
    len: usize,
    /// Bytes of the current box still to come; `None` between boxes.
    left: Option<u64>,
    kind: [u8; 4],
    /// The current box's body, where it is wanted.
    body: Vec<u8>,
    /// Fragments whose `mdat` has not been there yet.
    waiting: Vec<Fragment>,
    /// What of their media is looked at, the next one last.
    probes: Vec<Probe>,
    /// What has come of that.
    front: Vec<u8>,
    defaults: Vec<media::cmaf::Defaults>,
    captured: Option<(u32, Micros, u64)>,
    /// Milliseconds that `mvhd` or `mehd` says.
    duration: Option<u64>,
    /// Bytes of the largest `mdat`, come and in all.
    data: Option<(u64, u64)>,
}

impl Mp4 {
    /// A reader of segments that belong to this header.
    pub fn with_header(header: &Header) -> Self {
        Self { defaults: header.defaults.clone(), ..Self::default() }
    }

    /// Whether the last box is whole and no further has begun.
    pub fn is_between_boxes(&self) -> bool {
        self.left.is_none() && self.len == 0
    }

    /// Bytes of media (`mdat`) that have come, and that the file says there are.
    pub fn data(&self) -> Option<(u64, u64)> {
        self.data
    }

    /// What the file says it lasts, in milliseconds, if it does.
    pub fn duration(&self) -> Option<u64> {
        self.duration
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// It is not MP4.
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

    /// Looks for stamps where these bytes of an `mdat` have the start of a sample.
    fn look(&mut self, bytes: &[u8]) {
        while let Some(&probe) = self.probes.last() {
            let ahead = (probe.at + self.front.len() as u64).checked_sub(self.at);
            let Some(from) = ahead else {
                // Samples that overlap.
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

    /// The next probe has been looked at.
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
                // `read_header` wants the box whole.
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
        // Kept for the next box, unless it is one that comes once.
        if body.capacity() <= 4096 {
            self.body = body;
            self.body.clear();
        }
        Ok(())
    }

    fn moof(&mut self, body: &[u8]) -> Result<(), Error> {
        // A `moof` is too short for a header of 16 bytes.
        let start = self.at.saturating_sub(body.len() as u64 + 8);
        self.probes.clear();
        self.front.clear();
        for (kind, traf) in children(body) {
            if kind == *b"traf" {
                let (fragment, ends) = self
                    .traf(traf, start)
                    .ok_or_else(|| self.error(crate::Kind::Corrupt, "malformed traf"))?;
                let number = self.waiting.len();
                let probe = |is_last: bool, place: Place| Probe {
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

    /// A `traf` of a `moof` that starts at byte `moof`, with where its first and last sample are.
    fn traf(&self, traf: &[u8], moof: u64) -> Option<(Fragment, Option<(Place, Place)>)> {
        let (mut track_id, mut decode_time, mut duration) = (None, 0, 0u64);
        let (mut default_duration, mut default_size) = (None, None);
        let mut base = moof;
        let mut ends: Option<(Place, Place)> = None;
        for (kind, body) in children(traf) {
            let flags = u32::from_be_bytes([0, *body.get(1)?, *body.get(2)?, *body.get(3)?]);
            let mut fields = Fields(body.get(4..)?);
            match &kind {
                b"tfhd" => {
                    track_id = Some(fields.u32()?);
                    if flags & 1 != 0 {
                        base = fields.u64()?;
                    }
                    // sample_description_index.
                    fields.skip(if flags & 2 != 0 { 4 } else { 0 })?;
                    if flags & 8 != 0 {
                        default_duration = Some(fields.u32()?);
                    }
                    if flags & 0x10 != 0 {
                        default_size = Some(fields.u32()?);
                    }
                }
                b"tfdt" if body[0] == 1 => decode_time = fields.u64()?,
                b"tfdt" => decode_time = fields.u32()?.into(),
                b"trun" => {
                    let of_header = self.defaults.iter().find(|d| Some(d.track_id) == track_id);
                    let run = Run::read(
                        flags,
                        fields,
                        default_duration.or(of_header.map(|d| d.duration)).unwrap_or_default(),
                        default_size.or(of_header.map(|d| d.size)).unwrap_or_default(),
                    )?;
                    duration = duration.checked_add(run.duration)?;
                    let behind = ends.map(|(_, last)| last.at.saturating_add(last.size));
                    let at = match (run.data_offset, behind) {
                        (Some(offset), _) => base.saturating_add_signed(offset.into()),
                        (None, behind) => behind.unwrap_or(base),
                    };
                    if let Some((first, last)) = run.samples {
                        let place = |(from, size): (u64, u32)| Place {
                            at: at.saturating_add(from),
                            size: size.into(),
                        };
                        ends = Some((ends.map_or(place(first), |(first, _)| first), place(last)));
                    }
                }
                _ => {}
            }
        }
        let track_id = track_id?;
        let captured = self.captured.filter(|(track, ..)| *track == track_id);
        let captured = captured.map(|(_, unix, media)| (unix, media));
        Some((Fragment { track_id, decode_time, duration, captured, stamps: None }, ends))
    }
}

/// A `trun`, ISO/IEC 14496-12 8.8.8.
struct Run {
    data_offset: Option<i32>,
    duration: u64,
    /// Of the first and the last sample, from where the data begin, and the size.
    samples: Option<((u64, u32), (u64, u32))>,
}

impl Run {
    /// Durations and sizes are the given ones where it does not say them.
    fn read(flags: u32, mut fields: Fields<'_>, duration: u32, size: u32) -> Option<Self> {
        let count = fields.u32()?;
        let data_offset = if flags & 1 != 0 { Some(fields.u32()? as i32) } else { None };
        // first_sample_flags.
        fields.skip(if flags & 4 != 0 { 4 } else { 0 })?;
        let mut run = Self { data_offset, duration: 0, samples: None };
        if count == 0 {
            return Some(run);
        }
        if flags & 0x300 == 0 {
            run.duration = u64::from(count) * u64::from(duration);
            let last = u64::from(count - 1) * u64::from(size);
            // A size of 0 is one that only a header says which is not at hand.
            run.samples = (size > 0).then_some(((0, size), (last, size)));
            return Some(run);
        }
        let rest = (flags & 0xC00).count_ones() as usize * 4;
        let mut end = 0u64;
        for _ in 0..count {
            let duration = if flags & 0x100 != 0 { fields.u32()? } else { duration };
            let size = if flags & 0x200 != 0 { fields.u32()? } else { size };
            fields.skip(rest)?;
            // Neither sum can pass 2^64: there are less than 2^32 of each.
            run.duration += u64::from(duration);
            let first = run.samples.map_or((end, size), |(first, _)| first);
            run.samples = Some((first, (end, size)));
            end += u64::from(size);
        }
        run.samples = run.samples.filter(|_| end > 0);
        Some(run)
    }
}

/// Whether it is of use to look into a track's segments for stamps, for which else they would be
/// thrown away in the kernel: into the first few, and into all if one of those has them.
#[derive(Debug, Default)]
pub struct Search {
    without: u8,
    found: bool,
}

/// Segments without stamps after which none is looked into.
const LOOKS: u8 = 4;

impl Search {
    /// Whether to look into the next.
    pub fn is_on(&self) -> bool {
        self.found || self.without < LOOKS
    }

    /// One has been looked into.
    pub fn took(&mut self, stamps: Option<Stamps>) {
        match stamps {
            Some(_) => self.found = true,
            None => self.without = self.without.saturating_add(1),
        }
    }
}

/// The stamps of a segment, of its first and its last access unit; none where it is no MP4.
#[derive(Debug, Default)]
pub struct SegmentStamps {
    skimmer: Mp4,
    found: Option<Stamps>,
    is_over: bool,
}

impl SegmentStamps {
    /// Takes the next bytes of the segment.
    pub fn read(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        let found = &mut self.found;
        let read = self.skimmer.read(bytes, &mut |event| {
            if let Mp4Event::Fragment(Fragment { stamps: Some(stamps), .. }) = event {
                let first = found.map_or(stamps.first, |found| found.first);
                *found = Some(Stamps { first, last: stamps.last });
            }
        });
        self.is_over = read.is_err();
    }

    /// What was found.
    pub fn stamps(&self) -> Option<Stamps> {
        self.found
    }
}

/// Numbers from the front of a box's body.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }
}

/// The boxes in a box; ends where they do not add up.
fn children(body: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let mut fields = Fields(rest);
        let size = fields.u32()? as usize;
        let kind = *fields.0.first_chunk()?;
        let inner = rest.get(8..size)?;
        rest = &rest[size..];
        Some((kind, inner))
    })
}

/// Where the boxes of `data` that are whole end, the last of them an `mdat`: fragments up to there
/// can be read.
pub fn whole_fragments(data: &[u8]) -> usize {
    let (mut at, mut end) = (0usize, 0);
    loop {
        let mut fields = Fields(data.get(at..).unwrap_or_default());
        let (Some(size), Some(kind)) = (fields.u32(), fields.u32()) else { return end };
        let size = match size {
            1 => fields.u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX),
            0 => usize::MAX,
            size => size as usize,
        };
        let Some(next) = at.checked_add(size.max(8)).filter(|&next| next <= data.len()) else {
            return end;
        };
        at = next;
        if kind.to_be_bytes() == *b"mdat" {
            end = at;
        }
    }
}

/// Milliseconds of `mvhd`, or of `mehd` in a fragmented file.
fn movie_duration(moov: &[u8]) -> Option<u64> {
    let (mut timescale, mut duration) = (0u64, 0u64);
    let version = |body: &[u8]| body.first().copied();
    for (kind, body) in children(moov) {
        let mut fields = Fields(body.get(4..)?);
        match &kind {
            b"mvhd" if version(body) == Some(1) => {
                fields.skip(16)?;
                timescale = fields.u32()?.into();
                duration = fields.u64()?;
            }
            b"mvhd" => {
                fields.skip(8)?;
                timescale = fields.u32()?.into();
                duration = fields.u32()?.into();
            }
            b"mvex" => {
                for (kind, body) in children(body) {
                    let mut fields = Fields(body.get(4..)?);
                    if kind == *b"mehd" {
                        let wide = version(body) == Some(1);
                        duration = if wide { fields.u64()? } else { fields.u32()?.into() };
                    }
                }
            }
            _ => {}
        }
    }
    let known = timescale > 0 && duration > 0 && !matches!(duration, 0xFFFF_FFFF | u64::MAX);
    known.then(|| u64::try_from(u128::from(duration) * 1000 / u128::from(timescale)).ok()).flatten()
}

/// Seconds from 1900, where NTP counts from, to 1970.
const NTP_TO_UNIX: i64 = 2_208_988_800;

/// `prft`, ISO/IEC 14496-12 8.16.5: track, microseconds since 1970, media time.
fn prft(body: &[u8]) -> Option<(u32, Micros, u64)> {
    let mut fields = Fields(body.get(4..)?);
    let track = fields.u32()?;
    let ntp = fields.u64()?;
    let media = if body.first() == Some(&0) { fields.u32()?.into() } else { fields.u64()? };
    let fraction = ((ntp & 0xFFFF_FFFF) * 1_000_000) >> 32;
    // Both below 2^32 seconds.
    let unix = ((ntp >> 32) as i64 - NTP_TO_UNIX) * 1_000_000 + fraction as i64;
    Some((track, unix, media))
}

/// A time in a track's timescale as microseconds.
pub fn micros(time: i64, timescale: u32) -> Micros {
    let wide = i128::from(time) * 1_000_000 / i128::from(timescale.max(1));
    Micros::try_from(wide).unwrap_or(if time < 0 { Micros::MIN } else { Micros::MAX })
}

/// Which track of a player a track of a file is.
pub fn track_of(kind: Kind) -> Option<Track> {
    match kind {
        Kind::Video => Some(Track::Video),
        Kind::Audio => Some(Track::Audio),
        Kind::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use media::cmaf::{self, ChunkInfo, SegmentStart};
    use media::codec::{Codec, avc};
    use media::flv::{Message, Packetizer, file_header};
    use media::{Sample, stamp};

    use super::*;

    fn codec() -> Codec {
        Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap())
    }

    /// A picture of so many bytes, stamped where a time is given.
    fn picture(number: i64, size: usize, time: Option<u64>) -> Sample {
        let mut data = (size as u32).to_be_bytes().to_vec();
        data.resize(4 + size, 0x41);
        if let Some(time) = time {
            data = stamp::insert(&codec(), &data, time).unwrap();
        }
        let data = data.into();
        Sample { dts: number * 40, cts: 0, duration: 40, sync: number == 0, data }
    }

    fn fragment(samples: &[Sample]) -> Vec<u8> {
        let mut out = Vec::new();
        let segment_start = Some(SegmentStart { reference: None });
        let info = ChunkInfo { track_id: 1, sequence_number: 1, segment_start };
        cmaf::write_chunk(&mut out, &info, samples).unwrap();
        out
    }

    #[test]
    fn a_fragment_has_the_stamps_of_its_first_and_last_sample() {
        let pictures = |times: &[Option<u64>], size: usize| -> Vec<Sample> {
            (0..).zip(times).map(|(number, time)| picture(number, size, *time)).collect()
        };
        let found = |samples: &[Sample], split: usize| {
            let (mut skimmer, mut found) = (Mp4::default(), Vec::new());
            // Another before, so that positions are not those of the fragment.
            let bytes = [fragment(&pictures(&[None, Some(5)], 300)), fragment(samples)].concat();
            for piece in bytes.chunks(split) {
                skimmer
                    .read(piece, &mut |event| match event {
                        Mp4Event::Fragment(fragment) => found.push(fragment),
                        Mp4Event::Header(_) => panic!("no header"),
                    })
                    .unwrap();
            }
            assert_eq!((found.len(), found[0].stamps), (2, None));
            assert_eq!(found[1].duration, samples.len() as u64 * 40);
            found[1].stamps
        };
        for split in [1, 7, 191, 1000, usize::MAX] {
            // Shorter and longer than what is looked at.
            for size in [2, 100, 5000] {
                let stamps = |first, last| Some(Stamps { first, last });
                let three = pictures(&[Some(10), None, Some(30)], size);
                assert_eq!(found(&three, split), stamps(10, 30), "{split} {size}");
                assert_eq!(found(&three[..1], split), stamps(10, 10), "{split} {size}");
                assert_eq!(found(&three[..2], split), None, "{split} {size}");
                assert_eq!(found(&three[1..], split), None, "{split} {size}");
            }
        }
    }

    #[test]
    fn a_segment_has_those_of_its_ends_and_what_is_no_mp4_has_none() {
        let segment = [
            fragment(&[picture(0, 900, Some(10)), picture(1, 20, Some(20))]),
            fragment(&[picture(2, 20, None)]),
            fragment(&[picture(3, 20, Some(40)), picture(4, 900, Some(50))]),
        ]
        .concat();
        let mut inside = SegmentStamps::default();
        segment.chunks(33).for_each(|piece| inside.read(piece));
        assert_eq!(inside.stamps(), Some(Stamps { first: 10, last: 50 }));
        let mut inside = SegmentStamps::default();
        // As MPEG-TS is.
        inside.read(&[[0x47; 188], [0; 188]].concat());
        inside.read(&segment);
        assert_eq!(inside.stamps(), None);
    }

    #[test]
    fn a_search_without_success_ends_and_one_with_it_does_not() {
        let (mut barren, mut lucky) = (Search::default(), Search::default());
        lucky.took(Some(Stamps { first: 1, last: 1 }));
        for _ in 0..LOOKS {
            assert!(barren.is_on());
            barren.took(None);
            lucky.took(None);
        }
        assert!(!barren.is_on() && lucky.is_on());
    }

    #[test]
    fn a_video_tag_has_its_stamp() {
        let packetizer = Packetizer::new(0, &codec(), 1000).unwrap();
        let mut bytes = file_header(true, true).to_vec();
        bytes.extend_from_slice(&packetizer.sequence_header(0).unwrap().tag());
        for (number, time) in [(0, Some(10)), (1, None), (2, Some(30))] {
            let sample = picture(number, 1000, time);
            bytes.extend_from_slice(&packetizer.sample(&sample).unwrap().tag());
            // Sound that says the same is no video.
            let sound = [&[0xaf, 1][..], &picture(number, 10, Some(7)).data].concat();
            let sound = Message::new(media::flv::TagKind::Audio, number * 40, &[&sound]).unwrap();
            bytes.extend_from_slice(&sound.tag());
        }
        for split in [1, 13, 200, usize::MAX] {
            let (mut skimmer, mut found) = (Flv::default(), Vec::new());
            for piece in bytes.chunks(split) {
                skimmer
                    .read(piece, &mut |tag| found.push(tag.stamps.map(|stamps| stamps.last)))
                    .unwrap();
            }
            let tags = [None, Some(10), None, None, None, Some(30), None];
            assert_eq!(found, tags, "in pieces of {split}");
        }
    }
}
