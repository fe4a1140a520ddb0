//! Files as titles: any MP4 below a root, packaged as CMAF when a viewer asks for it.
//!
//! ```text
//! path ─▶ find: open files ─▶ build: mp4::Index ─▶ candidate ─▶ plan: cuts ─▶ Track ─▶ Title
//!                                                                                        │
//!           playlists, manifests ◀─ timing of segments ◀─────────────────────────────────┤
//!                          viewer ◀─ segment: a row of Pieces ◀──────────────────────────┘
//! ```
//!
//! A [`Library`] finds a [`Title`]: one file, or a folder whose files are renditions of the same
//! movie. A title's [`Track`]s are cut into segments at the keyframes nearest to multiples of a
//! target. A segment is a row of [`Piece`]s: the boxes at its front are written here, and its
//! samples are ranges of the file. The library keeps titles in a cache of bounded memory. A file
//! that has changed becomes another title.
//!
//! - `library` keeps titles, and lets one thread at a time make each of them.
//! - `find` lists and opens the files of a title, and notices changes.
//! - `build` makes a title from open files: it reads the indexes, selects tracks, has them cut, and
//!   names them. A track is a `candidate` until then.
//! - `scan` collects facts about a track's samples in one pass. `plan` decides where segments
//!   begin.
//! - `lead` places the frames before an edit list's beginning, and `shift` is the offset that keeps
//!   decode times from being negative. `time` converts between timescales.
//! - `title` and `track` answer requests. `piece` reads small pieces together, `samples` gives the
//!   media to deliveries that do not use CMAF segments, and `rendered` keeps playlists and
//!   manifests.
//! - `text` is subtitles in WebVTT, from files and from tx3g tracks.
//! - `bandwidth`, `label`, `left_out`, `settings`, `source` and `error` are small types.
//!
//! Reading a file's index blocks, and so does [`Library::title`]. A title answers from memory.
//! Nothing here is asynchronous.

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
pub use find::{Folder, is_movie};
pub use left_out::LeftOut;
pub use library::Library;
pub use payload::{OpenFile, Piece, Root};
pub use piece::gather;
pub use rendered::Rendered;
pub use samples::Sample;
pub use settings::Settings;
pub use shift::Shift;
pub use text::Text;
pub use title::{Reach, Title, Version};
pub use track::{Segment, Track};
