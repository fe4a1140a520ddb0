//! Media pushed over a WebSocket: subprotocol `headwater.v1`, without I/O.
//!
//! ```text
//! handshake   checks whether a request may become a WebSocket, and answers it (RFC 6455 4.2)
//! query       the parameters in a viewer's request
//! budget      limits how many messages a client may send
//! frame       reads frames of clients, writes frames of the server (RFC 6455 5)
//! message     text messages of both sides, in JSON
//! abr         the rules that choose a viewer's rendition
//! ```
//!
//! The server first sends `hello`, then a CMAF header, then each chunk or segment unchanged as one
//! binary message. Where something changes, it sends an event. A client need not send anything.

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
    /// The media have ended.
    Normal = 1000,
    /// The server is shutting down.
    GoingAway = 1001,
    /// The client sent frames that RFC 6455 does not allow.
    ProtocolError = 1002,
    /// The client sent a binary message, which has no meaning here.
    Unsupported = 1003,
    /// The client sent text that is not UTF-8 or not a valid command.
    InvalidData = 1007,
    /// The client sent too many messages, or read too slowly.
    PolicyViolation = 1008,
    /// The client sent a message longer than any command.
    TooBig = 1009,
    /// The server cannot continue.
    InternalError = 1011,
}

impl CloseCode {
    /// Its number.
    pub fn number(self) -> u16 {
        self as u16
    }
}

/// What a client did wrong, and the code of the close frame that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} (close code {})", code.number())]
pub struct Violation {
    /// Code of the close frame.
    pub code: CloseCode,
    /// Description for humans, short enough for a close frame.
    pub what: &'static str,
}

impl Violation {
    /// Creates a violation.
    pub fn new(code: CloseCode, what: &'static str) -> Self {
        Self { code, what }
    }
}
