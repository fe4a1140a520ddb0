//! Scenarios: studies repeated against any number of servers, on one machine, in turn.

pub mod arguments;
pub mod folders;
mod group;
pub mod install;
mod known;
pub mod link;
pub mod machine;
pub mod media;
pub mod metrics;
mod observe;
pub mod peer;
pub mod plan;
pub mod process;
mod profile;
mod program;
mod ready;
pub mod record;
pub mod run;
mod runner;
pub mod scenario;
pub mod signals;
pub mod source;
mod stage;
mod study_b;
pub mod template;
pub mod tool;
mod trial;
