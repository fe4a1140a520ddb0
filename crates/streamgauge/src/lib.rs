//! The instrument: loads, watches and measures any media server.
//!
//! Each verb of the command line is a module. It takes resolved arguments, does its work and
//! returns a document, which is printed as text for people or as JSON.
//!
//! # Data flow
//!
//! ```text
//! cli ─┬─ watch, viewers, capacity ─▶ fleet: simulated players (crate viewer) ─▶ document
//!      ├─ calibrate ─▶ a bundled server, and fleet ─▶ document
//!      ├─ http ─▶ load: requests at a rate, or from clients that wait for answers ─▶ document
//!      ├─ meter ─▶ samples of the system and of processes ─▶ CSV, JSON lines, document
//!      ├─ run, peers ─▶ lab: starts servers, runs the verbs above against them ─▶ run folder
//!      ├─ report ─▶ tables and figures of run folders ─▶ HTML, Markdown
//!      └─ compare ─▶ what changed between two run folders ─▶ document
//! ```
//!
//! The program starts servers as processes and links none. A run that needs more files than one
//! process may open is split among several processes of this program.
//!
//! # Modules
//!
//! Verbs:
//! - [`watch`] has one viewer and verifies everything, [`viewers`] has batches of viewers,
//!   [`capacity`] adds viewers until they are too many. All three run their viewers by [`fleet`],
//!   on one event loop for each core.
//! - [`load`] is `http`, [`meter`] is `meter`.
//! - [`lab`] is `run` and `peers`: studies repeated against any number of servers.
//! - [`report`] and [`compare`] read the folders of `run`.
//! - [`calibrate`] compares what viewers report with what a bundled server did to them.
//! - [`agents`] is `agent`, and what shares a run among machines. [`nodes`] is `compare-nodes`.
//!
//! Shared by them:
//! - [`cli`] parses arguments; `certificates` has the options for TLS, [`units`] parses times and
//!   sizes.
//! - [`shard`] splits a run among processes.
//! - [`selfwatch`] tells whether this program was the limit of its own measurement (exit status 3).
//!   [`load::trust`] does so for `http`.
//! - [`record`] and [`hlog`] keep results in a folder, [`summary`] adds up viewers.
//! - `runs` reads the folders of `run`, and tells which of their figures are doubtful.
//! - `percentile` tells which percentiles so many values have. `random` has random numbers.
//!   `number` writes numbers.
//! - `text` prints documents, `progress` shows progress, `files` reads and replaces files,
//!   `signals` handles interruptions.

pub mod agents;
pub mod calibrate;
pub mod capacity;
mod certificates;
pub mod cli;
pub mod compare;
mod files;
pub mod fleet;
pub mod hlog;
pub mod lab;
pub mod load;
pub mod meter;
pub mod nodes;
mod number;
mod percentile;
mod progress;
mod random;
pub mod record;
pub mod report;
mod runs;
pub mod selfwatch;
pub mod shard;
mod signals;
pub mod summary;
mod text;
pub mod units;
pub mod viewers;
pub mod watch;

/// How the program ends. Scripts rely on these values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The run was done, and the server met the criterion.
    Success = 0,
    /// The measured server failed the criterion asked for.
    Failed = 1,
    /// Unusable arguments or input.
    Unusable = 2,
    /// This program was the limit, so the figures cannot be trusted.
    Saturated = 3,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
