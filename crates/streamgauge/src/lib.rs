//! The instrument: loads, watches and measures any media server.
//!
//! Each verb is a module that takes its arguments as they were resolved and gives a document back,
//! which is printed for people or as JSON. [`fleet`] runs simulated players ([`viewer`]) on one
//! event loop a core, [`selfwatch`] tells whether this program was the limit, [`record`] keeps what
//! was measured.

pub mod capacity;
mod certificates;
pub mod cli;
mod files;
pub mod fleet;
pub mod hlog;
pub mod lab;
pub mod load;
pub mod meter;
mod progress;
pub mod record;
pub mod report;
pub mod selfwatch;
pub mod shard;
mod signals;
pub mod summary;
mod text;
pub mod units;
pub mod viewers;
pub mod watch;

/// How the program ends, as scripts rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, and the server did what was asked for.
    Success = 0,
    /// The measured server failed the criterion asked for.
    Failed = 1,
    /// Unusable arguments or input.
    Unusable = 2,
    /// This program was the limit: the figures are not to be trusted.
    Saturated = 3,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
