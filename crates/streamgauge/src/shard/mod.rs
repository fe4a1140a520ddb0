//! Splits a run among several processes of this program, if one may not open enough files, or among
//! several machines.
//!
//! The parent ([`Shards`]) has this program started again with the hidden verb `shard`, and sends
//! each child its job. A child ([`Parent`]) reports when it is ready. Once all are ready, they start
//! at the same moment. From then on the children send the results of their shares, and the parent
//! combines them. Both directions are lines of JSON, on the child's standard input and output.
//!
//! A [`Carrier`] starts the children and carries the lines. [`Pipes`] does so on this machine, and
//! [`crate::agents::Crew`] on others.
//!
//! A child ends with its standard input: none outlives its parent, however the parent ended.

mod carrier;
mod child;
mod limits;
mod pipes;
mod shards;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use carrier::{Carrier, Link, News, Told};
pub use child::Parent;
pub use limits::{Needs, raise_descriptor_limit};
pub use pipes::Pipes;
pub(crate) use pipes::command;
pub use shards::{Heard, Shards};

/// The verb that children are started with.
pub const VERB: &str = "shard";

/// Role of children that run viewers.
pub const VIEWERS: &str = "viewers";
/// Role of children that send requests over HTTP.
pub const HTTP: &str = "http";
/// All roles.
pub const ROLES: [&str; 2] = [VIEWERS, HTTP];

/// An order to a child, after its job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Order {
    /// Start when the monotonic clock of the child's machine reaches this time.
    Begin(Duration),
    /// Go on: all children are where they were to wait for each other.
    Release,
    /// Stop, and send the results so far.
    Stop,
}

/// A line from a child.
#[derive(Debug, Serialize, Deserialize)]
enum Line<M> {
    /// The child can start.
    Ready,
    /// The child started later than it was told to, by this.
    Late(Duration),
    /// A result.
    Said(M),
    /// The child cannot go on, and why.
    Failed(String),
}

/// Time since the start of the machine, the same in all its processes.
pub fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
