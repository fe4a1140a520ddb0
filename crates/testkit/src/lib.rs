//! What tests share: where the media is, the foreign programs that judge our output, the server
//! as a process, and peers that behave badly.
//!
//! Everything here panics when it fails, with what it was doing and what the program involved
//! said: these are tests, and a test that cannot run has failed. Every wait has an end.

mod built;
mod ffmpeg;
pub mod http;
mod port;
mod program;
mod samples;
mod server;
mod slow;

use std::path::PathBuf;

pub use built::{built, headwater};
pub use ffmpeg::{
    AccessUnit, Packet, access_unit_hashes, access_unit_hashes_with, ffprobe_packets,
    ffprobe_packets_with, publish,
};
pub use port::Port;
pub use program::{Finished, Program};
pub use samples::avc_record;
pub use server::Server;
pub use slow::{Ended, SlowReader};

/// The folder of test media (see MANIFEST.md there): `../shared/media` beside the checkout, or
/// what `HEADWATER_MEDIA` names.
///
/// # Panics
/// Where there is none: a test that needs it must fail, not pass by skipping.
pub fn media_dir() -> PathBuf {
    let dir = std::env::var_os("HEADWATER_MEDIA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/media"),
        PathBuf::from,
    );
    assert!(dir.is_dir(), "no test media at {} (set HEADWATER_MEDIA)", dir.display());
    dir
}

/// The clip that `headwater serve --demo` publishes: 16 s, 480 pictures of 1280×720 in closed
/// GOPs of 30 without B-frames, 750 AAC frames at 48 kHz. For tests that need a well-behaved
/// input and no more.
pub fn demo_clip() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../headwater/assets/demo.mp4")
}
