use bytes::Bytes;

use crate::rtmp::amf0::Value;
use crate::rtmp::inbox::Media;
use crate::rtmp::{Capabilities, Error};

/// Settings that a server announces to its clients.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Size of outgoing chunks in bytes, 1..=16,777,215. Sessions that share messages need the same
    /// size. Large chunks cost less and delay nothing, because a player's audio and video messages
    /// are sent whole anyway.
    pub chunk_size: usize,
    /// The client should acknowledge after this many bytes (5.4.4).
    pub window_ack_size: u32,
    /// Limit for the client's sending, in unacknowledged bytes (5.4.5).
    pub peer_bandwidth: u32,
    /// Enhanced RTMP capabilities that are announced to clients that announced theirs.
    pub capabilities: Capabilities,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            chunk_size: 64 << 10,
            window_ack_size: 2_500_000,
            peer_bandwidth: 2_500_000,
            capabilities: Capabilities::forward_all(),
        }
    }
}

/// What the publisher wants the server to do with the stream (7.2.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishKind {
    /// Live, not recorded.
    Live,
    /// Recorded; replaces an existing recording.
    Record,
    /// Recorded; appended to an existing recording.
    Append,
}

/// Where to start playing (7.2.2.1).
///
/// The specification uses seconds, clients use milliseconds. The special values −1 and −2 mean the
/// same in both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlayStart {
    /// The live stream of that name, or else the recorded one.
    Any,
    /// The live stream only.
    Live,
    /// The recorded stream, from this many milliseconds on.
    At(f64),
}

/// Why publishing or playing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// `FCUnpublish`.
    Unpublish,
    /// `closeStream`.
    CloseStream,
    /// `deleteStream`.
    DeleteStream,
    /// Another `publish` or `play` on the same stream.
    Replaced,
}

/// A request, message or action of a client.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ServerEvent {
    /// `connect`; answer with [`accept_connect`](super::ServerSession::accept_connect) or
    /// [`reject_connect`](super::ServerSession::reject_connect).
    Connect {
        /// Application, without its query and without slashes at its ends.
        app: String,
        /// Query behind a `?` in the application.
        query: String,
        /// The URL that the client was given, as it claims; empty if it sends none.
        tc_url: String,
        /// Name of the client's program; empty if it sends none.
        flash_ver: String,
        /// Enhanced RTMP capabilities.
        capabilities: Capabilities,
    },
    /// `publish`; answer with [`accept_publish`](super::ServerSession::accept_publish) or
    /// [`reject_publish`](super::ServerSession::reject_publish).
    PublishRequest {
        /// Application, as in [`ServerEvent::Connect`].
        app: String,
        /// Stream name, without its query.
        name: String,
        /// Query behind a `?` in the name.
        query: String,
        /// What the server should do with the stream.
        kind: PublishKind,
    },
    /// `play`; answer with [`accept_play`](super::ServerSession::accept_play) or
    /// [`reject_play`](super::ServerSession::reject_play).
    PlayRequest {
        /// Application, as in [`ServerEvent::Connect`].
        app: String,
        /// Stream name, without its query.
        name: String,
        /// Query behind a `?` in the name.
        query: String,
        /// Where to start.
        start: PlayStart,
        /// How many milliseconds to play; `None` for everything.
        duration: Option<f64>,
    },
    /// The publisher's audio.
    Audio {
        /// Milliseconds, wrapping after 2^32.
        timestamp: u32,
        /// An FLV audio tag's body; not empty.
        payload: Bytes,
    },
    /// The publisher's video.
    Video {
        /// Milliseconds, wrapping after 2^32.
        timestamp: u32,
        /// An FLV video tag's body; not empty.
        payload: Bytes,
    },
    /// The publisher's data message: `onMetaData`, a cue point or anything else, without
    /// `@setDataFrame`.
    Metadata {
        /// Milliseconds, wrapping after 2^32.
        timestamp: u32,
        /// The name, followed by its values.
        values: Vec<Value>,
        /// The same values in AMF0: an FLV script tag's body.
        payload: Bytes,
    },
    /// The player pauses or resumes. The session has already answered it.
    Pause {
        /// Whether it pauses.
        paused: bool,
        /// Position in milliseconds, as the player sees it.
        position: f64,
    },
    /// The player wants to play from another position. Answer with
    /// [`accept_seek`](super::ServerSession::accept_seek) or
    /// [`reject_seek`](super::ServerSession::reject_seek).
    Seek {
        /// Position in milliseconds.
        position: f64,
    },
    /// `getStreamLength`; may be answered with
    /// [`answer_stream_length`](super::ServerSession::answer_stream_length).
    StreamLength {
        /// Stream name, without its query.
        name: String,
        /// Query behind a `?` in the name.
        query: String,
        /// Must be passed back with the answer.
        transaction: f64,
    },
    /// How much the player buffers.
    BufferLength {
        /// Milliseconds.
        milliseconds: u32,
    },
    /// The answer to [`ping`](super::ServerSession::ping).
    Pong {
        /// Value from the ping.
        timestamp: u32,
    },
    /// A message was dropped because of this error; the session continues.
    Ignored(Error),
    /// Publishing or playing ended. The connection stays open for another stream.
    Close {
        /// Why.
        why: Why,
    },
}

impl From<Media> for ServerEvent {
    fn from(media: Media) -> Self {
        match media {
            Media::Audio { timestamp, payload } => Self::Audio { timestamp, payload },
            Media::Video { timestamp, payload } => Self::Video { timestamp, payload },
            Media::Metadata { timestamp, values, payload } => {
                Self::Metadata { timestamp, values, payload }
            }
            Media::Ignored(error) => Self::Ignored(error),
        }
    }
}
