//! The media of a track that viewers may ask for: an immutable snapshot, replaced as a whole with
//! every part.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use payload::memory::Charge;

use crate::sequence::Sequence;
use crate::{Region, UnixMicros, rescale};

/// A CMAF header and the track it describes. A new header begins when the configuration changes.
#[derive(Debug, PartialEq)]
pub struct Header {
    /// Number of the first segment that needs it. It is the header's name in URLs.
    pub msn: u64,
    /// Codec, timescale, track_ID.
    pub track: media::Track,
    /// `ftyp` and `moov`.
    pub bytes: Bytes,
}

/// Place of a sample in its part, and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleLayout {
    /// When it is due: the publisher's decode time on the stream's timeline, in the track's
    /// timescale. CMAF decodes frames of video one frame earlier ([`Part::start`]).
    pub dts: i64,
    /// Composition time minus `dts`.
    pub cts: i32,
    /// Whether decoding can start here.
    pub sync: bool,
    /// Offset of its first byte from the start of the part.
    pub offset: u32,
    /// Length in bytes.
    pub size: u32,
}

/// A published chunk: one `moof` and `mdat`, with `styp` and `prft` before it at a segment's start.
#[derive(Debug)]
pub struct Part {
    /// Decode time of its first sample, in the track's timescale.
    pub start: i64,
    /// Sum of its samples' durations, in the track's timescale.
    pub duration: u32,
    /// Whether decoding can start at its first sample.
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
    /// Memory that it uses besides its bytes.
    pub(crate) _known: Charge,
}

/// Another form of a part's samples, which all viewers who need it share. It lives as long as the
/// part or the slowest of these viewers. It counts as memory of the stream.
#[derive(Debug, Default)]
pub struct Beside(OnceLock<Bytes>);

/// A form of a part. Its memory counts until the last reference to it is dropped.
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
    /// The form of `part`, which must be the part that owns this. `make` makes it for the first
    /// caller. `None` if there is no memory for it now: then no viewer gets a copy of its own.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn get_or_make<E>(
        &self,
        part: &Part,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Option<Bytes>, E> {
        if let Some(known) = self.0.get() {
            return Ok(Some(known.clone()));
        }
        // The form is about as long as the part. Without room for so many bytes it is not worth
        // making.
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

/// A run of parts. It is complete, or the track's newest segment, which still grows.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Media sequence number.
    pub msn: u64,
    /// Decode time of its first sample, in the track's timescale.
    pub start: i64,
    /// Presentation time of its first sample, in the track's timescale.
    pub presents: i64,
    /// Duration from its start to the end of its last part so far, in the track's timescale.
    pub duration: u64,
    /// Number of discontinuities on the stream's timeline up to and including its own start.
    pub period: u64,
    /// Presentation time of the period's first sample, in the track's timescale; 0 in period 0,
    /// where the stream's timeline starts. It is the same for all of the track's segments of a
    /// period, even after the first of them have left the window.
    pub period_start: i64,
    /// Whether it is the first segment of its period. False for the stream's first segment.
    pub discontinuity: bool,
    /// When its first sample was captured: its presentation time on the wall clock. The difference
    /// between the two times is its [`epoch`](Self::epoch).
    pub captured: UnixMicros,
    /// Where the next segment most likely starts: a forecast made when this segment began, as
    /// presentation time in the track's timescale. `None` if keyframes are irregular.
    pub expected_end: Option<i64>,
    /// The header that decodes it.
    pub header: Arc<Header>,
    /// Its parts so far.
    pub parts: Vec<Arc<Part>>,
}

impl Segment {
    /// Decode time after its last sample, in the track's timescale.
    pub fn end(&self) -> i64 {
        self.start.saturating_add(i64::try_from(self.duration).unwrap_or(i64::MAX))
    }

    /// Presentation time after its last sample, as far as known before the next segment begins.
    pub fn presented_end(&self) -> i64 {
        self.presents.saturating_add(i64::try_from(self.duration).unwrap_or(i64::MAX))
    }

