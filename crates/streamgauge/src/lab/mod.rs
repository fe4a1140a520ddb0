//! Scenarios: studies repeated against any number of servers, on one machine, in turn.

pub mod arguments;
pub mod folders;
mod group;
pub mod link;
pub mod machine;
pub mod media;
pub mod metrics;
pub mod peer;
pub mod plan;
pub mod process;
mod ready;
pub mod record;
pub mod scenario;
pub mod source;
pub mod template;
pub mod tool;
