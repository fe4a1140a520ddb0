//! GStreamer, rtmpdump and VLC in either direction.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Program;

use crate::support::{
    Begin, LIMIT, Received, assert_came_through, count, cut, finish, media, over_hls, publish,
    server, until_ready,
};

#[test]
fn gstreamer_publishes() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clip.mp4");
    cut(&media("mp4/film.mp4"), "4", &[], &file);
    let from = format!("location={}", file.display());
    let to = format!("location={}", server.rtmp_url("live/gst"));
    let pipeline = [
        "-q",
        "filesrc",
        &from,
        "!",
        "qtdemux",
        "name=d",
        "flvmux",
        "name=m",
        "streamable=true",
        "!",
        "rtmp2sink",
        "timeout=60",
        &to,
        "d.video_0",
        "!",
        "queue",
        "!",
        "m.video",
        "d.audio_0",
        "!",
        "queue",
        "!",
        "m.audio",
    ];
    finish(Program::spawn(Command::new("gst-launch-1.0").args(pipeline)));
    let playlist = server.until_ended("live/gst", "v0", LIMIT);
    assert_eq!(count(&playlist, "#EXT-X-DISCONTINUITY"), 0, "{playlist}");
    let received = over_hls(&server, "live/gst");
    assert_came_through("GStreamer", &Received::of(&file), &received, Begin::Start);
}

/// Asserts that `file` has the units of `source` in order. Players that use librtmp, or that close
/// at once, may lose units that they still hold when the stream ends. So up to `missing` units at
/// the end may be missing.
#[track_caller]
fn assert_played(name: &str, source: &Received, file: &Path, missing: usize) {
    let received = Received::of(file);
    for kind in ["video", "audio"] {
        let (sent, got) = (source.only(kind), received.only(kind));
        let missing = (0..=missing).find(|&missing| {
            let Some(end) = sent.len().checked_sub(missing) else { return false };
            let Some(first) = end.checked_sub(got.len()) else { return false };
            sent[first..end].iter().zip(got).all(|(sent, got)| sent.md5 == got.md5)
        });
        assert!(
            missing.is_some(),
            "{name}: {} {kind} units are not a run of the source",
            got.len()
        );
        assert!(got.len() > sent.len() / 4, "{name}: {} {kind} units", got.len());
    }
}

/// VLC, which writes what it plays to a file in a folder that everybody may write to. Returns that
/// file as well.
pub(crate) fn vlc(folder: &Path, url: &str, file: &str) -> (Program, PathBuf) {
    let path = folder.join(file);
    let sout = format!("#std{{access=file,mux=ts,dst={}}}", path.display());
    // setpriv becomes the player itself. A program that waits for the player would leave it behind
    // when killed.
    let nobody = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"];
    let mut command = Command::new("setpriv");
    command.args(nobody).args(["cvlc", "-q", url, "--sout", &sout, "vlc://quit"]);
    (Program::spawn(command.env("HOME", folder)), path)
}

/// The decoded frames of a file. VLC's transport streams frame the same NAL units differently and
/// add delimiters.
pub(crate) fn decoded(file: &Path) -> Vec<String> {
    testkit::decoded_pictures(file.to_str().unwrap())
}

#[test]
fn rtmpdump_gstreamer_and_vlc_play() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    // VLC refuses to run as root, so it runs as another user.
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    // A busy machine may hold up a player for some seconds before it asks. Each gets more than a quarter all the same.
    let clip = folder.path().join("clip.mp4");
    cut(&media("mp4/minute.mp4"), "30", &[], &clip);
    let (source, pictures) = (Received::of(&clip), decoded(&clip));
    let url = server.rtmp_url("live/x");
    let publisher = publish(&clip, &url, "1");
    until_ready(&server, "live/x");
    // It goes on when those who play by RTMP are there: a busy machine may hold them up.
    publisher.pause();

    let (dumped, saved) = (folder.path().join("dump.flv"), folder.path().join("gst.flv"));
    let dump = ["-q", "-v", "-r", &url, "-o", dumped.to_str().unwrap()];
    let dump = Program::spawn(Command::new("rtmpdump").args(dump));
    let (from, to) = (format!("location={url}"), format!("location={}", saved.display()));
    let save = ["-q", "rtmp2src", "timeout=60", &from, "!", "filesink", &to];
    let save = Program::spawn(Command::new("gst-launch-1.0").args(save));
    let players = [
        ("VLC by RTMP", vlc(folder.path(), &url, "rtmp.ts")),
        ("VLC by HLS", vlc(folder.path(), &server.url("/live/x/index.m3u8"), "hls.ts")),
    ];
    let viewers = "headwater_viewers{stream=\"live/x\",delivery=\"rtmp\"}";
    server.get_until("/metrics", LIMIT, |metrics| metrics.metric(viewers) == Some(3));
    publisher.resume();
    finish(publisher);

    dump.wait(LIMIT);
    save.wait(LIMIT);
    assert_played("rtmpdump", &source, &dumped, 1);
    assert_played("GStreamer", &source, &saved, 1);
    for (name, (player, file)) in players {
        player.wait(LIMIT);
        let got = decoded(&file);
        let all = pictures.len();
        let run = pictures.windows(got.len().max(1)).any(|run| run == got);
        assert!(run, "{name}: {} pictures are not a run of the source's {all}", got.len());
        assert!(got.len() > all / 4, "{name}: {} pictures", got.len());
    }
}
