//! Simulated players of live streams and files.
//!
//! Each player asks for a stream as a real one does and keeps a player's clock
//! ([`playback::Playback`]): when it could have started, when it would have stalled, how far behind
//! live it is. What it gets can be verified ([`verify`]), down to whether the access units are
//! those of a given file.
//!
//! Parsers ([`hls`], [`mpd`], [`skim`]), clock and verifier read no clock and do no I/O. What does
//! is [`http`] and [`player`], which run on a tokio `current_thread` runtime: a [`Lane`] is what
//! the viewers of one event loop share, a [`Viewer`] one of them. Where nothing is verified a
//! viewer keeps no media: bytes are read into its lane's scratch buffer and counted.
//!
//! Times are microseconds ([`Micros`]): since the run began, on a media timeline, or since 1970
//! UTC, as each name says.

mod error;
pub mod hls;
pub mod http;
mod lane;
pub mod mpd;
pub mod playback;
pub mod player;
mod requests;
pub mod skim;
mod socket;
mod stats;
mod text_time;
pub mod tls;
pub mod url;
pub mod verify;
mod watchdog;
pub mod websocket;
mod xml;

pub use error::{Error, Kind};
pub use lane::{Clock, Lane, Options, Rendition, Totals, Viewer};
pub use requests::{Asks, RequestTime, RequestTimes};
pub use stats::{End, Failure, Latency, Report, Stats, TrackReport, Verified};

/// Microseconds.
pub type Micros = i64;

/// Microseconds as seconds, for people and reports.
#[expect(clippy::cast_precision_loss, reason = "a time is far below 2^52 microseconds")]
pub fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}
