//! The origin: takes live streams and files in, and serves them to viewers.
//!
//! ```text
//! publisher ─ ingest ─▶ live ─▶ deliver ─▶ http, rtmp ─▶ viewers
//! ```

pub mod config;
pub mod http;
