//! What one node tells another of a stream: how it has changed. [`mirror`](crate::mirror) says how these are used.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::info::Status;
use crate::window::{Header, PartIndex, SampleLayout};
use crate::{PublisherInfo, Settings, UnixMicros};

/// A change of a stream.
#[derive(Debug, Clone)]
pub enum Change {
    /// The stream itself is now like this.
    Stream(Arc<Description>),
    /// A track has a further part.
    Part(Box<NewPart>),
    /// A track's window is now like this. Its parts came before.
    Window(WindowState),
}

/// What a stream is, besides the media of its tracks.
#[derive(Debug, Clone)]
pub struct Description {
    /// How the stream is cut, and how much of it is kept.
    pub settings: Settings,
    /// When it began.
    pub since: UnixMicros,
    /// Whether it is live, offline or over.
    pub status: Status,
    /// Wall-clock time of stream time 0 as it was with the first sample.
    pub epoch: UnixMicros,
    /// Number of changes of [`State`](crate::State) so far.
    pub version: u64,
    /// The longest that a segment may last, once that is known.
    pub target_duration: Option<Duration>,
    /// Whether manifests can be written.
    pub ready: bool,
    /// The present publishers.
    pub publishers: Vec<PublisherInfo>,
    /// How many video tracks and other tracks there have been.
    pub named: [u32; 2],
    /// Where other machines went on with it, the newest last, and at most [`MOST_ADOPTIONS`](Self::MOST_ADOPTIONS).
    pub adoptions: Vec<Adoption>,
    /// Its tracks in order of arrival.
    pub tracks: Vec<TrackDescription>,
}

impl Description {
    /// The most adoptions that are told.
    pub const MOST_ADOPTIONS: usize = 16;
}

/// Where a machine went on with the stream of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// When that was, by the machine's clock. It identifies the adoption.
    pub at: UnixMicros,
    /// The place after the last part that the machine had of each track, by track_ID. Another may have had more.
    pub places: Vec<(u32, PartIndex)>,
}

/// A track of a stream. Its track_ID, in the header, identifies it.
#[derive(Debug, Clone)]
pub struct TrackDescription {
    /// Name in URLs.
    pub name: String,
    /// Name of its rendition.
    pub rendition: Option<String>,
    /// The rendition that its publisher is, and the publisher's own number for the track.
    pub source: (Option<String>, u32),
    /// The newest header.
    pub header: Arc<Header>,
    /// Whether its samples are coming or expected.
    pub coming: bool,
    /// Whether viewers are offered it.
    pub offered: bool,
}

/// A further part of a track.
#[derive(Debug, Clone)]
pub struct NewPart {
    /// The track's track_ID.
    pub track: u32,
    /// Its place: the number of its segment, and its index there.
    pub place: PartIndex,
    /// The segment that it begins; only there if the index is 0.
    pub begins: Option<NewSegment>,
    /// Decode time of its first sample, in the track's timescale.
    pub start: i64,
    /// Sum of its samples' durations, in the track's timescale.
    pub duration: u32,
    /// Whether decoding can start at its first sample.
    pub independent: bool,
    /// When it was published.
    pub published: UnixMicros,
    /// Its samples, in decode order.
    pub samples: Box<[SampleLayout]>,
    /// The chunk.
    pub bytes: Bytes,
}

/// A segment that begins. The fields are those of [`Segment`](crate::Segment).
#[derive(Debug, Clone)]
pub struct NewSegment {
    /// Number of parts of the segment before, which is complete. `None` if this is the oldest segment that there is:
    /// a copy forgets what it has of the track.
    pub follows: Option<usize>,
    /// Decode time of its first sample.
    pub start: i64,
    /// Presentation time of its first sample.
    pub presents: i64,
    /// Number of discontinuities up to its start.
    pub period: u64,
    /// Presentation time of the period's first sample.
    pub period_start: i64,
    /// Whether it is the first of its period.
    pub discontinuity: bool,
    /// When its first sample was captured.
    pub captured: UnixMicros,
    /// Where the next one most likely starts.
    pub expected_end: Option<i64>,
    /// The header that decodes it.
    pub header: Arc<Header>,
}

/// The period of a unit, and its decode time in the track's timescale. No two units of a track have the same.
pub type UnitPlace = (u64, i64);

/// An access unit of a track. The fields are those of [`Unit`](crate::tap::Unit).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUnit {
    /// The track's track_ID.
    pub track: u32,
    /// Its place.
    pub place: UnitPlace,
    /// The place of the unit before it; `None` if that is not known.
    pub follows: Option<UnitPlace>,
    /// The number of the segment from which on the header is used that decodes it ([`Header::msn`]).
    pub header: u64,
    /// Presentation time after its decode time, in the track's timescale.
    pub cts: i32,
    /// Its duration in the track's timescale; 0 if the publisher does not say.
    pub duration: u32,
    /// Whether decoding can start there.
    pub sync: bool,
    /// The unit.
    pub data: Bytes,
}

/// A track's window, without its parts. The fields are those of [`Window`](crate::Window).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowState {
    /// The track's track_ID.
    pub track: u32,
    /// Number of this snapshot.
    pub version: u64,
    /// Number of the oldest segment.
    pub first: u64,
    /// Where the newest segment has its next part: its number, and the number of its parts. `None` if there is none.
    pub end: Option<PartIndex>,
    /// Whether the newest segment still grows.
    pub is_open: bool,
    /// Number of complete segments that playlists no longer list.
    pub unlisted: usize,
    /// Whether the track is over.
    pub ended: bool,
    /// Mean bits per second, and bits per second of the densest segment.
    pub rate: Option<(u64, u64)>,
    /// The longest that a part may be, in the track's timescale.
    pub part_limit: Option<u32>,
}
