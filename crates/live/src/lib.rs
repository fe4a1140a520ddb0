//! Live streams: how they are cut, what of them is held, and who may ask for it.
//!
//! ```text
//! Publisher ─ samples ─▶ Timeline ─┬▶ packager (one a track) ─▶ Window (one a track) ─▶ viewers
//!                                  └▶ tap (who needs frames)
//! ```
//!
//! A publisher's samples are cut once into CMAF chunks; a chunk is a part, a run of parts a
//! segment. What is published never changes: a [`Window`] is an immutable snapshot, its parts are
//! [`Region`]s of an anonymous memory file that all streams share, and leaving the window means dropping a reference.
//! Time is an argument everywhere ([`UnixMicros`]); nothing here opens a socket or reads a
//! clock, but for [`wait`], which gives up after a time.
//!
//! The crate's `README.md` gives the reasons: how a stream's time works, where segments end, what is listed.

pub mod cursor;
mod dates;
mod derived;
mod error;
pub mod follow;
mod frames;
mod gop;
mod info;
mod packager;
mod publisher;
mod registry;
mod segments;
mod sequence;
mod silence;
mod stream;
pub mod tap;
mod timeline;
mod track;
mod viewers;
pub mod wait;
mod window;

use std::time::Duration;

pub use derived::{Derived, SegmentId};
pub use error::{PublishError, Refused};
pub use info::PublisherInfo;
pub use payload::Region;
pub use publisher::Publisher;
pub use registry::{MemoryUse, Registry};
pub use sequence::Sequence;
pub use stream::{State, Status, Stream};
pub use track::Track;
pub use viewers::{Delivery, Viewing};
pub use window::{Beside, Header, Part, Rendered, SampleLayout, Segment, Window};

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMicros(pub u64);

impl UnixMicros {
    /// The time `by` later.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// How streams are cut and kept. Fixed for a stream's life, because playlists promise it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// A part's duration aimed at; a whole number of frames comes nearest to it.
    pub part_target: Duration,
    /// A segment's duration aimed at; keyframes decide.
    pub segment_target: Duration,
    /// No segment of a regular publisher lasts longer: the least `EXT-X-TARGETDURATION`. Whole
    /// seconds.
    pub target_duration: Duration,
    /// Segments wait so long for a keyframe where a publisher's come as they like: the greatest
    /// `EXT-X-TARGETDURATION`. Whole seconds. No more than `target_duration`: nothing is learnt of the
    /// publisher.
    pub keyframe_distance: Duration,
    /// How much media playlists list.
    pub window: Duration,
    /// How long a stream without a publisher waits for one to return.
    pub reconnect: Duration,
    /// A publisher silent for so long may be replaced.
    pub silence: Duration,
    /// Renditions may be published from other addresses than the stream's first publisher's.
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

/// `time` counted in `from` units a second, counted in `to` units a second: rounded to nearest,
/// saturating.
pub fn rescale(time: i64, from: u32, to: u32) -> i64 {
    if from == to {
        return time;
    }
    let (from, to) = (i128::from(from.max(1)), i128::from(to));
    let scaled = (i128::from(time) * to + from.div_euclid(2)).div_euclid(from);
    i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX })
}
