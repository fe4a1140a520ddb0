//! ffmpeg, rtmpdump, GStreamer and VLC receive what is in the file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use testkit::{Program, Server, decoded_pictures};

use crate::support::{LIMIT, hashes, media, server, units};

/// Files of several layouts, with codecs that FLV of 2008 carries.
const FILES: [&str; 8] = [
    "mp4/minute.mp4",
    // moov last, B-frames, 5.1
    "mp4/surround.mp4",
    "mp4/late-index.mp4",
    // Video only, audio only.
    "mp4/pictures.mp4",
    "mp4/sound.mp4",
    "mp4/vfr.mp4",
    // Fragmented.
    "mp4/fragmented.mp4",
    "mp4/quicktime.mov",
];

fn url(server: &Server, file: &str) -> String {
    server.rtmp_url(&format!("vod/{file}?pace=fast"))
}

/// Asserts that `received`, a file or URL, holds the access units of `source`, and that all
/// presentation times differ by the same, except for rounding.
#[track_caller]
fn assert_same(name: &str, received: &str, source: &Path) {
    let (got, sent) = (units(received), units(source.to_str().unwrap()));
    let mut shifts = Vec::new();
    for (kind, (got, sent)) in ["video", "audio"].iter().zip(got.iter().zip(&sent)) {
        assert_eq!(got.len(), sent.len(), "{name}: {kind} units");
        assert!(hashes(got) == hashes(sent), "{name}: other {kind} units");
        shifts.extend(got.iter().zip(sent).map(|(got, sent)| got.0 - sent.0));
    }
    let spread = shifts.iter().max().unwrap() - shifts.iter().min().unwrap();
    assert!(spread <= 3, "{name}: units apart by up to {spread} ms more");
}

#[test]
fn ffmpeg_receives_every_access_unit() {
    receive(&testkit::media_dir(), &FILES);
}

#[test]
#[ignore = "corpus"]
fn corpus_ffmpeg_receives_every_access_unit() {
    let files = [
        "bbb/bbb_60s_720p_h264_aac.mp4",
        "bbb/bbb_2min_240p_h264_aac.mp4",
        // moov last, B-frames, 5.1
        "bbb/bbb_30s_480p_51ch_moovend.mp4",
        "film/sintel_trailer_52s_720p_h264_aac.mp4",
        // Video only, audio only.
        "bbb/androidx_bbb_800x640_768kbps_30fps_avc_pyramid_3b.mp4",
        "bbb/androidx_bbb_1ch_16kHz_aac.mp4",
        "mp4/mediabunny_cursed-vfr.mp4",
        // Fragmented.
        "mp4/androidx_sample_with_increasing_timestamps_320w_240h_fragmented.mp4",
        "mp4/rsmpeg_mov_sample_30s_720p.mov",
    ];
    receive(&testkit::corpus_dir(), &files);
}

fn receive(root: &Path, files: &[&str]) {
    let server = server(root);
    for file in files {
        assert_same(file, &url(&server, file), &root.join(file));
    }
}

#[test]
fn the_best_rendition_of_a_folder_is_played() {
    let folder = tempfile::tempdir().unwrap();
    let ladder = folder.path().join("film");
    std::fs::create_dir(&ladder).unwrap();
    let high = media("mp4/minute.mp4");
    std::fs::copy(&high, ladder.join("high.mp4")).unwrap();
    std::fs::copy(media("mp4/two-minutes.mp4"), ladder.join("low.mp4")).unwrap();
    let server = server(folder.path());
    let (got, sent) = (units(&url(&server, "film")), units(high.to_str().unwrap()));
    assert!(hashes(&got[0]) == hashes(&sent[0]));
}

/// Runs rtmpdump with these arguments to its end. Returns its exit code.
fn rtmpdump(url: &str, into: &Path, options: &[&str]) -> Option<i32> {
    let mut command = Command::new("rtmpdump");
    command.args(["-q", "-r", url, "-o"]).arg(into).args(options);
    Program::spawn(&mut command).wait(LIMIT).status.code()
}

