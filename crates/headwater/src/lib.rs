//! The origin: takes live streams and files in, and serves them to viewers.
//!
//! ```text
//! rtmp ───┐                              ┌─ http ◀─ deliver    playlists, segments, endless responses
//! webrtc ─┼▶ ingest ─▶ live (registry) ──┼─ rtmp ◀─ broadcast  play
//! demo ───┘              ▲    ▼          ├─ push ◀─ broadcast  chunks over WebSocket
//!                        ladder          ├─ webrtc             frames over RTP
//!                                        └─ control            pages, API
//! ```
//!
//! The crate's `README.md` gives the reasons behind the deliveries: event loops, HLS, DASH,
//! broadcasts, push, titles, pace, and how the origin ends.

pub mod access;
pub mod acme;
pub mod broadcast;
mod client;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod control;
pub mod counts;
pub mod deliver;
pub mod doctor;
#[cfg(test)]
mod double;
pub mod events;
pub mod followed;
mod health;
pub mod heap;
pub mod history;
pub mod ingest;
pub mod ladder;
pub mod log;
mod look_up;
mod machine;
pub mod metrics;
mod origin;
pub mod pace;
pub mod path;
pub mod publish;
pub mod push;
pub mod reload;
mod request_id;
mod review;
pub mod rtmp;
mod sampler;
mod send_queue;
pub mod serve;
pub mod sessions;
pub mod sign;
pub mod titles;
pub mod traces;
pub mod webrtc;
mod wire;

pub use origin::Origin;
