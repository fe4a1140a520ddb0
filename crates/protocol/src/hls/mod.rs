//! HLS playlists, RFC 8216bis (draft-pantos-hls-rfc8216bis), low latency included.
//!
//! A server fills in a [`MultivariantPlaylist`] or a [`MediaPlaylist`] and renders it, once per
//! state of the stream. [`Request::parse`] reads a player's delivery directives, and
//! [`Request::decide`] tells whether the current playlist answers them.

mod media;
mod multivariant;
mod request;
mod text;

pub use media::{
    LowLatency, MediaPlaylist, OpenSegment, Part, PlaylistType, RenditionReport, Rounding, Segment,
};
pub use multivariant::{Audio, IFrames, MultivariantPlaylist, Subtitles, Variant};
pub use request::{Decision, Request, RequestError, Skip, State, advance_part_limit};
