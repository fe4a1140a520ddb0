//! Keyframes that come as an encoder's defaults have them, 0.3 to 7 s apart in any order, or 8 s:
//! what players that others wrote get of that.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{Program, Server};

use crate::deliveries::{gstreamer_dash, joined};
use crate::peers::{decoded, vlc};
use crate::support::{
    LIMIT, Received, Unit, ffmpeg, finish, publish, server, until_listed, until_ready,
};
use crate::times::clip;

/// In seconds, for 20 s.
const KEYFRAMES: &str = "0,1.2,1.5,3.4,3.9,4.8,11.8,12.2,14.3,17.6,18.2";

/// Asserts that pictures are a run of the source's, and enough of it.
#[track_caller]
fn assert_run(name: &str, source: &[Unit], got: &[Unit], least: usize) {
    let same = |run: &[Unit]| run.iter().zip(got).all(|(sent, got)| sent.md5 == got.md5);
    let run = source.windows(got.len().max(1)).any(same);
    assert!(run, "{name}: {} pictures are not a run of the source's", got.len());
    assert!(got.len() >= least, "{name}: {} pictures of at least {least}", got.len());
}

#[test]
fn dash_players_lose_nothing() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    // VLC runs as somebody else.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let stream = "live/dash";
    let forced = ["-g", "1000", "-force_key_frames", KEYFRAMES];
    let pictures = "testsrc2=size=320x180:rate=30:duration=20";
    let file = clip(folder.path(), "irregular", pictures, 20, &forced);
    let source = Received::of(&file);
    let publisher = publish(&file, &server.rtmp_url(stream), "1");
    until_ready(&server, stream);
    // GStreamer takes a manifest for invalid whose window is shorter than its delay.
    until_listed(&server, stream, &["v0", "a0"], 2);

    let manifest = server.url(&format!("/{stream}/manifest.mpd"));
    // ffmpeg 5.1 asks for the last segment for ever once a live manifest has become static, whatever
    // the keyframes: so it plays a part of the stream, and what it has by then counts.
    let part = ["-t", "8", "-c", "copy", "-f", "framehash", "-hash", "md5", "-"];
    let ffmpeg = ffmpeg(["-i", &manifest, "-map", "0:v"].into_iter().chain(part));
    let gstreamer = gstreamer_dash(&server, stream, folder.path());
    let (mut vlc, taken) = vlc(folder.path(), &manifest, "vlc.ts");
    let mut watch = Command::new(testkit::built("streamgauge", "streamgauge"));
    watch.args(["watch", &manifest, "--json", "--reference"]).arg(&file);
    let watch = Program::spawn(&mut watch);
    finish(publisher);

    finish(gstreamer);
    let got = joined(&folder.path().join("dash-v.mp4"), &folder.path().join("dash-a.mp4"));
    // It may begin with the segment of 7 s that is being made then.
    assert_run("GStreamer", source.video(), got.video(), 240);
    assert_run("GStreamer's sound", source.only("audio"), got.only("audio"), 300);
    assert_run("ffmpeg", source.video(), Received::by(ffmpeg).video(), 150);

    // VLC 3.0 does not always notice the end of a broadcast.
    let _ = vlc.ended_within(Duration::from_secs(5));
    drop(vlc);
    let (pictures, got) = (decoded(&file), decoded(&taken));
    let run = pictures.windows(got.len().max(1)).any(|run| run == got);
    assert!(run && got.len() > 150, "VLC: {} pictures are no run of the source's", got.len());

    let watched = watch.wait(LIMIT);
    let verdict: serde_json::Value = serde_json::from_slice(&watched.stdout).unwrap();
    assert_eq!(verdict["passed"], true, "streamgauge: {verdict:#}");
    let viewer = &verdict["viewer"];
    assert_eq!(viewer["stalls"], 0, "streamgauge: {verdict:#}");
    assert_eq!(viewer["holes"], 0, "streamgauge: {verdict:#}");
}

/// A viewer who comes between keyframes that are 8 s apart sees a picture soon.
#[test]
fn the_first_picture_is_soon_there_between_keyframes() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let stream = "live/rare";
    let pictures = "testsrc2=size=320x180:rate=30:duration=24";
    let file = clip(folder.path(), "rare", pictures, 24, &["-g", "240"]);
    let publisher = publish(&file, &server.rtmp_url(stream), "1");
    // The second keyframe is there: what follows is in the middle.
    until_listed(&server, stream, &["v0"], 1);
    std::thread::sleep(Duration::from_secs(3));
    let url = |path: &str| server.url(&format!("/{stream}/{path}"));
    for (by, url) in [
        ("live.mp4", url("live.mp4")),
        ("live.flv", url("live.flv")),
        ("RTMP", server.rtmp_url(stream)),
    ] {
        let begun = Instant::now();
        // The least that ffmpeg needs to know what it plays.
        let soon = ["-probesize", "32k", "-analyzeduration", "0"];
        let one = ["-frames:v", "1", "-f", "framehash", "-"];
        finish(ffmpeg(soon.into_iter().chain(["-i", &url, "-map", "0:v"]).chain(one)));
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(1500), "{by}: the first picture after {took:?}");
    }
    let begun = Instant::now();
    assert!(first_pushed(&server, stream), "push begins with no keyframe");
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(500), "push: the first picture after {took:?}");
    drop(publisher);
}

/// Whether the first chunk of pictures that push sends can be decoded by itself.
fn first_pushed(server: &Server, stream: &str) -> bool {
    let mut client = crate::push_client::Client::connect(server.http, &format!("/{stream}/push"));
    let mut media = client.until(|frame| frame.opcode == 2).payload;
    let pictures = client
        .until(|frame| frame.opcode == 2 && crate::push_client::track_of(&frame.payload) == 1);
    media.extend(pictures.payload);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("first.mp4");
    std::fs::write(&file, media).unwrap();
    let packets = testkit::ffprobe_packets(&file);
    packets.iter().find(|packet| packet.kind == "video").is_some_and(testkit::Packet::is_keyframe)
}
