//! RTMP connections: publishers into live streams, live streams and files to players.
//!
//! ```text
//!              ┌ publish   ingest        publishes
//! connection ──┼ play      broadcast     plays a live stream: parts as they come
//!              └ file      titles, pace   plays a file: blocks when they are due
//! ```

mod connection;
mod file;
mod lookup;
mod play;
mod publish;
mod server;
mod slots;

use std::time::Duration;

pub use server::Server;
pub(crate) use server::UNDECIDED;

use crate::ingest;
use crate::sessions::Over;

/// A connection is closed after this many refused requests to publish.
const REFUSED: u32 = 16;

/// Why a connection ended, other than by the peer's own wish.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Protocol(#[from] protocol::rtmp::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("nothing was published or played within {0:?}")]
    Idle(Duration),
    #[error("closed for a newer connection: nothing was published or played yet")]
    Crowded,
    #[error("paused, or at the end of what it plays, for {0:?}")]
    AtRest(Duration),
    #[error("silent for {0:?}, and another publisher took over")]
    Replaced(Duration),
    #[error("no whole message was published for {0:?}")]
    Silent(Duration),
    #[error("too many messages that cannot be read, the last: {0}")]
    Garbage(protocol::rtmp::Error),
    #[error("refused to publish {REFUSED} times")]
    Refused,
    #[error("{0}")]
    Ingest(#[from] ingest::Error),
    #[error("no byte accepted for {0:?}")]
    Stalled(Duration),
    #[error("reads too slowly")]
    TooSlow,
    #[error("{0}")]
    Over(Over),
}

impl Error {
    fn is_reset(&self) -> bool {
        // The last is an end of TLS without a farewell.
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let is_end = |kind| matches!(kind, BrokenPipe | ConnectionReset | UnexpectedEof);
        matches!(self, Self::Io(error) if is_end(error.kind()))
    }
}
