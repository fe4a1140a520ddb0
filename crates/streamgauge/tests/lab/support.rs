//! The instrument and the origin as programs, and scenarios in their own folders.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use streamgauge::lab::scenario::Scenario;
use tempfile::TempDir;
use testkit::{Program, headwater};

/// Longest wait, on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Reads a text as the file of a scenario.
pub(crate) fn scenario(text: &str) -> anyhow::Result<Scenario> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, text).unwrap();
    Scenario::read(&path)
}

/// The origin as a peer. nginx is a peer of this repository, but the test describes the origin
/// itself, because its binary may be anywhere.
pub(crate) fn origin() -> String {
    let binary = headwater().to_str().unwrap();
    format!(
        r#"
title = "origin"
about = "This repository's."
[version]
command = ["{binary}", "--version"]
[[file]]
path = "headwater.toml"
text = '''
[http]
listen = "{{host}}:{{http}}"
[rtmp]
listen = "{{host}}:{{rtmp}}"
[webrtc]
listen = "{{host}}:0"
[vod]
root = "{{root}}"
'''
[start]
command = ["{binary}", "serve", "--config", "{{work}}/headwater.toml"]
ready = {{ line = "ready http=" }}
[serves]
file = "http://{{host}}:{{http}}/vod/{{path}}?pace=fast"
rtmp-vod = "rtmp://{{host}}:{{rtmp}}/vod/{{path}}"
flv-live = "http://{{host}}:{{http}}/live/{{name}}/live.flv"
[publish]
rtmp = "rtmp://{{host}}:{{rtmp}}/live/{{name}}"
"#
    )
}

/// The media of a scenario: the demo clip, at this path.
pub(crate) fn clip(path: &str) -> String {
    let clip = testkit::demo_clip();
    let clip = clip.display();
    format!("[media.clip]\npath = \"{path}\"\nmake = [\"cp\", \"{clip}\", \"{{out}}\"]\n")
}

/// A folder with a scenario, peers and results.
pub(crate) struct Lab(TempDir);

impl Lab {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts `streamgauge run mine.toml -o DIR/out --json …`.
    pub(crate) fn start(&self, arguments: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
        command
            .arg("run")
            .arg(self.path("mine.toml"))
            .arg("-o")
            .arg(self.path("out"))
            .arg("--json")
            .args(arguments)
            // The place of media and work folders.
            .env("CARGO_TARGET_DIR", self.path("target"));
        Program::spawn(&mut command)
    }

    /// Runs it; returns its exit status, its document, and its messages.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, Value, String) {
        let finished = self.start(arguments).wait(LIMIT);
        let document = serde_json::from_slice(&finished.stdout).unwrap_or_default();
        (finished.status.code().unwrap(), document, finished.stderr)
    }

    pub(crate) fn trial(&self, folder: &str) -> Value {
        json(&self.path("out/trials").join(folder).join("trial.json"))
    }
}

pub(crate) fn json(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}
