//! What of a track viewers may ask for: an immutable snapshot, replaced whole with every part.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use payload::memory::Charge;

use crate::sequence::Sequence;
use crate::{Region, UnixMicros};

/// A CMAF header and the track it describes. A new one begins where the configuration changes.
#[derive(Debug)]
pub struct Header {
    /// Number of the first segment that needs it; its name in URLs.
    pub msn: u64,
    /// Codec, timescale, track_ID.
    pub track: media::Track,
    /// `ftyp` and `moov`.
    pub bytes: Bytes,
}

/// Where a sample lies in its part, and when it is decoded and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleLayout {
    /// When it is due by the publisher's clock, on the stream's timeline in the track's timescale.
    /// Frames of video are decoded one frame earlier in CMAF ([`Part::start`]).
    pub dts: i64,
    /// Composition time minus `dts`.
    pub cts: i32,
    /// Whether decoding can start here.
    pub sync: bool,
    /// First byte, from the start of the part.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// A chunk, published: one `moof` and `mdat`, with `styp` and `prft` before it at a segment's start.
#[derive(Debug)]
pub struct Part {
    /// Decode time of its first sample, in the track's timescale.
    pub start: i64,
    /// Sum of its samples' durations, in the track's timescale.
    pub duration: u32,
    /// Starts with a sample decoding can start at.
    pub independent: bool,
    /// The bytes.
    pub region: Region,
    /// Its samples, in decode order.
    pub samples: Box<[SampleLayout]>,
    /// When it was published.
    pub published: UnixMicros,
    /// The same samples as FLV tags, made when the first viewer needs them.
    pub flv: Beside,
    /// The same samples as RTMP chunks, made when the first viewer needs them.
    pub rtmp: Beside,
    /// What it takes besides its bytes.
    pub(crate) _known: Charge,
}

/// Room for another form of a part's samples: one for all who need it, kept as long as the part or the
/// slowest of them. It counts as what the stream holds.
#[derive(Debug, Default)]
pub struct Beside(OnceLock<Bytes>);

/// A form that counts until nobody has it any more.
struct Form {
    bytes: Box<[u8]>,
    _charge: Charge,
}

impl AsRef<[u8]> for Form {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Beside {
    /// The form of `part`, whose own this is, made by `make` for the first who asks. `None` if there is no
    /// room for it now: nobody gets one of his own.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make<E>(
        &self,
        part: &Part,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Option<Bytes>, E> {
        if let Some(known) = self.0.get() {
            return Ok(Some(known.clone()));
        }
        // It is about as long as the part, and not to be made in vain.
        let Some(expected) = part.region.charge_beside(part.region.len()) else { return Ok(None) };
        let bytes = make()?.into_boxed_slice();
        drop(expected);
        let Some(charge) = part.region.charge_beside(bytes.len()) else { return Ok(None) };
        let form = || Bytes::from_owner(Form { bytes, _charge: charge });
        Ok(Some(self.0.get_or_init(form).clone()))
    }
}

impl Part {
    /// The bytes of one of its samples.
    pub fn sample(&self, layout: &SampleLayout) -> &[u8] {
        let start = layout.offset as usize;
        self.region.as_ref().get(start..start + layout.size as usize).unwrap_or_default()
    }
}

/// A run of parts. Complete, or the one being made.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Media sequence number.
    pub msn: u64,
    /// Decode time of its first sample, in the track's timescale.
    pub start: i64,
    /// Presentation time of its first sample, in the track's timescale.
    pub presents: i64,
    /// From its start to the end of its last part so far, in the track's timescale.
    pub duration: u64,
    /// Number of discontinuities on the stream's timeline up to and including its own start.
    pub period: u64,
    /// Presentation time of the period's first sample, in the track's timescale; 0 in period 0, where
    /// the stream's timeline starts. The same for all of the track's segments of a period, also
    /// when the first of them have left.
    pub period_start: i64,
    /// Whether it is the first of its period, and not the stream's first segment.
    pub discontinuity: bool,
    /// When its first sample was captured: its presentation time on the wall clock. The difference
    /// between the two is the same for all of the stream's tracks.
    pub captured: UnixMicros,
    /// Where the next most likely starts, as it was foretold when this began, by presentation time in the
    /// track's timescale; `None` where keyframes come as they like.
    pub expected_end: Option<i64>,
    /// What decodes it.
    pub header: Arc<Header>,
    /// Its parts so far.
    pub parts: Vec<Arc<Part>>,
}

