//! Checks with foreign programs that streams come out as they went in: ffmpeg, GStreamer, rtmpdump
//! and VLC publish to and play from a real server.
//!
//! The measure is identity. A player must receive a contiguous run of the source's access units, up
//! to the last one, each once, in order, byte for byte. Video and audio must be as far apart as in
//! the source.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod awkward;
mod clocks;
mod deliveries;
mod keyframes;
mod peers;
mod publish;
mod reconnect;
mod renditions;
mod support;
mod times;
