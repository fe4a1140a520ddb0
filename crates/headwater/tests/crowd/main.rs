//! Crowds at the running binary: viewers, load generators, attempts above the limit.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod flood;
mod programs;
mod support;
mod told;
mod viewers;
