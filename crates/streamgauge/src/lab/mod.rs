//! Scenarios: studies repeated against any number of servers, on one machine, in turn.

pub mod folders;
mod group;
pub mod peer;
pub mod process;
mod ready;
pub mod record;
pub mod scenario;
pub mod source;
pub mod template;
