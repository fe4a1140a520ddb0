//! Credentials of publishers and viewers, without I/O.
//!
//! - [`Pattern`]: which paths of streams and titles something is about.
//! - [`Secret`]: a password or a stream key, in plain or as a hash.
//! - [`signed`]: tokens that this crate makes, each for some paths.
//! - [`jwt`]: tokens that others make.
//! - [`Generations`]: a map that remembers what was found right, and is bounded.
//!
//! Nothing here knows a protocol. Nothing here prints a secret: `Debug` hides it.

mod generations;
pub mod jwt;
mod pattern;
mod secret;
pub mod signed;

pub use generations::Generations;
pub use pattern::{NotAPattern, Pattern};
pub use secret::{LONGEST_SECRET, NotASecret, Secret};
use serde::{Deserialize, Serialize};

/// Kinds of what somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Send media of a live stream.
    Publish,
    /// Get media of a stream or a title, or learn about it.
    Play,
    /// Read the API and the dashboard.
    Api,
    /// Read the metrics.
    Metrics,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Publish, Self::Play, Self::Api, Self::Metrics];

    /// Its name in configurations, tokens and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Play => "play",
            Self::Api => "api",
            Self::Metrics => "metrics",
        }
    }
}
