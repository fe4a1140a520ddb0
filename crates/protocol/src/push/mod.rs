//! Media pushed over a WebSocket: subprotocol `headwater.v1`, without I/O.
//!
//! ```text
//! handshake   may this request become a WebSocket, and what answers it (RFC 6455 4.2)
//! query       what a viewer asks for with it
//! budget      how much a client may say
//! frame       frames of a client read, frames of the server written (RFC 6455 5)
//! message     what both say in text: JSON
//! ```
//!
//! The server says `hello`, sends a CMAF header, then each chunk or segment as one binary message,
//! nothing added, and an event where something changes. A client need not say anything.

pub mod abr;
pub mod budget;
pub mod frame;
pub mod handshake;
pub mod message;
pub mod query;

/// The subprotocol's name.
pub const SUBPROTOCOL: &str = "headwater.v1";

/// Why a connection is closed (RFC 6455 7.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum CloseCode {
    /// It is over.
    Normal = 1000,
    /// The server is shutting down.
    GoingAway = 1001,
    /// Frames that RFC 6455 does not allow.
    ProtocolError = 1002,
    /// Binary messages, which nothing is expected by.
    Unsupported = 1003,
    /// Text that is not UTF-8, or not what a client may say.
    InvalidData = 1007,
    /// Too much of what is allowed, or read too slowly.
    PolicyViolation = 1008,
    /// A message longer than any command.
    TooBig = 1009,
    /// The server cannot go on.
    InternalError = 1011,
}

impl CloseCode {
    /// Its number.
    pub fn number(self) -> u16 {
        self as u16
    }
}

/// What a client did wrong, and the code it is told before the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} (close code {})", code.number())]
pub struct Violation {
    /// Tells the client.
    pub code: CloseCode,
    /// Tells people; short enough for a close frame.
    pub what: &'static str,
}

impl Violation {
    /// A violation.
    pub fn new(code: CloseCode, what: &'static str) -> Self {
        Self { code, what }
    }
}