#[test]
fn rtmpdump_saves_all_a_part_and_the_rest() {
    const FILE: &str = "mp4/minute.mp4";
    let server = server(&testkit::media_dir());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    // With a short path rtmpdump separates application and name by itself.
    let from = url(&server, FILE);

    assert_eq!(rtmpdump(&from, &path("all.flv"), &[]), Some(0));
    assert_same("all", &text("all.flv"), &media(FILE));

    // A download that is cut off and then resumed has everything in the end.
    let all = std::fs::read(path("all.flv")).unwrap();
    let tag =
        |at: usize| 15 + u32::from_be_bytes([0, all[at + 1], all[at + 2], all[at + 3]]) as usize;
    let mut end = 13;
    while end < all.len() / 3 {
        end += tag(end);
    }
    std::fs::write(path("cut.flv"), &all[..end]).unwrap();
    assert_eq!(rtmpdump(&from, &path("cut.flv"), &["--resume"]), Some(0));
    assert!(std::fs::read(path("cut.flv")).unwrap() == all);

    // A part: from the keyframe at or before 20 s on, for 10 s.
    rtmpdump(&from, &path("part.flv"), &["--start", "20", "--stop", "30"]);
    let (part, source) = (units(&text("part.flv")), units(media(FILE).to_str().unwrap()));
    let pictures = hashes(&part[0]);
    let whole = hashes(&source[0]);
    let first = whole.windows(pictures.len()).position(|run| run == pictures);
    let first = first.expect("pictures in a row");
    let (begins, ends) = (source[0][first].0, source[0][first + pictures.len() - 1].0);
    assert!((15_000..=20_000).contains(&begins), "{begins}");
    assert!((29_900..30_100).contains(&ends), "{ends}");
}

#[test]
fn gstreamer_and_vlc_save_all() {
    const FILE: &str = "mp4/surround.mp4";
    let server = server(&testkit::media_dir());
    let folder = tempfile::tempdir().unwrap();
    // VLC refuses to run as root, so it runs as another user.
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let from = url(&server, FILE);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();

    let to = format!("location={}", path("gst.flv"));
    let location = format!("location={from}");
    let pipeline = ["-q", "rtmp2src", "timeout=60", &location, "!", "filesink", &to];
    let saved = Program::spawn(Command::new("gst-launch-1.0").args(pipeline)).wait(LIMIT);
    assert!(saved.status.success(), "{saved:?}");
    // GStreamer may drop the last unit that it still holds when the connection ends.
    let (got, sent) = (units(&path("gst.flv")), units(media(FILE).to_str().unwrap()));
    for (got, sent) in got.iter().zip(&sent) {
        assert!(got.len() + 1 >= sent.len(), "{} units of {}", got.len(), sent.len());
        assert!(hashes(sent).starts_with(&hashes(got)));
    }

    let sout = format!("#std{{access=file,mux=ts,dst={}}}", path("vlc.ts"));
    let program = ["-u", "nobody", "--", "cvlc", "-q", &from, "--sout", &sout, "vlc://quit"];
    let mut command = Command::new("runuser");
    Program::spawn(command.args(program).env("HOME", folder.path())).wait(LIMIT);
    // VLC's transport streams frame NAL units differently, so decoded frames are compared. VLC
    // quits at the title's end and drops the frames still inside it, and some earlier ones if it
    // could not keep up. So most of its frames must be the title's, in order.
    let (got, sent) =
        (decoded_pictures(&path("vlc.ts")), decoded_pictures(media(FILE).to_str().unwrap()));
    assert!(got.len() > sent.len() / 4, "{} pictures of {}", got.len(), sent.len());
    let mut rest = sent.iter();
    let strange = got.iter().filter(|picture| {
        let mut ahead = rest.clone();
        let found = ahead.any(|sent| sent == *picture);
        if found {
            rest = ahead;
        }
        !found
    });
    let strange = strange.count();
    assert!(strange <= got.len() / 10, "{strange} of {} pictures are not the title's", got.len());
}
