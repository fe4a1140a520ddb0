//! Live streams: how the crate cuts them, how much of them it keeps, and how viewers read them.
//!
//! ```text
//! Publisher ─ samples ─▶ Timeline ─┬▶ packager (one a track) ─▶ Window (one a track) ─▶ viewers
//!                                  └▶ tap (single frames, before they are parts)
//! ```
//!
//! The packager cuts a publisher's samples into CMAF chunks once, for all viewers. A chunk is a
//! part. A run of parts is a segment. Published media never change: a [`Window`] is an immutable
//! snapshot. Its parts are [`Region`]s of an anonymous memory file that all streams share. When a
//! part leaves the window, only a reference to it is dropped.
//!
//! Time is an argument everywhere ([`UnixMicros`]). Nothing here opens a socket or reads a clock,
//! except [`wait`], whose functions have a time limit.
//!
//! The crate's `README.md` gives the reasons: how a stream's time works, where segments end, what
//! playlists list.

pub mod backup;
mod change;
pub mod cursor;
mod dates;
mod delivery;
mod derived;
mod error;
pub mod follow;
mod frames;
mod gop;
mod info;
pub mod mirror;
mod names;
mod packager;
mod publisher;
mod registry;
mod segments;
mod sequence;
pub mod sessions;
mod silence;
mod stream;
pub mod tap;
mod timeline;
mod track;
mod unlisted;
mod viewers;
pub mod wait;
mod window;

use std::time::Duration;

pub use delivery::Delivery;
pub use derived::{Derived, SegmentId};
pub use error::{PublishError, Refused};
pub use info::{PublisherInfo, Status};
pub use payload::Region;
pub use publisher::Publisher;
pub use registry::{MemoryUse, Registry};
pub use sequence::Sequence;
pub use stream::{State, Stream};
pub use track::Track;
pub use unlisted::Unlisted;
pub use viewers::{COUNTED, Viewing};
pub use window::{Beside, Header, Part, PartIndex, Rendered, SampleLayout, Segment, Window};

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMicros(pub u64);

impl UnixMicros {
    /// The time `by` later.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` to this; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// How the crate cuts and keeps streams. The settings of a stream never change, because playlists
/// promise them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Target duration of a part. Parts hold the whole number of frames that comes nearest to it.
    pub part_target: Duration,
    /// Target duration of a segment. Keyframes decide the real one.
    pub segment_target: Duration,
    /// The longest segment of a regular publisher: the least `EXT-X-TARGETDURATION`. Whole seconds.
    pub target_duration: Duration,
    /// How long a segment waits for a keyframe if the publisher's keyframes are irregular: the
    /// greatest `EXT-X-TARGETDURATION`. Whole seconds. If this is no more than `target_duration`,
    /// every publisher counts as regular.
    pub keyframe_distance: Duration,
    /// Duration of the media that playlists list.
    pub window: Duration,
    /// How long a stream without a publisher waits for one to return.
    pub reconnect: Duration,
    /// After this time without samples another publisher may replace a publisher.
    pub silence: Duration,
    /// Whether renditions may come from other addresses than that of the stream's first publisher.
    pub foreign_renditions: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            part_target: Duration::from_millis(200),
            segment_target: Duration::from_secs(2),
            target_duration: Duration::from_secs(4),
            keyframe_distance: Duration::from_secs(10),
            window: Duration::from_secs(30),
            reconnect: Duration::from_secs(30),
            silence: Duration::from_secs(10),
            foreign_renditions: false,
        }
    }
}

/// Converts `time` from `from` units a second to `to` units a second. Rounds to the nearest unit
/// and saturates.
pub fn rescale(time: i64, from: u32, to: u32) -> i64 {
    if from == to {
        return time;
    }
    let (from, to) = (i128::from(from.max(1)), i128::from(to));
    let scaled = (i128::from(time) * to + from.div_euclid(2)).div_euclid(from);
    i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX })
}
