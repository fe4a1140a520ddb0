//! RTMP 1.0 and Enhanced RTMP v2, server and client.
//!
//! [`ServerSession`] and [`ClientSession`] are each one side of one connection, without I/O and
//! without a clock: bytes go in by `handle_input`, what the peer did comes out by `poll_event`,
//! bytes to send by `poll_output`. Clauses in this module are those of Adobe's "Real-Time
//! Messaging Protocol (RTMP) specification 1.0", unless another document is named.
//!
//! What audio, video and metadata messages carry is opaque here: the bodies of FLV tags.
//! Timestamps are those of the wire, absolute, in milliseconds, 32 bits that wrap.
//!
//! A live message goes to all its players as the same bytes: [`chunk::shared_message`] builds
//! them once. That is why every server session gives out message stream 1, why all have to be
//! configured with the same chunk size, and why the chunk streams in [`chunk::csid`] are apart.
//!
//! Not spoken: RTMPE, RTMPT, AMF3 beyond its AMF0 form, shared objects, Adobe's authentication.

pub mod amf0;
mod capabilities;
pub mod chunk;
mod client;
pub mod code;
mod command;
mod connection;
mod error;
mod handshake;
mod inbox;
pub mod message;
mod output;
mod server;
mod url;

pub use capabilities::{Capabilities, FourCcInfo};
pub use client::{ClientConfig, ClientEvent, ClientSession, Purpose};
pub use error::{Blame, Error};
pub use server::{PlayStart, PublishKind, ServerConfig, ServerEvent, ServerSession, Why};
pub use url::Url;
