//! A run shared by several processes of this program, where one may not open enough files.
//!
//! The parent ([`Shards`]) starts this program again with the hidden verb `shard`, and hands each
//! child its job. A child ([`Parent`]) says when it is ready; once all are, they begin at one moment
//! of the monotonic clock, which a machine has only one of. From then on a child says what its share
//! of the run has found, and the parent makes one run of it. Both directions are lines of JSON, on
//! the child's standard input and output.
//!
//! A child ends when its standard input does: none outlives its parent, however that ended.

mod child;
mod limits;
mod parent;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use child::Parent;
pub use limits::{Needs, raise_descriptor_limit};
pub use parent::{Heard, Shards};

/// The verb that a child is started with.
pub const VERB: &str = "shard";

/// What a child is told after its job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Order {
    /// To begin when the monotonic clock has come so far.
    Begin(Duration),
    /// To end with what it has.
    Stop,
}

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
enum Line<M> {
    /// It can begin.
    Ready,
    /// What it has found.
    Said(M),
    /// Why it cannot go on.
    Failed(String),
}

/// Since the machine was started: the same in all its processes.
fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
