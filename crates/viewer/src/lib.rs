//! Simulated players of live streams and files, and checks of what they receive.
//!
//! A simulated player, a *viewer*, asks a server for a stream as a real player does. It keeps a
//! player's clock ([`playback::Playback`]): when playing could have started, when it would have
//! stalled, how far behind live it is. A viewer can also verify what it receives ([`verify`]), down
//! to whether the access units are those of a given file. The crate `streamgauge` runs viewers by
//! the thousands.
//!
//! # Data flow
//!
//! ```text
//! URL ─▶ player::Target ─▶ player::play
//!                           │ requests, over http, websocket, RTMP or WebRTC
//!                           ├─▶ playlist, manifest ─▶ hls, mpd ─▶ the next request
//!                           └─▶ media ─▶ skim (times only) or verify (all bytes)
//!                                         └─▶ playback ─▶ Stats ─▶ Report
//! ```
//!
//! A viewer is a future on a tokio `current_thread` runtime. A [`Lane`] is what all viewers of one
//! event loop share: clock, options, counters, one read buffer. [`Viewer::join`] starts a viewer,
//! [`player::play`] plays until the stream ends, [`Viewer::leave`] returns its [`Stats`]. A viewer
//! that verifies nothing keeps no media: it reads bytes into its lane's buffer and counts them.
//!
//! # Modules
//!
//! Without I/O and without a clock (only [`verify::Reference::open`] reads a file):
//! - [`hls`] and [`mpd`] read playlists and manifests; `xml` and `text_time` are their helpers.
//! - [`skim`] reads containers for their times alone, [`verify`] checks all that is in them.
//! - [`playback`] is the player's clock, and measures how late media come.
//! - [`websocket`] reads and writes frames. RTMP is in the crate `protocol`.
//! - [`url`] parses URLs and resolves references.
//!
//! With I/O:
//! - [`player`] has one player for each delivery: HLS, DASH, FLV, MP4, RTMP, WebSocket, WHEP.
//! - [`http`] is the HTTP/1.1 client, [`tls`] is TLS, `socket` is a connection with or without TLS,
//!   `dtls` the certificate of WebRTC.
//! - `watchdog` ends waits that take too long, and `barrier` lets all viewers of a run start together.
//!
//! Results: `lane` has counters of all viewers, `stats` those of one viewer, `requests` the times
//! of its requests, `signed` a histogram of times of either sign, `error` the kinds of failures.
//!
//! Times are in microseconds ([`Micros`]). They count from the start of the run, on a media
//! timeline, or from 1970 UTC; each name says which.

#[cfg(test)]
extern crate self as viewer;

mod barrier;
#[cfg(test)]
mod double;
mod dtls;
mod error;
pub mod hls;
pub mod http;
mod lane;
pub mod mpd;
pub mod playback;
pub mod player;
mod requests;
mod signed;
pub mod skim;
mod socket;
mod stats;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod text_time;
pub mod tls;
pub mod url;
pub mod verify;
mod watchdog;
pub mod websocket;
mod xml;

pub use barrier::Barrier;
pub use error::{Error, Kind};
pub use lane::{Clock, Lane, Options, Rendition, Totals, Viewer};
pub use requests::{Asks, RequestTime, RequestTimes};
pub use signed::Signed;
pub use stats::{End, Failure, Latency, Report, Rtp, Stats, TrackReport, Verified};

/// Microseconds.
pub type Micros = i64;

/// Converts microseconds to seconds, for people and reports.
#[expect(clippy::cast_precision_loss, reason = "a time is far below 2^52 microseconds")]
pub fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}
