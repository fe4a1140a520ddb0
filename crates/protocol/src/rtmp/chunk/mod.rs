//! Chunk streams: messages cut into chunks and put together again (RTMP 1.0, 5.3).

mod reader;
mod writer;

pub use reader::{Measured, Read, Reader};
pub use writer::{Writer, shared_message};

/// Chunk size until Set Chunk Size says otherwise (5.4.1).
pub const DEFAULT_SIZE: usize = 128;
/// The largest chunk size: no message is longer (5.4.1).
pub const MAX_SIZE: usize = 0xFF_FFFF;
/// The largest chunk stream ID there is a form for (5.3.1.1).
pub const MAX_CSID: u32 = 65_599;

/// A 24-bit timestamp field that says: see the 32-bit one (5.3.1.3).
const EXTENDED: u32 = 0xFF_FFFF;

/// The chunk streams a session writes to.
///
/// What [`shared_message`] builds must go to others than what a session builds itself, since
/// chunk headers refer to the previous one on the same chunk stream.
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
