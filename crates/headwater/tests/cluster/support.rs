//! A NATS server, and nodes.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::{NO_ARGUMENTS, Port, Program, Server, eventually, ffmpeg};

/// A time limit for anything that a test waits for, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// How long the clip lasts.
const SECONDS: u32 = 150;

/// A NATS server with JetStream.
pub(crate) struct Nats {
    port: Port,
    folder: tempfile::TempDir,
    program: Option<Program>,
}

impl Nats {
    pub(crate) fn start() -> Self {
        let mut nats =
            Self { port: Port::find(), folder: tempfile::tempdir().unwrap(), program: None };
        nats.run();
        nats
    }

    /// Starts the server, again if it was stopped. What it holds in memory is lost with it.
    pub(crate) fn run(&mut self) {
        let binary =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/nats/bin/nats-server");
        assert!(binary.is_file(), "no NATS server: scripts/nats.sh installs it");
        let mut command = Command::new(binary);
        command.args([
            "--addr",
            "127.0.0.1",
            "--port",
            &self.port.to_string(),
            "--jetstream",
            "--store_dir",
        ]);
        self.program = Some(Program::spawn(command.arg(self.folder.path())));
        let address = (Ipv4Addr::LOCALHOST, self.port.number());
        eventually(LIMIT, "NATS listens", || TcpStream::connect(address).is_ok());
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.program = None;
    }

    /// Starts a node of this name.
    pub(crate) fn node(&self, name: &str) -> Server {
        self.node_with(name, "")
    }

    /// Starts a node with further options of its table.
    pub(crate) fn node_with(&self, name: &str, options: &str) -> Server {
        let address = format!("nats://127.0.0.1:{}", self.port);
        let text = format!("[cluster]\nnats = [\"{address}\"]\nnode = \"{name}\"\n{options}");
        Server::configured(env!("CARGO_BIN_EXE_headwater"), &text, NO_ARGUMENTS)
    }
}

/// A clip with video of a keyframe each second, and audio. It lasts longer than any of these tests on a busy machine.
pub(crate) fn clip(folder: &Path) -> PathBuf {
    let path = folder.join("clip.flv");
    let video = format!("testsrc2=s=320x180:r=25:d={SECONDS}");
    let audio = format!("sine=r=48000:d={SECONDS}");
    let input = ["-f", "lavfi", "-i", &video, "-f", "lavfi", "-i", &audio];
    let coded =
        ["-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-b:v", "500k", "-c:a", "aac"];
    ffmpeg(input.iter().chain(&coded).chain(&[path.to_str().unwrap()]));
    path
}

/// Publishes a file in real time.
pub(crate) fn publish(node: &Server, clip: &Path, stream: &str) -> Program {
    testkit::publish(clip, &node.rtmp_url(stream))
}
