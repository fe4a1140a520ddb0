//! Whether streams come out as they went in, judged by programs nobody here wrote: ffmpeg,
//! GStreamer, rtmpdump and VLC publish to and play from a real server.
//!
//! The measure is identity: what a player receives must be a contiguous run of the source's access
//! units, each once, in order, byte for byte, up to the last one, picture and sound as far apart
//! as they were.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod awkward;
mod clocks;
mod deliveries;
mod keyframes;
mod peers;
mod publish;
#[expect(dead_code, reason = "a client of other tests, of which these need a part")]
#[path = "../push/support.rs"]
mod push_client;
mod reconnect;
mod renditions;
mod support;
mod times;
