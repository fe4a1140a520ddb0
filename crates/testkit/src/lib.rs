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
mod shapes;
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
pub use shapes::{Avc, Video};
pub use slow::{Ended, SlowReader};

/// The folder of clips that `scripts/make-media.sh` makes, `target/media`; its `--list` says what
/// each of them is.
///
/// # Panics
/// Nobody has made them: a test that needs them must fail, not pass by skipping.
pub fn media_dir() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/media");
    let dir = dir.canonicalize().unwrap_or(dir);
    assert!(dir.is_dir(), "no media at {}: scripts/make-media.sh makes them", dir.display());
    dir
}

/// One of these clips.
///
/// # Panics
/// There is no such clip.
pub fn clip(name: &str) -> PathBuf {
    let clip = media_dir().join(name);
    assert!(clip.is_file(), "no {}: scripts/make-media.sh makes it", clip.display());
    clip
}

/// The corpus: real media and broken ones, which are not part of the repository (see MANIFEST.md
/// there). `../shared/media` beside the checkout, or what `HEADWATER_MEDIA` names. Only tests that
/// `make corpus` runs may read it: they are ignored otherwise, and their names begin with `corpus_`.
///
/// # Panics
/// There is none.
pub fn corpus_dir() -> PathBuf {
    let dir = std::env::var_os("HEADWATER_MEDIA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/media"),
        PathBuf::from,
    );
    assert!(dir.is_dir(), "no corpus at {} (set HEADWATER_MEDIA)", dir.display());
    dir
}

/// The clip that `headwater serve --demo` publishes: 16 s, 480 frames of 1280×720 in closed
/// GOPs of 30 without B-frames, 750 AAC frames at 48 kHz. For tests that need a well-behaved
/// input and no more.
pub fn demo_clip() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../headwater/assets/demo.mp4")
}
