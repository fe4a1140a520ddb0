//! Live streams to many RTMP players at once. Whatever a player does, it gets the same messages as
//! the others, each once and in order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod crowd;
mod support;
