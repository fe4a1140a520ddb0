//! Files played over RTMP: by other people's players, and step by step.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pace;
mod programs;
mod steering;
mod support;
