//! The bytes of payloads, kept where they are, so that sending them copies nothing.
//!
//! ```text
//! live ─▶ memory::Arena ─▶ Region ─┐
//! vod  ─▶ Root ─▶ File ────────────┼─▶ Piece ─▶ http
//!       bytes made for one request ─┘
//! ```
//!
//! A payload is a list of [`Piece`]s. A piece is a range of bytes that something else keeps: short
//! [`Bytes`](bytes::Bytes), a [`Region`] of the memory file that holds all live windows, or a range
//! of a file below a [`Root`].
//!
//! - [`memory`] is the memory of live windows: the memory file, the [`Arena`](memory::Arena)
//!   through which a track writes, the regions, and the budget that all streams share.
//! - `piece` defines [`Piece`], and lengths and ranges of lists of pieces.
//! - `root` opens files below a folder and keeps paths inside it.
//! - `version` has [`FileVersion`], which tells one content of a file from another, and
//!   [`FileState`], which also tells whether a path leads to the same file.

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
