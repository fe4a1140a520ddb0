//! Why a publisher or its media are refused, and the limits that the refusals name.

use crate::PublisherInfo;

/// The most tracks a stream may have.
pub(crate) const MOST_TRACKS: usize = 16;

/// The most publishers of renditions of one stream. Renditions made from the stream itself count, too.
/// Its main publisher does not.
pub(crate) const MOST_PUBLISHERS: usize = 16;

/// The most streams at once. This bounds what publishers can make the origin hold.
pub(crate) const MOST_STREAMS: usize = 10_000;

/// Why a publisher may not publish under a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The name is not a valid stream name.
    #[error("{0:?} is not a stream name (1 to 128 of A-Z a-z 0-9 . _ - and /)")]
    BadName(String),
    /// The name is not a valid name of a rendition.
    #[error("{0:?} is not a rendition's name (1 to 64 of A-Z a-z 0-9 . _ -)")]
    BadRendition(String),
    /// A rendition is to have a backup.
    #[error("a rendition has no backup of its own")]
    BackupOfRendition,
    /// Somebody already publishes it.
    #[error("already published{}", .0.peer.map(|peer| format!(" by {peer}")).unwrap_or_default())]
    InUse(PublisherInfo),
    /// It is a rendition of a stream that another address publishes.
    #[error("other renditions of this stream are published from another address")]
    Foreign,
    /// It is a copy of a stream that another machine has.
    #[error("already published on another machine")]
    Elsewhere,
    /// What another machine says of the stream cannot be true.
    #[error("another machine's description is refused: {0}")]
    Refused(String),
    /// Too many publishers of its renditions.
    #[error("a stream has at most {MOST_PUBLISHERS} publishers of renditions")]
    TooManyPublishers,
    /// The stream is over.
    #[error("the stream is over")]
    Over,
    /// The stream began anew too often.
    #[error("the stream began anew too often within a minute")]
    TooOften,
    /// Too many streams.
    #[error("the limit of {MOST_STREAMS} streams is reached")]
    TooManyStreams,
    /// The existing streams use nearly all the memory for live streams.
    #[error("the memory for live streams, {limit} bytes, is used up")]
    NoMemory {
        /// Bytes of memory for live streams.
        limit: u64,
    },
}

/// Why a publisher's sample was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The publisher was silent for too long and another publisher took its place.
    #[error("another publisher took over after this one had been silent")]
    Replaced,
    /// The track cannot be packaged.
    #[error("a track of {0} cannot be packaged")]
    Codec(String),
    /// Too many tracks.
    #[error("a stream has at most {MOST_TRACKS} tracks")]
    TooManyTracks,
    /// The stream is over.
    #[error("the stream is over")]
    Over,
    /// The publisher's clock jumped, it paused, or its tracks changed, too often.
    #[error("its clock jumped, it paused, or its tracks changed, too often within a minute")]
    TooOften,
    /// The sample is of a track that was not announced.
    #[error("sample of a track without a configuration")]
    UnknownTrack,
    /// The machine failed: no memory file, or no memory.
    #[error("packaging failed: {0}")]
    Io(#[from] std::io::Error),
}
