//! Splits a run among several processes of this program, if one may not open enough files.
//!
//! The parent ([`Shards`]) starts this program again with the hidden verb `shard`, and sends each
//! child its job. A child ([`Parent`]) reports when it is ready. Once all are ready, they start at
//! the same moment of the monotonic clock, which all processes of a machine share. From then on the
//! children send the results of their shares, and the parent combines them. Both directions are
//! lines of JSON, on the child's standard input and output.
//!
//! A child ends with its standard input: none outlives its parent, however the parent ended.

mod child;
mod limits;
mod parent;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use child::Parent;
pub use limits::{Needs, raise_descriptor_limit};
pub use parent::{Heard, Shards};

/// The verb that children are started with.
pub const VERB: &str = "shard";

/// An order to a child, after its job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Order {
    /// Start when the monotonic clock reaches this time.
    Begin(Duration),
    /// Stop, and send the results so far.
    Stop,
}

/// A line from a child.
#[derive(Debug, Serialize, Deserialize)]
enum Line<M> {
    /// The child can start.
    Ready,
    /// A result.
    Said(M),
    /// The child cannot go on, and why.
    Failed(String),
}

/// Time since the start of the machine, the same in all processes.
fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
