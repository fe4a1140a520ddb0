use bytes::Bytes;

use crate::rtmp::amf0::Value;
use crate::rtmp::inbox::Media;
use crate::rtmp::{Capabilities, Error};

/// What a server says of itself.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Size of outgoing chunks in bytes, 1..=16,777,215. Sessions that share messages need the
    /// same. Large chunks cost less and delay nothing, as long as audio and video of one player
    /// go out whole message by whole message anyway.
    pub chunk_size: usize,
    /// Bytes after which the client is to acknowledge (5.4.4).
    pub window_ack_size: u32,
    /// Bandwidth of the client's sending, in bytes outstanding (5.4.5).
    pub peer_bandwidth: u32,
    /// Enhanced RTMP capabilities told to clients that told theirs.
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

/// What the publisher wants done with the stream (7.2.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishKind {
    /// Live, not recorded.
    Live,
    /// Recorded, replacing what was there.
    Record,
    /// Recorded, appended to what was there.
    Append,
}

/// Where to start playing (7.2.2.1).
///
/// The specification counts seconds, clients count milliseconds; the special values −1 and −2
/// are understood in both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlayStart {
    /// The live stream of that name, else the recorded one.
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

/// What a client did.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ServerEvent {
    /// `connect`; answer with [`accept_connect`](super::ServerSession::accept_connect) or
    /// [`reject_connect`](super::ServerSession::reject_connect).
    Connect {
        /// Application, without its query and slashes at its ends.
        app: String,
        /// What followed a `?` in the application.
        query: String,
        /// The URL the client was given, as it says; empty if it does not.
        tc_url: String,
        /// What the client calls itself; empty if it does not.
        flash_ver: String,
        /// Enhanced RTMP.
        capabilities: Capabilities,
    },
    /// `publish`; answer with [`accept_publish`](super::ServerSession::accept_publish) or
    /// [`reject_publish`](super::ServerSession::reject_publish).
    PublishRequest {
        /// Application, as in [`ServerEvent::Connect`].
        app: String,
        /// Stream name, without its query.
        name: String,
        /// What followed a `?` in the name.
        query: String,
        /// What is wanted.
        kind: PublishKind,
    },
    /// `play`; answer with [`accept_play`](super::ServerSession::accept_play) or [`reject_play`](super::ServerSession::reject_play).
    PlayRequest {
        /// Application, as in [`ServerEvent::Connect`].
        app: String,
        /// Stream name, without its query.
        name: String,
        /// What followed a `?` in the name.
        query: String,
        /// Where to start.
        start: PlayStart,
        /// How many milliseconds to play; `None` for all there is.
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
    /// The publisher's data message: `onMetaData`, a cue, anything. `@setDataFrame` is removed.
    Metadata {
        /// Milliseconds, wrapping after 2^32.
        timestamp: u32,
        /// The name, then what belongs to it.
        values: Vec<Value>,
        /// The same as AMF0: an FLV script tag's body.
        payload: Bytes,
    },
    /// The player pauses or goes on. It has been told so already.
    Pause {
        /// Pauses.
        paused: bool,
        /// Position in milliseconds, as the player sees it.
        position: f64,
    },
    /// The player wants to be elsewhere; answer with [`accept_seek`](super::ServerSession::accept_seek) or
    /// [`reject_seek`](super::ServerSession::reject_seek).
    Seek {
        /// Position in milliseconds.
        position: f64,
    },
    /// `getStreamLength`; may be answered with [`answer_stream_length`](super::ServerSession::answer_stream_length).
    StreamLength {
        /// Stream name, without its query.
        name: String,
        /// What followed a `?` in the name.
        query: String,
        /// To be given back.
        transaction: f64,
    },
    /// How much the player buffers.
    BufferLength {
        /// Milliseconds.
        milliseconds: u32,
    },
    /// The answer to [`ping`](super::ServerSession::ping).
    Pong {
        /// What the ping said.
        timestamp: u32,
    },
    /// A message was dropped because of this; the session goes on.
    Ignored(Error),
    /// Publishing or playing ended; the connection is there for another one.
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