    /// Wall-clock time of stream time 0, in microseconds. This is one number, in whole milliseconds,
    /// for all tracks and segments of a period.
    pub fn epoch(&self) -> i64 {
        let captured = i64::try_from(self.captured.0).unwrap_or(i64::MAX);
        captured.saturating_sub(rescale(self.presents, self.header.track.timescale, 1_000_000))
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

/// A part's place in its track: the number of its segment and its index there.
pub type PartIndex = (u64, usize);

/// A track's segments at one moment.
///
/// Invariants: Segment numbers are consecutive. Within a period each part starts where the one
/// before it ends. The exception is a hole: missing audio that silence could not replace. It counts
/// in its segment's duration. Parts and complete segments never change from one snapshot to the
/// next. They only leave at the front.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Complete segments, oldest first. The first [`Window::unlisted`] of them are in no playlist.
    /// They have left the playlists, and viewers that hold an older one may ask for them. Or they
    /// came long before the first frame.
    pub segments: Sequence<Arc<Segment>>,
    /// Number of `segments` that playlists no longer list.
    pub unlisted: usize,
    /// The segment that still grows. It has at least one part.
    pub open: Option<Arc<Segment>>,
    /// Whether the track is over: nothing will be added.
    pub ended: bool,
    /// Mean bits per second of the complete segments, and bits per second of the densest one.
    pub(crate) rate: Option<(u64, u64)>,
    /// Number of this snapshot. Two snapshots with the same version are the same.
    pub version: u64,
    /// Texts that were rendered from this snapshot.
    pub rendered: Rendered,
}

/// Texts that deliveries render from one snapshot. Each is rendered once and shared by all who ask.
/// A copy of a snapshot becomes the next snapshot, so its texts start out empty.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The media playlist, and its checksum.
    pub playlist: OnceLock<(Bytes, u32)>,
    /// The playlist delta update, which skips older segments, and its checksum.
    pub delta: OnceLock<(Bytes, u32)>,
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

    /// Whether a playlist of the track can be written. It can if it lists a complete segment. It can
    /// also if the track was away for a whole period: players then wait for the segment being made.
    pub fn has_listed(&self) -> bool {
        let later = || self.newest().is_some_and(|newest| newest.period > 0);
        self.segments.len() > self.unlisted || !self.segments.is_empty() && later()
    }

    /// Every segment that viewers can ask for, oldest first. The last one may still grow.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Arc<Segment>> {
        self.segments.iter().chain(&self.open)
    }

    /// The newest segment, complete or not.
    pub fn newest(&self) -> Option<&Arc<Segment>> {
        self.open.as_ref().or(self.segments.back())
    }

    /// A segment by its number, complete or not. Constant time.
    pub fn segment(&self, msn: u64) -> Option<&Arc<Segment>> {
        if let Some(open) = &self.open
            && open.msn == msn
        {
            return Some(open);
        }
        let first = self.segments.front()?.msn;
        self.segments.get(usize::try_from(msn.checked_sub(first)?).ok()?)
    }

    /// Number of the segment after the last complete one, whether that segment has begun or not.
    /// `None` before the first.
    pub fn next_msn(&self) -> Option<u64> {
        match (&self.open, self.segments.back()) {
            (Some(open), _) => Some(open.msn),
            (None, Some(last)) => Some(last.msn + 1),
            (None, None) => None,
        }
    }

    /// Whether segment `msn` is complete or has left the window.
    pub fn is_complete(&self, msn: u64) -> bool {
        self.next_msn().is_some_and(|next| msn < next)
    }

    /// The part at `place`, and its segment. From the end of a complete segment, `place` moves on to
    /// the start of the next one. `None` if that part is still to come or has left the window.
    pub fn part(&self, place: &mut PartIndex) -> Option<(&Arc<Segment>, &Arc<Part>)> {
        loop {
            let (msn, at) = *place;
            let segment = self.segment(msn)?;
            if let Some(part) = segment.parts.get(at) {
                return Some((segment, part));
            }
            if !self.is_complete(msn) {
                return None;
            }
            *place = (msn + 1, 0);
        }
    }

    /// Whether the part at `place` has left the window.
    pub fn has_lost(&self, (msn, _): PartIndex) -> bool {
        self.all().next().is_some_and(|first| msn < first.msn)
    }

    /// Mean bits per second, and bits per second of the densest segment. While no segment is
    /// complete, both come from the parts so far. `None` before the first part.
    pub fn bitrate(&self) -> Option<(u64, u64)> {
        self.rate.or_else(|| {
            let open = self.open.as_ref().filter(|open| open.duration > 0)?;
            let timescale = u64::from(open.header.track.timescale);
            let rate = open.len() as u64 * 8 * timescale / open.duration;
            Some((rate, rate))
        })
    }

    /// Where playback near live starts: the newest part that decoding can start at.
    pub fn newest_independent(&self) -> Option<PartIndex> {
        self.all().rev().find_map(|segment| {
            let part = segment.parts.iter().rposition(|part| part.independent)?;
            Some((segment.msn, part))
        })
    }
}
