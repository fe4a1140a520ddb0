//! Files as titles: any MP4 below a root, packaged as CMAF when it is asked for.
//!
//! A [`Library`] finds a [`Title`]: one file, or a folder whose files are renditions of the same
//! movie. A title's [`Track`]s are cut into segments at the keyframes nearest to a target. A
//! segment is a row of [`Piece`]s: the boxes in front are written, the samples stay in the file,
//! where whoever sends them finds them. What a title is made of is kept in a cache with a bound;
//! a file that has changed is another title.
//!
//! ```text
//! path ─▶ find (openat2, stat) ─▶ build: mp4::Index ─▶ candidates ─▶ plan ─▶ tracks ─▶ Title
//! ```
//!
//! Reading a file's index blocks, so [`Library::title`] does; a title answers from memory. There
//! is no clock here and nothing asynchronous.

mod bandwidth;
mod build;
mod candidate;
mod error;
mod find;
mod label;
mod lead;
mod left_out;
mod library;
mod piece;
mod plan;
mod rendered;
mod samples;
mod scan;
mod settings;
mod shift;
mod source;
mod text;
mod time;
mod title;
mod track;

pub use bandwidth::{Bandwidth, FrameRate};
pub use error::Error;
pub use left_out::LeftOut;
pub use library::Library;
pub use payload::{Piece, Root};
pub use piece::gather;
pub use rendered::Rendered;
pub use samples::Sample;
pub use settings::Settings;
pub use shift::Shift;
pub use text::Text;
pub use title::{Reach, Title, Version};
pub use track::{Segment, Track};
