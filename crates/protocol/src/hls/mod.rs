//! HLS playlists, RFC 8216bis (draft-pantos-hls-rfc8216bis), low latency included.
//!
//! A server fills in a [`MultivariantPlaylist`] or a [`MediaPlaylist`] and renders it, once per
//! state of the stream. A player's delivery directives are read by [`Request::parse`], and
//! [`Request::decide`] says whether the playlist as it is answers them.

mod media;
mod multivariant;
mod request;
mod text;

pub use media::{
    LowLatency, MediaPlaylist, OpenSegment, Part, PlaylistType, RenditionReport, Rounding, Segment,
};
pub use multivariant::{Audio, IFrames, MultivariantPlaylist, Subtitles, Variant};
pub use request::{Decision, Request, RequestError, Skip, State, advance_part_limit};
