//! Files played over RTMP, by other people's players and step by step, and at what pace they go out,
//! over HTTP as well.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pace;
mod programs;
mod progressive;
mod steering;
mod support;
