//! Trials with the media servers of lab/peers that nobody here wrote. `scripts/interop.sh` installs
//! those that can be installed, and runs these tests.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::{Program, headwater};

/// Longest duration of a peer's trials, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(300);

/// The scenario: a load for each way to watch, on one live stream. It comes by RTMP, and for WHEP by
/// WHIP.
fn scenario() -> String {
    let media = [("aac", "aac"), ("opus", "libopus")].map(|(name, codec)| {
        format!(
            r#"
[media.{name}]
path = "{name}.mp4"
make = [
    "ffmpeg", "-nostdin", "-loglevel", "error", "-y",
    "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=30:duration=10",
    "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=10",
    "-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-threads", "1",
    "-b:v", "500k", "-minrate", "500k", "-maxrate", "500k", "-bufsize", "500k", "-x264-params", "nal-hrd=cbr",
    "-g", "30", "-keyint_min", "30", "-sc_threshold", "0", "-c:a", "{codec}", "-b:a", "96k", "-ac", "2", "{{out}}",
]
"#
        )
    });
    let (aac, opus) = (r#"file = "aac""#, r#"file = "opus", with = "whip""#);
    let loads = [
        ("rtmp-live", r#""6s""#, aac),
        ("flv-live", r#""6s""#, aac),
        // A player waits for a segment of 6 s.
        ("hls-live", r#""15s", "--no-low-latency""#, aac),
        ("llhls-live", r#""6s""#, aac),
        ("whep-live", r#""6s""#, opus),
    ];
    let loads = loads.map(|(job, duration, publish)| {
        format!(
            r#"
[[load]]
name = "{job}"
job = "{job}"
peers = []
stream = "rival"
with = "viewers"
arguments = ["{{url}}", "--batch-size", "3", "--duration", {duration}]
publish = {{ {publish} }}
"#
        )
    });
    format!("title = \"Rivals\"\n{}{}", media.concat(), loads.concat())
}

/// Runs the loads for the jobs of a peer, and checks that its viewers got media without errors.
/// Returns why the peer is left out, if it is.
fn measure(peer: &str, jobs: &[&str]) -> Option<String> {
    headwater();
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("rivals.toml"), folder.path().join("out"));
    std::fs::write(&file, scenario()).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    run.arg("run").arg(&file).args(["--json", "--peer", peer, "-o"]).arg(&out);
    run.args(jobs.iter().flat_map(|job| ["--load", job]));
    let given = std::env::var("PEER_BINS").unwrap_or_default();
    // A name that the peer does not have is refused.
    let own = |bin: &&str| bin.split('=').next() == Some(peer);
    run.args(given.split_whitespace().filter(own).flat_map(|bin| ["--peer-bin", bin]));
    run.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let finished = Program::spawn(&mut run).wait(LIMIT);
    let kept = std::fs::read(out.join("run.json")).unwrap_or_default();
    let kept: Value = serde_json::from_slice(&kept)
        .unwrap_or_else(|error| panic!("{error}: {}", finished.stderr));
    if let Some(why) = kept["absent"][peer].as_str() {
        return Some(why.to_owned());
    }
    // On a machine this busy, a saturated generator is no failure of the peer.
    assert!(matches!(finished.status.code(), Some(0 | 3)), "{}", finished.stderr);
    for job in jobs {
        let path = out.join("trials").join(job).join("case").join(peer).join("1/trial.json");
        let trial = std::fs::read(&path).unwrap_or_else(|error| panic!("{job}: {error}"));
        let trial: Value = serde_json::from_slice(&trial).unwrap();
        let metric = |name: &str| trial["metrics"][name].as_f64();
        assert_eq!((metric("clients"), metric("errors")), (Some(3.0), Some(0.0)), "{trial:#}");
        // A second of media has some 70 KiB.
        assert!(metric("media_kib_per_client") > Some(70.0), "{trial:#}");
    }
    None
}

/// Measures a server that this machine may lack: PATH, `target/peers` or PEER_BINS has it, or the
/// test says why it is left out.
fn measure_where_found(peer: &str, jobs: &[&str]) {
    if let Some(why) = measure(peer, jobs) {
        // Not by println!, which the harness keeps to itself where a test succeeds.
        let told = format!("{peer} is left out: {why}\n");
        std::io::stderr().write_all(told.as_bytes()).unwrap();
    }
}

/// `--install` builds MediaMTX, where Go is new enough.
#[test]
#[ignore = "interop"]
fn mediamtx() {
    measure_where_found("mediamtx", &["rtmp-live", "hls-live", "llhls-live", "whep-live"]);
}

/// SRS is in no package.
#[test]
#[ignore = "interop"]
fn srs() {
    measure_where_found("srs", &["rtmp-live", "flv-live", "hls-live", "whep-live"]);
}

#[test]
#[ignore = "interop"]
fn node_media_server() {
    assert_eq!(measure("node-media-server", &["rtmp-live", "flv-live"]), None);
}

#[test]
#[ignore = "interop"]
fn gstreamer_hls() {
    assert_eq!(measure("gstreamer-hls", &["hls-live"]), None);
}
