//! ffmpeg must read the same through each server as from the disk.

use testkit::{access_unit_hashes, media_dir};

use crate::support::{Kind, Server, each_server};

/// The index is at the file's end: ffmpeg reads the front, stops, requests the end by range, and
/// begins again.
fn ffmpeg_plays(kind: Kind) {
    let name = "surround.mp4";
    let root = media_dir().join("mp4");
    let server = Server::start(kind, &root, &[]);
    let played = access_unit_hashes(server.url(&format!("/{name}")));
    assert!(played.len() > 1000, "{} access units", played.len());
    assert!(played == access_unit_hashes(root.join(name)));
}
each_server!(ffmpeg_plays);
