//! Chunk streams: cuts messages into chunks and reassembles them (RTMP 1.0, 5.3).

mod reader;
mod writer;

pub use reader::{Measured, Read, Reader};
pub use writer::{Writer, shared_message};

/// Chunk size before any Set Chunk Size (5.4.1).
pub const DEFAULT_SIZE: usize = 128;
/// The largest chunk size: no message is longer (5.4.1).
pub const MAX_SIZE: usize = 0xFF_FFFF;
/// The largest chunk stream ID that a header can hold (5.3.1.1).
pub const MAX_CSID: u32 = 65_599;

/// Value of the 24-bit timestamp field that refers to the 32-bit field (5.3.1.3).
const EXTENDED: u32 = 0xFF_FFFF;

/// The chunk streams a session writes to.
///
/// Messages from [`shared_message`] need other chunk streams than messages that a session builds
/// itself, because a chunk header may refer to the previous header on its chunk stream.
pub mod csid {
    /// Protocol control and user control; fixed by 5.4.
    pub const CONTROL: u32 = 2;
    /// Commands.
    pub const COMMAND: u32 = 3;
    /// A session's own audio.
    pub const AUDIO: u32 = 4;
    /// A session's own data messages.
    pub const DATA: u32 = 5;
    /// A session's own video.
    pub const VIDEO: u32 = 6;
    /// Audio built once for all players.
    pub const SHARED_AUDIO: u32 = 8;
    /// Data messages built once for all players.
    pub const SHARED_DATA: u32 = 9;
    /// Video built once for all players.
    pub const SHARED_VIDEO: u32 = 10;
}

#[cfg(test)]
mod tests;
