//! Bytes to samples and back: codec configurations and the containers FLV, MP4 and CMAF.
//!
//! A [`Track`] and a [`Sample`] are the common terms of the workspace. Readers turn the bytes of a
//! container into tracks and samples, and writers turn tracks and samples into the bytes of another
//! container. A live stream takes this path:
//!
//! ```text
//! FLV or RTMP payload ─ flv::Demuxer ─▶ Track, Sample ─ cmaf::write_chunk ─▶ CMAF chunk
//!                                                     └ flv::Packetizer ──▶ FLV tag, RTMP message
//! MP4 file ─ mp4::Index ─▶ times, sizes and positions of the samples in the file
//! ```
//!
//! - [`codec`] reads configuration records (`avcC`, `hvcC`, `av1C`, AudioSpecificConfig, `dOps`),
//!   writes RFC 6381 strings, and finds keyframes in access units.
//! - [`flv`] reads and writes FLV tags, whose payloads are also those of RTMP messages.
//! - [`mp4`] reads the index of an MP4 file, progressive or fragmented, and leaves the media alone.
//! - [`ogg`] reads the packets of an Ogg stream.
//! - [`cmaf`] writes CMAF headers and chunks, and reads them back for tests and players.
//! - [`clock`] unwraps timestamps of 24, 32 or 33 bits.
//! - [`language`] turns the language codes of files into those of playlists and manifests.
//! - [`stamp`] writes the wall-clock time of sending into access units, and finds it again.
//!
//! Nothing here does I/O, spawns a task or reads a clock. Input may come from an attacker: every
//! parser bounds its memory, and answers bad input with an [`Error`] that says what is wrong and
//! where.

pub mod clock;
pub mod cmaf;
pub mod codec;
mod error;
pub mod flv;
mod kind;
pub mod language;
pub mod mp4;
pub mod ogg;
mod sample;
pub mod stamp;

pub use codec::Codec;
pub use error::Error;
pub use kind::Kind;
pub use sample::{Sample, Track};
