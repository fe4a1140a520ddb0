//! Two publishers of one stream, as ffmpeg publishes and plays.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod one_node;
mod support;
mod two_nodes;
