//! WebRTC: WHIP (RFC 9725) brings streams in, WHEP takes them out.
//!
//! ```text
//! POST ─ signal ─▶ sessions (by ICE user fragment) ◀─ admit ◀─ datagrams (one socket a worker), tcp
//!                      │ first packet                    │ by the peer's address or connection
//!                      ▼                                 ▼
//!                  session ─┬ publish ─ layer (of simulcast): RTP ─▶ ingest
//!                           └ viewer ─ play ─┬ choice (of the rendition)
//!                               ▲            └ output ─ source ─▶ batch ─▶ transport ─┬ socket (cut by the kernel)
//!      feed (packetized once) ──┘ each frame                                          └ outbox ─▶ tcp
//! ```
//!
//! str0m does ICE, DTLS and RTCP, and SRTP of publishers. It does no I/O. What viewers get is encrypted
//! and sent without it, because that took most of a viewer's time: `keys` says why that is safe, `resends`
//! what a viewer gets again, and `play` reports. A session is one task, on the worker that its peer's
//! first datagram comes to. A panic would end that one session. Offers, and the passwords of STUN
//! requests, are checked before str0m sees them: anybody can send these.

mod admit;
#[cfg(test)]
mod against_str0m;
mod ages;
mod batch;
mod choice;
mod codecs;
mod datagrams;
mod end;
mod feed;
#[cfg(test)]
mod hour;
mod ice;
mod input;
mod keys;
mod layer;
mod link;
mod offer;
mod order;
mod outbox;
mod output;
mod path;
mod play;
mod publish;
mod resends;
mod server;
mod session;
mod sessions;
mod shared;
mod signal;
mod simulcast;
mod socket;
mod source;
mod tcp;
mod transport;
mod viewer;

use std::time::Duration;

pub(crate) use codecs::carried;
pub(crate) use feed::payloads;
pub use server::Server;
pub(crate) use signal::{MOST_OFFER, Request, is_signal, respond};

/// Bytes that are sent to a peer at once, and the pause after which as many are sent again: 100 Mbit/s. A
/// whole keyframe at once would fill the buffers on its way.
pub(crate) const BURST: usize = 25_000;
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
