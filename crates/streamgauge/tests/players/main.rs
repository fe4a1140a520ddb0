//! The verbs with players against real servers: the origin, nginx with its RTMP module, and none.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod headwater;
mod loss;
mod nginx;
mod processes;
mod support;
mod usage;
