//! A run that several machines share: agents as processes, with a NATS server and real origins.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clocks;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod hostile;
mod lost;
mod merged;
mod reserving;
mod saturated;
mod shared;
mod support;
