//! Scenarios: studies repeated against any number of servers, on one machine, in turn.

pub mod record;
pub mod scenario;
