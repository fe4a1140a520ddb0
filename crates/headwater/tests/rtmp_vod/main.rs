//! Files played over RTMP, by players of others and step by step. Also the pace at which they are
//! sent, over HTTP as well.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pace;
mod programs;
mod progressive;
mod steering;
mod support;
