//! Shared by the tests: the media, foreign programs that judge our output, the server as a process,
//! and peers that misbehave.
//!
//! - `ffmpeg` runs ffmpeg and ffprobe: packets, hashes of access units, and publishing.
//! - `program` runs a foreign program with a time limit, and shows its output when a test fails.
//! - `server` starts a `headwater serve` on free ports, and `headwater publish`. `built` finds or builds programs of the
//!   workspace. `port` finds ports for programs that do not accept port 0. [`certificate`] makes
//!   certificates.
//! - `nats` starts NATS servers, and `nats_account` makes credentials for one.
//! - [`http`] is a small client that shows every violation of HTTP. [`rtmp`] is a publisher or a
//!   player, and [`push`] a viewer over WebSocket: the test decides their every byte. `slow` is a
//!   viewer that reads slowly or not at all, and `socket` has sockets for such viewers.
//! - [`playlist`] reads playlists of HLS.
//! - `wait` waits for a condition. `lateness` measures how late a server answers. `random` has numbers and bytes
//!   without a pattern.
//! - `shapes` makes MP4 files that ffmpeg cannot write, and [`boxes`] their boxes. `chunk` reads the track and time of a CMAF
//!   chunk. `samples` makes configurations without media.
//! - The functions below give the paths of clips and of the corpus.
//!
//! Everything here panics when it fails. The message names the step that failed, and has the output
//! of the program involved. A test that cannot run has failed. Every wait has a time limit.

pub mod boxes;
mod built;
pub mod certificate;
mod chunk;
mod ffmpeg;
pub mod http;
mod lateness;
mod nats;
mod nats_account;
mod nginx;
pub mod playlist;
mod port;
mod program;
pub mod push;
mod random;
pub mod rtmp;
mod samples;
mod server;
mod shapes;
mod slow;
mod socket;

mod wait;

use std::path::PathBuf;
use std::process::Command;

pub use built::{built, headwater};
pub use chunk::{time_of, track_of};
pub use ffmpeg::{
    AccessUnit, Packet, access_unit_hashes, access_unit_hashes_with, decoded_pictures, ffmpeg,
    ffprobe_packets, ffprobe_packets_with, framehash, from_start, hashes_so_far, publish,
    publish_looped,
};
pub use lateness::Lateness;
pub use nats::Nats;
pub use nats_account::NatsAccount;
pub use nginx::nginx;
pub use port::Port;
pub use program::{Finished, Program, write_program};
pub use random::{Random, noise};
pub use samples::{avc_record, hevc_sets};
pub use server::{NO_ARGUMENTS, Server, headwater_publish};
pub use shapes::{Avc, Video};
pub use slow::{Ended, SlowReader};
pub use socket::{is_closed_within, narrow_socket, uninterrupted};
pub use wait::eventually;

/// The folder of clips that `scripts/make-media.sh` makes, `target/media`. Its `--list` describes
/// each clip.
///
/// # Panics
/// The folder does not exist: a test that needs it must fail, not pass by being skipped.
pub fn media_dir() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/media");
    let dir = dir.canonicalize().unwrap_or(dir);
    assert!(dir.is_dir(), "no media at {}: scripts/make-media.sh makes them", dir.display());
    dir
}

/// The path of a clip.
///
/// # Panics
/// There is no such clip.
pub fn clip(name: &str) -> PathBuf {
    let clip = media_dir().join(name);
    assert!(clip.is_file(), "no {}: scripts/make-media.sh makes it", clip.display());
    clip
}

/// The corpus: real and broken media, which are not part of the repository (see MANIFEST.md in it).
/// It is in the folder that `HEADWATER_MEDIA` names; `make corpus` and `make bench` set it. Only
/// tests that `make corpus` runs may read it. They are ignored otherwise, and their names begin with
/// `corpus_`.
///
/// # Panics
/// There is no corpus.
pub fn corpus_dir() -> PathBuf {
    let dir = PathBuf::from(std::env::var_os("HEADWATER_MEDIA").expect("set HEADWATER_MEDIA"));
    assert!(dir.is_dir(), "no corpus at {}", dir.display());
    dir
}

/// A script of the folder `webrtc` of the origin's tests, to run with aiortc.
#[track_caller]
pub fn aiortc(script: &str) -> Command {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/aiortc/bin/python");
    assert!(python.is_file(), "no aiortc: scripts/aiortc.sh installs it");
    let mut command = Command::new(python);
    command.arg(root.join("crates/headwater/tests/webrtc").join(script));
    command
}

/// The clip that `headwater serve --demo` publishes: 16 s, 480 frames of 1280×720 in closed GOPs of
/// 30 without B-frames, and 750 AAC frames at 48 kHz. Tests use it if any well-behaved input will
/// do.
pub fn demo_clip() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../headwater/assets/demo.mp4")
}
