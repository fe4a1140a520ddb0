//! `streamgauge report` against run folders whose figures are known.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, missing_docs, reason = "helpers of a test")]

mod figures;
mod fixture;
mod page;
mod rich;
mod tables;
mod usage;
