//! Keyframes that come as an encoder's defaults have them, 0.3 to 7 s apart in any order, or 8 s:
//! what players that others wrote get of that.

use std::process::Command;
use std::time::Duration;

use testkit::{Program, Server};

use crate::deliveries::{gstreamer_dash, joined};
use crate::peers::{decoded, vlc};
use crate::support::{
    LIMIT, Received, Unit, count, ffmpeg, finish, publish, server, server_with, until_listed,
    until_ready,
};
use crate::times::clip;

/// In seconds, for 26 s.
const KEYFRAMES: &str = "0,1.2,1.5,3.4,3.9,4.8,11.8,12.2,14.3,17.6,18.2,20.1,24.5";

/// Asserts that `got` is a run of `source`, with nothing missing or twice, and enough of it.
#[track_caller]
fn assert_run<T: PartialEq>(name: &str, source: &[T], got: &[T], least: usize) {
    let same = |first: usize| {
        source[first..].iter().zip(got).take_while(|(sent, got)| sent == got).count()
    };
    // Sound may repeat itself.
    let first = (0..source.len()).max_by_key(|&first| same(first)).unwrap();
    let same = same(first);
    assert!(
        same == got.len(),
        "{name}: from {first} of {} on, {same} of {} are in order; then comes {:?}",
        source.len(),
        got.len(),
        source.iter().rposition(|sent| *sent == got[same])
    );
    assert!(got.len() >= least, "{name}: from {first} on, {} of at least {least}", got.len());
}

fn hashes(units: &[Unit]) -> Vec<&str> {
    units.iter().map(|unit| &*unit.md5).collect()
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
    let pictures = "testsrc2=size=320x180:rate=30:duration=26";
    let file = clip(folder.path(), "irregular", pictures, 26, &forced);
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
    // Where it begins depends on when it comes, and so does how much it gets; all it gets is a run.
    assert_run("GStreamer", &hashes(source.video()), &hashes(got.video()), 60);
    assert_run("GStreamer's sound", &hashes(source.only("audio")), &hashes(got.only("audio")), 90);
    assert_run("ffmpeg", &hashes(source.video()), &hashes(Received::by(ffmpeg).video()), 150);

    // VLC 3.0 does not always notice the end of a broadcast.
    let _ = vlc.ended_within(Duration::from_secs(5));
    drop(vlc);
    assert_run("VLC", &decoded(&file), &decoded(&taken), 150);

    let watched = watch.wait(LIMIT);
    let verdict: serde_json::Value = serde_json::from_slice(&watched.stdout).unwrap();
    assert_eq!(verdict["passed"], true, "streamgauge: {verdict:#}");
    let viewer = &verdict["viewer"];
    assert_eq!(viewer["stalls"], 0, "streamgauge: {verdict:#}");
    assert_eq!(viewer["holes"], 0, "streamgauge: {verdict:#}");
}

/// A viewer who comes between keyframes that are 8 s apart sees a picture, and does not wait for the next
/// keyframe: none comes, since the publisher has stopped in between.
#[test]
fn the_first_picture_is_soon_there_between_keyframes() {
    let server = server_with("window = \"5m\"\nsilence = \"2m\"\n");
    let folder = tempfile::tempdir().unwrap();
    let stream = "live/rare";
    let pictures = "testsrc2=size=320x180:rate=30:duration=24";
    let file = clip(folder.path(), "rare", pictures, 24, &["-g", "240"]);
    let source = Received::of(&file);
    let publisher = publish(&file, &server.rtmp_url(stream), "1");
    // The second keyframe is there, and a second of what follows.
    server.get_until(&format!("/{stream}/v0/media.m3u8"), LIMIT, |answer| {
        let open = answer.text().rsplit("#EXTINF").next().unwrap();
        answer.text().contains("#EXTINF") && count(open, "#EXT-X-PART:") >= 5
    });
    publisher.pause();
    let newest = || {
        let playlist = server.get(&format!("/{stream}/v0/media.m3u8"));
        240 * count(playlist.text(), "#EXTINF")
    };
    let before = newest();
    let mut firsts = Vec::new();
    let url = |path: &str| server.url(&format!("/{stream}/{path}"));
    for (by, url) in [
        ("live.mp4", url("live.mp4")),
        ("live.flv", url("live.flv")),
        ("RTMP", server.rtmp_url(stream)),
    ] {
        // The least that ffmpeg needs to know what it plays.
        let soon = ["-probesize", "32k", "-analyzeduration", "0", "-i", &url, "-map", "0:v"];
        let one = ["-frames:v", "1", "-c", "copy", "-f", "framehash", "-hash", "md5", "-"];
        firsts.push((by, Received::by(ffmpeg(soon.into_iter().chain(one)))));
    }
    firsts.push(("push", first_pushed(&server, stream)));
    let after = newest();
    for (by, got) in firsts {
        let first = &got.video()[0].md5;
        let first = source.video().iter().position(|sent| sent.md5 == *first);
        let first = first.unwrap_or_else(|| panic!("{by}: its first picture is not the source's"));
        assert!(
            first == before || first == after,
            "{by}: picture {first}, not {before} or {after}"
        );
    }
}

/// The first chunk of pictures that push sends.
fn first_pushed(server: &Server, stream: &str) -> Received {
    let mut client = crate::push_client::Client::connect(server.http, &format!("/{stream}/push"));
    let mut media = client.until(|frame| frame.opcode == 2).payload;
    let pictures = client
        .until(|frame| frame.opcode == 2 && crate::push_client::track_of(&frame.payload) == 1);
    media.extend(pictures.payload);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("first.mp4");
    std::fs::write(&file, media).unwrap();
    Received::of(&file)
}
