//! Two publishers of one stream: the primary and its backup.
//!
//! ```text
//!  primary ─▶ Seat ─▶ Publisher ─▶ Stream
//!  backup  ─▶ Seat    (waits: it keeps no media)
//! ```
//!
//! Each publisher has a [`Seat`]. The media of one seat go on: that seat has the right to publish, a
//! [`Publisher`](crate::Publisher). The other seat waits. It knows the configuration of its tracks, and drops
//! their samples. When the publisher whose media go on is silent or leaves, the seat that waits takes over at
//! its next keyframe. For the stream, this is a publisher that returns: a period begins, and numbers and names
//! of tracks go on. The primary takes the stream back when it has been steady for a while, which [`patience`] makes
//! longer for a primary that flaps.
//!
//! [`rules`] decides who may go on, from times that are arguments. [`seat`] does it. The other publisher may be
//! on another machine: then [`Seats::place`] tells the rules so, and the two machines agree by [`Seats::claims`],
//! [`Seats::cede`] and [`Seats::take`].

mod patience;
mod rules;
mod seat;
mod seats;

use std::time::Duration;

pub use self::seat::Seat;
pub use self::seats::{Presence, Seats, Switches};

/// Which of the two publishers of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one whose media viewers get while it sends.
    Primary,
    /// The one that waits (`?backup=1`).
    Backup,
}

impl Role {
    /// Both, the primary first.
    pub const ALL: [Self; 2] = [Self::Primary, Self::Backup];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Primary => Self::Backup,
            Self::Backup => Self::Primary,
        }
    }
}

/// A publisher that waits on one machine should go on with a stream that another has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Which publisher.
    pub role: Role,
    /// Whether it is a primary that has been steady. Otherwise the publisher at the other machine must be silent, which
    /// that machine knows best.
    pub takes_back: bool,
}

/// When the two publishers of a stream take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// After this time without media of one publisher, the media of the other go on.
    pub after: Duration,
    /// For how long a primary that returns must be steady: it sends media, and no pause between them is longer
    /// than half of `after`. It is longer for a primary that flaps.
    pub steady: Duration,
    /// After this time without media, another publisher of the same role may replace a publisher.
    pub silence: Duration,
}
