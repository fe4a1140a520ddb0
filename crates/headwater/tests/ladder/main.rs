//! Renditions that the origin makes itself, judged by ffmpeg, ffprobe and GStreamer.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod confined;
mod serving;
mod supervision;
mod support;
