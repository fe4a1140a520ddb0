//! Peers: reads their files, and starts, awaits and ends their servers.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../common/mod.rs"]
mod common;
mod files;
mod servers;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};

use streamgauge::lab::folders::Folders;
use streamgauge::lab::peer::Peer;
use streamgauge::lab::process::{Placement, Server};
use tempfile::TempDir;

/// A folder with a folder of media, and one for a server.
struct Scene(TempDir);

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("media")).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Reads a peer with this text.
    fn peer(&self, text: &str) -> anyhow::Result<Peer> {
        let path = self.path("mine.toml");
        fs::write(&path, text).unwrap();
        Peer::read(&path)
    }

    /// A peer that runs this shell script. It is ready when the script prints `ready`.
    fn script(&self, script: &str, more: &str) -> Peer {
        let text = format!(
            "title = \"Mine\"\nabout = \"A script.\"\nversion.command = [\"true\"]\n\
             [start]\ncommand = [\"sh\", \"-c\", '''{script}''']\nready.line = \"ready\"\n{more}\n\
             [serves]\nfile = \"http://{{host}}:{{http}}/{{path}}\"\n"
        );
        self.peer(&text).unwrap()
    }

    fn place(&self) -> Placement {
        Placement {
            host: "127.0.0.1".to_owned(),
            root: self.path("media"),
            work: self.path("work"),
            cpus: None,
            netns: None,
            wanted: None,
            folders: Folders::find().unwrap(),
        }
    }

    fn start(&self, peer: &Peer) -> anyhow::Result<Server> {
        Server::start(peer, &self.place(), &self.path("server.log"))
    }
}

/// The folder with this repository's peers.
fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers")
}
