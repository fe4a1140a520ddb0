//! The renditions that viewers are offered, and whether players can switch between them and play
//! them.

use std::process::Command;

use testkit::Program;

use crate::support::{
    LIMIT, RUNGS, clip, ffmpeg, is_over, media, named, publish, server, server_waiting, times,
    with_renditions,
};

const SIZES: [&str; 3] = ["640x360", "320x180", "160x90"];

#[test]
fn renditions_are_cut_where_their_source_is() {
    let folder = tempfile::tempdir().unwrap();
    // A busy machine makes the last frames late, and they must come before the stream ends.
    let server = server_waiting("12s", RUNGS, &[]);
    let publisher = publish(&server, &clip(&folder, "640x360", 9), "live/x", &[]);

    let offered = with_renditions(&server, "live/x");
    let variants: Vec<&str> =
        offered.lines().filter(|line| line.starts_with("#EXT-X-STREAM-INF")).collect();
    assert_eq!(variants.len(), SIZES.len(), "{offered}");
    for size in SIZES {
        let variant = variants.iter().find(|line| line.contains(&format!("RESOLUTION={size}")));
        let variant = variant.unwrap_or_else(|| panic!("{size}: {offered}"));
        for what in ["BANDWIDTH=", "CODECS=\"avc1.", "mp4a.40.2\"", "AUDIO=\"audio\""] {
            assert!(variant.contains(what), "{what}: {variant}");
        }
    }
    assert_eq!(offered.matches("#EXT-X-MEDIA:").count(), 1, "one audio track for all: {offered}");

    let playlists = SIZES.map(|size| {
        let playlist = media(&server, "live/x", &named(&offered, size), is_over);
        let file = folder.path().join(format!("{size}.cmaf"));
        playlist.download(&server, &file);
        (size, playlist, file)
    });
    assert!(publisher.wait(LIMIT).status.success());
    let [(_, source, file), rest @ ..] = &playlists;
    let (shown, keyframes) = times(file);
    assert_eq!(keyframes.len(), 5);
    // The frames of all complete segments, and of the last segment its keyframe.
    let least = shown.iter().position(|time| Some(time) == keyframes.last()).unwrap() + 1;
    for (size, playlist, file) in rest {
        // When the stream ends, the last frames in the decoder are not made any more.
        let cuts = playlist.cuts();
        let [complete @ .., _] = &cuts[..] else { panic!("{size}: no segment") };
        assert_eq!(complete, &source.cuts()[..complete.len()], "{size}");
        assert_eq!(cuts.len(), source.cuts().len(), "{size}");
        assert_eq!(playlist.discontinuities, 0);
        let (made, at) = times(file);
        assert_eq!(at, keyframes, "{size}: keyframes");
        assert!(made.len() >= least, "{size}: {} of {}", made.len(), shown.len());
        assert_eq!(made, shown[..made.len()], "{size}: every picture at its own time");
        // ffmpeg must report no error.
        ffmpeg(["-xerror", "-i", file.to_str().unwrap(), "-f", "null", "-"]);
    }

    // DASH: ffmpeg plays all of its representations at once.
    let manifest = server.url("/live/x/manifest.mpd");
    let hashes = ffmpeg(["-i", &manifest, "-map", "0:v", "-f", "framehash", "-hash", "md5", "-"]);
    let hashes = String::from_utf8(hashes).unwrap();
    let sizes = hashes.lines().filter(|line| line.starts_with("#dimensions"));
    assert_eq!(sizes.count(), SIZES.len(), "{hashes}");
    for (stream, size) in ["0", "1", "2"].into_iter().zip(SIZES) {
        assert!(hashes.lines().any(|l| l.starts_with("#dim") && l.ends_with(size)), "{hashes}");
        let pictures = hashes.lines().filter(|line| line.starts_with(&format!("{stream},")));
        assert!(pictures.count() >= least, "stream {stream}");
    }
}

#[test]
fn dash_is_played_by_gstreamer() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_waiting("12s", RUNGS, &[]);
    let publisher = publish(&server, &clip(&folder, "640x360", 6), "live/x", &[]);
    let offered = with_renditions(&server, "live/x");
    media(&server, "live/x", &named(&offered, "160x90"), is_over);
    assert!(publisher.wait(LIMIT).status.success());
    let manifest = server.url("/live/x/manifest.mpd");
    let mut play = Command::new("gst-launch-1.0");
    let location = format!("location={manifest}");
    // The lowest bitrate belongs to a rendition that was made here.
    let pipeline = ["souphttpsrc", &location, "!", "dashdemux", "max-bitrate=100000"];
    let decode = ["!", "video/quicktime", "!", "decodebin", "!", "video/x-raw,width=160,height=90"];
    let sink = ["!", "fakesink", "sync=false"];
    play.arg("-q").args(pipeline).args(decode).args(sink);
    let finished = Program::spawn(&mut play).wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
}

