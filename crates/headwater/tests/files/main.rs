//! `/vod/PATH`: a file's own bytes, served by the running binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conditional;
mod folders;
mod paced;
mod ranges;
mod sending;
mod support;
mod titles;
mod versions;
