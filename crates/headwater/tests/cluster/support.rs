//! Nodes, and what publishes to them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use media::flv::{Reader, TagKind};
use testkit::{NO_ARGUMENTS, Nats, Program, Server, rtmp};

/// A time limit for anything that a test waits for, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Starts a node of this name.
pub(crate) fn node(nats: &Nats, name: &str) -> Server {
    node_with(nats, name, "")
}

/// Starts a node with further options of its table.
pub(crate) fn node_with(nats: &Nats, name: &str, options: &str) -> Server {
    node_of(nats, name, "", options)
}

/// Starts a node with further options of `[live]` and of its table.
pub(crate) fn node_of(nats: &Nats, name: &str, live: &str, options: &str) -> Server {
    // The tests compare what was there before with what there is now: a busy machine takes a while.
    let text = format!(
        "[live]\nwindow = \"5m\"\n{live}[cluster]\nnats = {:?}\nnode = \"{name}\"\n{options}",
        nats.urls()
    );
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &text, NO_ARGUMENTS)
}

/// A clip with video of a keyframe each second, and audio. It lasts longer than any of these tests on a busy machine.
pub(crate) fn clip() -> PathBuf {
    testkit::clip("long/primary.flv")
}

/// Whether a node knows that nobody has something. One that has lost NATS for a moment says that it does not know (503).
#[track_caller]
pub(crate) fn is_unknown(node: &Server, path: &str) -> bool {
    let status = testkit::http::get(node.http, path).status();
    assert!([404, 503].contains(&status), "{path}: {status}");
    status == 404
}

/// Publishes a file in real time.
pub(crate) fn publish(node: &Server, clip: &Path, stream: &str) -> Program {
    testkit::publish(clip, &node.rtmp_url(stream))
}

/// Starts ffmpeg, which lists so many frames of video; [`testkit::hashes_so_far`] reads the list.
pub(crate) fn viewer(input: &str, count: &str) -> Program {
    let mut viewer = Command::new("ffmpeg");
    viewer.args(["-v", "error", "-i", input, "-map", "0:v", "-c", "copy"]);
    Program::spawn(viewer.args(["-frames:v", count, "-f", "framemd5", "-"]))
}

/// Sends what the clip has in these milliseconds, at once.
pub(crate) fn send(publisher: &mut rtmp::Client, times: Range<u32>) {
    let mut reader = Reader::new();
    reader.handle_bytes(&std::fs::read(clip()).unwrap());
    while let Some(tag) = reader.poll_tag().unwrap() {
        if tag.kind != TagKind::Script && times.contains(&tag.timestamp) {
            publisher.tag(tag.kind, tag.timestamp, tag.payload);
        }
    }
}
