//! CMAF: fragmented MP4 cut into headers and chunks, ISO/IEC 23000-19.
//!
//! A stream has one CMAF header per track. Deliveries that carry all tracks in one sequence of
//! bytes use one header for all of them ([`header`]). Samples travel in chunks ([`write_chunk`]):
//! `moof` and `mdat`, with `styp` and `prft` before them at the start of a segment. A track has the
//! same track_ID in every header, so its chunks are the same bytes in every delivery.
//!
//! An `mdat` holds the samples' data in order and nothing else. So [`Layout`] tells where each
//! sample lies in the written bytes, and other deliveries can point into them.
//!
//! [`read_header`] and [`chunks`] read both back, also from other packagers. Tests and players use
//! them, so they accept any input.

mod boxes;
mod chunk;
mod display;
mod entry;
mod header;
mod read;
mod read_header;

pub use chunk::{
    ChunkInfo, Layout, ReferenceTime, SampleInfo, SegmentStart, write_chunk, write_chunk_head,
};
pub use display::{Display, Matrix, UPRIGHT};
pub use header::{header, header_shown};
pub use read::{Chunk, Chunks, chunks};
pub use read_header::{Defaults, Header, read_header};
