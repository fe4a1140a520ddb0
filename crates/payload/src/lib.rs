//! Where the bytes are that viewers get, so that nothing has to copy them.
//!
//! ```text
//! live ─▶ memory::Arena ─▶ Region ─┐
//! vod  ─▶ Root ─▶ File ────────────┼─▶ Piece ─▶ http
//!         what is written for one ─┘
//! ```
//!
//! A [`Piece`] is a range of bytes that somebody else keeps: short [`Bytes`](bytes::Bytes), a [`Region`] of the memory
//! file in which live windows are, or a range of a file below a [`Root`]. [`FileVersion`] tells one content of a file
//! from another.

pub mod memory;
mod piece;
mod queue;
mod root;
mod version;

pub use memory::Region;
pub use piece::{Piece, length, read_at, slice};
pub use queue::Queue;
pub use root::{Root, Wait};
pub use version::{FileState, FileVersion};