impl Segment {
    /// Decode time after its last sample, in the track's timescale.
    pub fn end(&self) -> i64 {
        self.start.saturating_add(i64::try_from(self.duration).unwrap_or(i64::MAX))
    }

    /// Presentation time after its last sample, as far as can be told before the next segment begins.
    pub fn presented_end(&self) -> i64 {
        self.presents.saturating_add(i64::try_from(self.duration).unwrap_or(i64::MAX))
    }

    /// Bytes of its parts so far.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.region.len()).sum()
    }

    /// Whether it has no part yet.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// A track's segments at one moment.
///
/// Invariants: segment numbers are consecutive; within a period each part starts where the one
/// before it ends, unless audio is missing that silence could not stand in for (a hole, which counts in
/// its segment's duration); parts and complete segments never change from one snapshot to the next, they only leave at the front.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Complete segments, oldest first. The first [`Window::unlisted`] have left the playlists and
    /// are kept for viewers that hold an older one.
    pub segments: Sequence<Arc<Segment>>,
    /// How many of `segments` playlists no longer list.
    pub unlisted: usize,
    /// The segment being made; it has at least one part.
    pub open: Option<Arc<Segment>>,
    /// Nothing will be added.
    pub ended: bool,
    /// Mean bits per second of the complete segments, and of the densest.
    pub(crate) rate: Option<(u64, u64)>,
    /// Counts snapshots: two with the same version are the same.
    pub version: u64,
    /// What was rendered from this snapshot.
    pub rendered: Rendered,
}

/// Room for what deliveries render from one snapshot, so that each is rendered once and shared by
/// all who ask. A copy of a snapshot becomes the next one, so it starts out empty.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The media playlist.
    pub playlist: OnceLock<Bytes>,
    /// The playlist delta update: older segments skipped.
    pub delta: OnceLock<Bytes>,
}

impl Clone for Rendered {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Window {
    /// The segments that playlists list, oldest first.
    pub fn listed(&self) -> impl DoubleEndedIterator<Item = &Arc<Segment>> {
        self.segments.iter_from(self.unlisted)
    }

    /// Every segment that can be asked for, oldest first, the one being made last.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Arc<Segment>> {
        self.segments.iter().chain(&self.open)
    }

    /// The newest segment, complete or being made.
    pub fn newest(&self) -> Option<&Arc<Segment>> {
        self.open.as_ref().or(self.segments.back())
    }

    /// A segment by number, complete or being made. Constant time.
    pub fn segment(&self, msn: u64) -> Option<&Arc<Segment>> {
        if let Some(open) = &self.open
            && open.msn == msn
        {
            return Some(open);
        }
        let first = self.segments.front()?.msn;
        self.segments.get(usize::try_from(msn.checked_sub(first)?).ok()?)
    }

    /// Number of the segment after the last complete one: the one being made, or to be made.
    /// `None` before the first.
    pub fn next_msn(&self) -> Option<u64> {
        match (&self.open, self.segments.back()) {
            (Some(open), _) => Some(open.msn),
            (None, Some(last)) => Some(last.msn + 1),
            (None, None) => None,
        }
    }

    /// Whether segment `msn` is complete, or has left.
    pub fn is_complete(&self, msn: u64) -> bool {
        self.next_msn().is_some_and(|next| msn < next)
    }

    /// Mean bits per second, and of the densest segment. From the parts at hand while there is no
    /// complete segment; `None` before the first part.
    pub fn bitrate(&self) -> Option<(u64, u64)> {
        self.rate.or_else(|| {
            let open = self.open.as_ref().filter(|open| open.duration > 0)?;
            let timescale = u64::from(open.header.track.timescale);
            let rate = open.len() as u64 * 8 * timescale / open.duration;
            Some((rate, rate))
        })
    }

    /// Where playing starts for a viewer who wants to be near live: segment and part of the
    /// newest part that decoding can start at.
    pub fn newest_independent(&self) -> Option<(u64, usize)> {
        self.all().rev().find_map(|segment| {
            let part = segment.parts.iter().rposition(|part| part.independent)?;
            Some((segment.msn, part))
        })
    }
}
