//! Copies of a stream on other machines.
//!
//! ```text
//! Stream ─▶ Changes ─ Change ─▶ (a network) ─ Change ─▶ Mirror ─▶ Stream
//! ```
//!
//! A copy has the same tracks, headers, parts, segments, dates and versions as the stream itself, so whatever
//! deliveries make of the two is the same, byte for byte. [`Changes`] tells how a stream changes, and [`Mirror`]
//! makes a copy from that.
//!
//! Every change says which state it leads to, not what to do. So a change that comes twice or late does nothing, and a
//! copy notices by itself that a change is missing ([`Taken::Missing`]). It then tells what it has
//! ([`Mirror::places`]), and [`Changes::since`] tells the rest.
//!
//! Viewers who read single access units need not wait for parts: [`Units`] tells each unit as it comes.
//!
//! A window is shown with all its parts: first come the new parts, and then [`Change::Window`] shows them.

mod adopt;
mod changes;
pub(crate) mod check;
mod copy;
mod units;

pub use self::changes::Changes;
pub use self::copy::{Mirror, Taken};
pub use self::units::Units;
pub use crate::change::{
    Adoption, Change, Description, NewPart, NewSegment, NewUnit, TrackDescription, UnitPlace,
    WindowState,
};

#[cfg(test)]
mod tests;
