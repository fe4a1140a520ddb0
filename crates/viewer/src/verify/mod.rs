//! Whether what a viewer gets is whole: structure, times, and whose access units they are.
//!
//! [`Flv`] and [`Cmaf`] read their containers and hand each access unit to a [`Stream`], which
//! checks its framing, that decode times go on, and with a [`Reference`] that the access units are
//! those of a file, each next to the one before. What is broken ends the viewer with an
//! [`Error`](crate::Error) of kind [`Corrupt`](crate::Kind::Corrupt); media that are missing in
//! between, as a server under load may leave them out, are counted.

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
