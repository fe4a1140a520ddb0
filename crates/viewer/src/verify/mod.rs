//! Checks of what a viewer receives: structure, times, and whose access units they are.
//!
//! [`Flv`] and [`Cmaf`] read their containers and pass each access unit to a [`Stream`]. [`Feed`]
//! collects the fragments for [`Cmaf`], [`Progressive`] reads files that are not fragmented. A
//! [`Stream`] checks an access unit's framing and that decode times go on. With a [`Reference`] it
//! also checks that the access units are those of a file, each right after the one before. Broken
//! media end the viewer with an [`Error`](crate::Error) of kind [`Corrupt`](crate::Kind::Corrupt).
//! Missing media are only counted: a server under load may leave some out.

mod cmaf;
mod feed;
mod flv;
mod progressive;
mod reference;
mod stream;

pub use cmaf::{Cmaf, Media};
pub use feed::Feed;
pub use flv::{Flv, Unit};
pub use progressive::Progressive;
pub use reference::{Reference, ReferenceError};
pub use stream::Stream;
