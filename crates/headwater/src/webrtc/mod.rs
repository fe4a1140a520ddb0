//! WebRTC: WHIP (RFC 9725) brings streams in, WHEP takes them out.
//!
//! ```text
//! POST ─ signal ─ offer                       publish/: RTP ─▶ layer (of simulcast) ─▶ ingest
//!           │ agreed                             ▲
//!           ▼                                    │
//!       sessions/ (by ICE user fragment) ─▶ session ─▶ viewer ─▶ play/: choice (of the rendition)
//!           ▲ by the peer's address                      ▲              output
//!       admit ◀─ datagrams, tcp              each frame  │                │ packets for one viewer
//!                                            play/feed ──┘                ▼
//!                                      (packetized once)       send/: source ─▶ batch ─▶ socket, or tcp_queue
//! ```
//!
//! A room knows those below it, and none above: `signal` and `server`, `sessions`, `publish` and `play`, `offer`,
//! `send`.
//!
//! str0m does ICE, DTLS and RTCP, and SRTP of publishers. It does no I/O. What viewers get is encrypted
//! and sent without it, because that took most of a viewer's time: `offer::keys` says why that is safe,
//! `play::resends` what a viewer gets again, and `play` reports. A session is one task, on the worker that its
//! peer's first datagram comes to. A panic would end that one session. Offers, and the passwords of STUN
//! requests, are checked before str0m sees them: anybody can send these.

mod end;
mod offer;
mod play;
mod publish;
mod send;
mod server;
mod sessions;
mod signal;

use std::time::Duration;

pub(crate) use offer::codecs::carried;
pub(crate) use play::feed::payloads;
pub use server::Server;
pub(crate) use sessions::tcp::FOR_A_SESSION as CONNECTIONS_FOR_A_SESSION;
pub(crate) use signal::{MOST_OFFER, Request, is_signal, respond, stream_of};

/// Bytes that are sent to a peer at once, and the pause after which as many are sent again: 100 Mbit/s. A
/// whole keyframe at once would fill the buffers on its way.
pub(crate) const BURST: usize = 25_000;
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
