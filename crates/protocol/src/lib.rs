//! Protocols without I/O: bytes and time go in, bytes and events come out.
//!
//! - [`rtmp`] has server and client sessions of RTMP. A caller passes input to `handle_input`, and
//!   takes events from `poll_event` and output from `poll_output`. [`rtmp::chunk::shared_message`]
//!   writes a message once for all players.
//! - [`hls`] renders playlists from plain models, reads the delivery directives of players, and
//!   decides when a blocking reload is answered.
//! - [`dash`] renders manifests from a plain model.
//! - [`cmcd`] reads what players tell of themselves.
//! - [`push`] is the WebSocket subprotocol: the handshake, frames, messages, and the rules that
//!   choose a viewer's rendition ([`push::abr`]).
//!
//! A server and a simulated player can share this code. Nothing here reads a clock: time is an
//! argument. The crate depends on no other crate of the workspace.

pub mod cmcd;
pub mod dash;
pub mod hls;
pub mod push;
pub mod rtmp;
pub mod utc;
