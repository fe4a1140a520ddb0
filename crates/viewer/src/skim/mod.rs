//! Readers of containers for viewers that verify nothing. They pass over payloads of any size. They
//! keep only what tells when media play and when they were captured.
//!
//! ```text
//! MP4, segments ─▶ Mp4 ─┬─▶ header, fragments ──────────▶ micros ────┐
//!                       └─▶ SegmentStamps ─▶ Search, whether to look │
//! FLV ───────────▶ Flv ────▶ tags ─┐                                 ├─▶ what plays, and how late
//! RTMP ────────────▶ messages ─────┴▶ FlvTimes ──────────────────────┘
//! ```
//!
//! [`Mp4`] and [`Flv`] take bytes in pieces of any size, as they come from the network. They report
//! each fragment or tag once its media have come.

mod boxes;
mod flv;
mod fragment;
mod mp4;
mod search;
#[cfg(test)]
mod tests;

pub use boxes::whole_fragments;
pub use flv::{Flv, FlvEvent, FlvTag, FlvTimes};
pub use fragment::Fragment;
use media::Kind;
pub use mp4::{Mp4, Mp4Event};
pub use search::{Search, SegmentStamps};

use crate::Micros;
use crate::playback::Track;

/// Converts a time in a track's timescale to microseconds.
pub fn micros(time: i64, timescale: u32) -> Micros {
    let wide = i128::from(time) * 1_000_000 / i128::from(timescale.max(1));
    Micros::try_from(wide).unwrap_or(if time < 0 { Micros::MIN } else { Micros::MAX })
}

/// Converts the kind of a track in a file to the track of a player.
pub fn track_of(kind: Kind) -> Option<Track> {
    match kind {
        Kind::Video => Some(Track::Video),
        Kind::Audio => Some(Track::Audio),
        Kind::Other => None,
    }
}
