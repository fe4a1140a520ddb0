//! Bytes to samples and back.
//!
//! Everything a stream is made of, apart from how it travels: what a [`Track`] and a [`Sample`]
//! are, how codecs describe themselves ([`codec`]), and the containers that carry them
//! ([`flv`], [`mp4`], [`cmaf`]). Nothing here does I/O, spawns a task or reads a clock; every
//! parser takes bytes that somebody hostile may have written, and answers with an [`Error`]
//! that says what is wrong and where.

pub mod clock;
pub mod cmaf;
pub mod codec;
mod error;
pub mod flv;
mod kind;
pub mod language;
pub mod mp4;
mod sample;
pub mod stamp;

pub use codec::Codec;
pub use error::Error;
pub use kind::Kind;
pub use sample::{Sample, Track};