/// If the source is not to be offered, no kind of manifest lists it once there are other
/// renditions.
#[test]
fn a_source_need_not_be_offered() {
    let server = server(&format!("source = false\n{RUNGS}"), &["--demo"]);
    let two = |text: &str| text.matches("#EXT-X-STREAM-INF").count() == 2;
    let answer = server.get_until("/live/demo/index.m3u8", LIMIT, |answer| {
        answer.status() == 200 && two(answer.text())
    });
    let offered = answer.text();
    assert!(!offered.contains("1280x720"), "{offered}");
    named(offered, "320x180");
    named(offered, "160x90");
    let manifest = server.get("/live/demo/manifest.mpd");
    assert_eq!(manifest.status(), 200, "{manifest:?}");
    for (width, listed) in [("160", true), ("320", true), ("1280", false)] {
        let width = format!(" width=\"{width}\"");
        assert_eq!(manifest.text().contains(&width), listed, "{width}: {}", manifest.text());
    }
}

#[test]
fn a_source_is_offered_when_nothing_is_left_to_make_of_it() {
    let folder = tempfile::tempdir().unwrap();
    // A source smaller than both rungs becomes rung two, which has the lowest bitrate. A source as
    // large as rung one becomes rung one.
    let rungs = "source = false
        rungs = [
            { name = \"one\", width = 160, height = 90, bitrate = \"60kbit/s\" },
            { name = \"two\", width = 320, height = 180, bitrate = \"50kbit/s\" },
        ]
    ";
    // The other rendition keeps the stream, and the source's place is kept for as long as the next publisher needs.
    let server = server_waiting("12s", rungs, &[]);
    let [smaller, larger] = ["128x72", "160x90"].map(|size| clip(&folder, size, 8));
    let until = |accept: &dyn Fn(&str) -> bool| {
        server.get_until("/live/x/index.m3u8", LIMIT, |answer| {
            answer.status() == 200 && accept(answer.text())
        });
    };
    let publisher = publish(&server, &smaller, "live/x", &["--loop"]);
    until(&|offered| !offered.contains("v0/media.m3u8"));
    let other = clip(&folder, "192x108", 8);
    let other = publish(&server, &other, "live/x?rendition=one", &["--loop"]);
    until(&|offered| offered.contains("192x108"));
    publisher.stop(LIMIT);
    let publisher = publish(&server, &larger, "live/x", &["--loop"]);
    server.log_line(LIMIT, |line| line.contains("one is not made"));
    until(&|offered| offered.contains("160x90"));
    drop((publisher, other));
}

#[test]
fn a_source_of_another_codec_is_made_into_what_all_can_play() {
    let server = server(RUNGS, &[]);
    let file = testkit::clip("mp4/hevc.mp4");
    let publisher = publish(&server, &file, "live/h", &["--loop"]);
    let offered = with_renditions(&server, "live/h");
    let codec = |size: &str| {
        let variant = offered.lines().find(|line| line.contains(&format!("RESOLUTION={size}")));
        let variant = variant.unwrap_or_else(|| panic!("{size}: {offered}"));
        variant.split("CODECS=\"").nth(1).unwrap()[..4].to_owned()
    };
    assert_eq!(["640x360", "320x180", "160x90"].map(codec), ["hvc1", "avc1", "avc1"]);
    let three = |text: &str| text.matches("#EXTINF").count() >= 3;
    let playlist = media(&server, "live/h", &named(&offered, "320x180"), three);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.cmaf");
    playlist.download(&server, &file);
    ffmpeg(["-xerror", "-i", file.to_str().unwrap(), "-f", "null", "-"]);
    drop(publisher);
}

#[test]
fn a_source_that_changes_its_size_has_other_renditions() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_waiting("12s", RUNGS, &[]);
    let (large, small) = (clip(&folder, "640x360", 5), clip(&folder, "256x144", 6));
    let publisher = publish(&server, &large, "live/x", &[]);
    let offered = with_renditions(&server, "live/x");
    assert!(publisher.wait(LIMIT).status.success());
    let publisher = publish(&server, &small, "live/x", &[]);
    assert!(publisher.wait(LIMIT).status.success());
    // The larger rung is left out now, and the smaller has the new aspect ratio. Playlists tell of
    // both in one discontinuity.
    let low = media(&server, "live/x", &named(&offered, "160x90"), is_over);
    let source = media(&server, "live/x", &named(&offered, "640x360"), is_over);
    assert_eq!((low.discontinuities, source.discontinuities), (1, 1));
    let log = server.whole_log();
    let last = log.lines().rfind(|line| line.contains(" makes ")).unwrap();
    assert!(last.contains("low 160x90") && !last.contains("mid"), "{last}");
}
