//! WebRTC: WHIP (RFC 9725) brings streams in, WHEP takes them out.
//!
//! ```text
//! POST ─ signal ─▶ sessions (by ICE user fragment) ◀─ datagrams (one socket a worker)
//!                      │ first datagram                  │ by the peer's address
//!                      ▼                                 ▼
//!                  session ─┬ publish: RTP ─▶ ingest
//!                           └ play: feed (packetized once a worker) ─▶ RTP
//! ```
//!
//! str0m does ICE, DTLS, SRTP and RTCP. It does no I/O. A session is one task, on the worker that its
//! peer's first datagram comes to. A panic would end that one session. What a
//! stranger may send is checked before str0m sees it: the offer, and the password of STUN requests.

mod datagrams;
mod end;
mod feed;
mod offer;
mod play;
mod publish;
mod server;
mod session;
mod sessions;
mod shared;
mod signal;
mod socket;

pub(crate) use feed::payloads;
pub use server::Server;
pub(crate) use signal::{MOST_OFFER, Request, is_signal, respond};
