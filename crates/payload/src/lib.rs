//! The bytes of payloads, kept where they are, so that sending them copies nothing.
//!
//! ```text
//! live ─▶ memory::Arena ─▶ Region ─┐
//! vod  ─▶ Root ─▶ OpenFile ────────┼─▶ Piece ─▶ http
//!       bytes made for one request ─┘
//! ```
//!
//! A payload is a list of [`Piece`]s. A piece is a range of bytes that something else keeps: short
//! [`Bytes`](bytes::Bytes), a [`Region`] of the memory file that holds all live windows, or a range
//! of a file below a [`Root`]. The file may be the local copy of an object of another machine. Then
//! its bytes are fetched before they are sent.
//!
//! - [`memory`] is the memory of live windows: the memory file, the [`Arena`](memory::Arena)
//!   through which a track writes, the regions, and the budget that all streams share.
//! - `piece` defines [`Piece`], and lengths and ranges of lists of pieces.
//! - `open_file` is an open file, and the interface of files that are fetched block by block.
//! - `root` opens files below a folder and keeps paths inside it. It has the interface of objects
//!   that are on another machine.
//! - `version` has [`FileVersion`], which tells one content of a file from another, and
//!   [`FileState`], which also tells whether a path leads to the same file.

pub mod memory;
mod open_file;
mod piece;
mod queue;
mod root;
mod version;

pub use memory::Region;
pub use open_file::{Answer, Copied, Hold, OpenFile, fetch_all};
pub use piece::{Piece, length, slice};
pub use queue::Queue;
pub use root::{Kind, Metadata, Names, Objects, Root, Wait};
pub use version::{FileState, FileVersion};
