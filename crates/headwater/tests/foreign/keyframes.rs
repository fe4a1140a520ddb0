//! Streams with keyframes as an encoder's defaults make them: 0.3 to 9.9 s apart, or 8 s apart. The
//! tests check the media that foreign players receive.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::http::Client;
use testkit::{Program, Server};

use crate::deliveries::{gstreamer_dash, joined};
use crate::peers::{decoded, vlc};
use crate::support::{
    LIMIT, Received, Stops, Unit, count, ffmpeg, finish, publish, publish_watched, server,
    server_with, until_ready,
};
use crate::times::clip;

/// Keyframe times in seconds, for 28 s: 0.3 to 9.9 s apart.
const KEYFRAMES: &str = "0,1.2,1.5,3.4,3.9,4.8,12.3,12.7,22.6,23.0,25.5";

/// Index of the frame before which every player must have begun. It is a keyframe, and the next
/// keyframe comes 9.9 s later.
const BEFORE: usize = 381;
/// The last segment's first frame.
const LAST: usize = 765;
/// Frames a second.
const RATE: usize = 30;

/// Asserts that `got` is a run of `source` without missing or repeated items, which begins before
/// `begins`, and ends at `ends` or later.
#[track_caller]
fn assert_run<T: PartialEq>(name: &str, source: &[T], got: &[T], (begins, ends): (usize, usize)) {
    let same = |first: usize| {
        source[first..].iter().zip(got).take_while(|(sent, got)| sent == got).count()
    };
    // Audio units may be equal to one another.
    let first = (0..source.len()).max_by_key(|&first| same(first)).unwrap();
    let same = same(first);
    assert!(
        same == got.len(),
        "{name}: from {first} of {} on, {same} of {} are in order; then comes {:?}",
        source.len(),
        got.len(),
        source.iter().rposition(|sent| *sent == got[same])
    );
    let end = first + got.len();
    assert!(first < begins && end >= ends, "{name}: {first} to {end}, not {begins} to {ends}");
}

fn hashes(units: &[Unit]) -> Vec<&str> {
    units.iter().map(|unit| &*unit.md5).collect()
}

#[test]
fn dash_players_lose_nothing() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    // VLC runs as another user.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let stream = "live/dash";
    let forced = ["-g", "1000", "-force_key_frames", KEYFRAMES];
    let pictures = "testsrc2=size=320x180:rate=30:duration=28";
    let file = clip(folder.path(), "irregular", pictures, 28, &forced);
    let source = Received::of(&file);
    let (progress, http) = (folder.path().join("progress"), server.http);
    let stops = Stops::watch(progress.clone(), move || {
        let answer = Client::connect(http, LIMIT).and_then(|mut client| {
            client.send("GET", "/healthz", &[], b"")?;
            client.receive()
        });
        // The server may have ended.
        drop(answer);
    });
    let publisher = publish_watched(&file, &server.rtmp_url(stream), &progress);
    until_ready(&server, stream);
    // GStreamer rejects a manifest whose window is shorter than its delay.
    server.until_listed(stream, &["v0", "a0"], 2, LIMIT);

    let manifest = server.url(&format!("/{stream}/manifest.mpd"));
    // Once a live manifest has become static, ffmpeg 5.1 asks for the last segment for ever,
    // whatever the keyframes. So it plays only a part of the stream.
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
    assert_run(
        "GStreamer",
        &hashes(source.video()),
        &hashes(got.video()),
        (BEFORE, source.video().len()),
    );
    let (sent, got) = (source.only("audio"), got.only("audio"));
    // Number of audio access units that last as long as these frames of video.
    let begins = BEFORE * sent.len() / source.video().len();
    assert_run("GStreamer's sound", &hashes(sent), &hashes(got), (begins, sent.len()));
    let got = Received::by(ffmpeg);
    assert_run("ffmpeg", &hashes(source.video()), &hashes(got.video()), (BEFORE, 8 * RATE));
    assert!(got.video().len() >= 8 * RATE, "ffmpeg: {} pictures in 8 s", got.video().len());

    // VLC 3.0 does not notice the end of a broadcast, and does not write all of the last segment. So
    // it is ended when it has written what it must.
    let pictures = decoded(&file);
    let has_all = || {
        let size = std::fs::metadata(&taken).map_or(0, |file| file.len());
        size > 64 << 10 && decoded(&taken).contains(&pictures[LAST - RATE - 1])
    };
    let deadline = Instant::now() + LIMIT;
    while vlc.ended_within(Duration::from_secs(1)).is_none() && !has_all() {
        assert!(Instant::now() < deadline, "VLC does not come to the end");
    }
    drop(vlc);
    assert_run("VLC", &pictures, &decoded(&taken), (BEFORE, LAST - RATE));

    let watched = watch.wait(LIMIT);
    let verdict: serde_json::Value = serde_json::from_slice(&watched.stdout).unwrap();
    assert_eq!(verdict["passed"], true, "streamgauge: {verdict:#}");
    let viewer = &verdict["viewer"];
    // The fault lost half of the media. A busy machine makes a viewer wait for a moment, or for as long as the publisher,
    // the server or the viewer stands still.
    let seconds = |value: &serde_json::Value| value.as_f64().unwrap();
    let stood = stops.seconds() + seconds(&verdict["generator"]["loops"][0]["lag_max"]);
    assert!(seconds(&viewer["stalled"]) < 2.0 + stood, "streamgauge: {stood} {verdict:#}");
    let least = (LAST - BEFORE) as f64 / RATE as f64;
    assert!(viewer["received"].as_f64().unwrap() >= least, "streamgauge: {verdict:#}");
    assert_eq!(viewer["holes"], 0, "streamgauge: {verdict:#}");
}

/// A viewer that comes between keyframes 8 s apart sees a frame at once. It cannot wait for the
/// next keyframe: none comes, because the publisher has stopped.
#[test]
fn the_first_picture_is_soon_there_between_keyframes() {
    let server = server_with("window = \"5m\"\nsilence = \"2m\"\n");
    let folder = tempfile::tempdir().unwrap();
    let stream = "live/rare";
    let pictures = "testsrc2=size=320x180:rate=30:duration=24";
    let file = clip(folder.path(), "rare", pictures, 24, &["-g", "240"]);
    let source = Received::of(&file);
    let publisher = publish(&file, &server.rtmp_url(stream), "1");
    // The second keyframe is there, and a second of media after it.
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
        // The least that ffmpeg needs to recognise the streams.
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

/// The first video chunk that push sends.
fn first_pushed(server: &Server, stream: &str) -> Received {
    let mut client = testkit::push::Client::connect(server.http, &format!("/{stream}/push"));
    let mut media = client.until(|frame| frame.opcode == 2).payload;
    let pictures =
        client.until(|frame| frame.opcode == 2 && testkit::track_of(&frame.payload) == 1);
    media.extend(pictures.payload);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("first.mp4");
    std::fs::write(&file, media).unwrap();
    Received::of(&file)
}
