//! RTMP 1.0 and Enhanced RTMP v2, server and client.
//!
//! A [`ServerSession`] or a [`ClientSession`] is one side of one connection, without I/O and
//! without a clock. `handle_input` takes bytes, `poll_event` returns what the peer did, and
//! `poll_output` returns bytes to send. Clauses in this module are those of Adobe's "Real-Time
//! Messaging Protocol (RTMP) specification 1.0", unless another document is named.
//!
//! The contents of audio, video and metadata messages are opaque here: they are the bodies of FLV
//! tags. Timestamps are those of the wire: absolute, in milliseconds, with 32 bits that wrap.
//!
//! All players of a stream get the same bytes of a live message, which [`chunk::shared_message`]
//! builds once. Therefore every server session uses message stream 1, all sessions must have the
//! same chunk size, and the shared messages have chunk streams of their own ([`chunk::csid`]).
//!
//! Not supported: RTMPE, RTMPT, AMF3 beyond its AMF0 form, shared objects, Adobe's authentication.

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
