//! CMAF: fragmented MP4 cut into headers and chunks, ISO/IEC 23000-19.
//!
//! A stream has one CMAF header per track and, for deliveries that carry every track in one
//! sequence of bytes, one for all of them ([`header`]). Samples travel in chunks
//! ([`write_chunk`]): `moof` and `mdat`, at the start of a segment preceded by `styp` and `prft`.
//! A track has the same track_ID in every header, so a chunk is the same bytes wherever it goes.
//!
//! An `mdat` holds the samples' data in order and nothing else, so [`Layout`] says where each
//! sample lies in the written bytes, and other deliveries can point into them.
//!
//! [`read_header`] and [`chunks`] read the same back, and what other packagers make of it: they
//! are for players and tests, and take whatever a peer sends.

mod boxes;
mod chunk;
mod entry;
mod header;
mod read;
mod read_header;

pub use chunk::{
    ChunkInfo, Layout, ReferenceTime, SampleInfo, SegmentStart, write_chunk, write_chunk_head,
};
pub use header::{Matrix, UPRIGHT, header, header_turned};
pub use read::{Chunk, Chunks, chunks};
pub use read_header::{Defaults, Header, read_header};
