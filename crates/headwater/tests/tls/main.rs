//! The media plane with TLS, by HTTP/1.1 and HTTP/2, as curl, ffmpeg and openssl see it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod certificates;
mod files;
mod limits;
mod live;
mod rtmps;
mod support;
