//! `streamgauge report` and `streamgauge compare` on run folders with known figures.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, missing_docs, reason = "helpers of a test")]

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod figures;
mod fixture;
mod page;
mod rich;
mod tables;
mod usage;
mod verdict;
