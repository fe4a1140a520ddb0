//! Protocols without I/O: bytes and time go in, bytes and events come out.

pub mod dash;
pub mod hls;
pub mod push;
pub mod rtmp;
pub mod utc;
