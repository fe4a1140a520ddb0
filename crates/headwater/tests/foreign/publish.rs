//! `headwater publish` sends the access units of the file, in the second round too.

use std::path::Path;
use std::thread;
use std::time::Duration;

use testkit::Server;

use crate::support::{
    Begin, LIMIT, Received, Unit, assert_came_through, count, cut, finish, media, over_hls, server,
    until_ready,
};

/// MD5 of an access unit of AAC-LC, stereo, that decodes to silence.
const SILENCE: &str = "2f562bb44004fdcefaa7c45b7c728e3c";

#[test]
fn files_are_published_unit_by_unit() {
    let files = [("mp4", "mp4/film.mp4"), ("flv", "flv/legacy.flv"), ("flv-b", "flv/b-frames.flv")];
    come_through(&testkit::media_dir(), &files);
}

#[test]
#[ignore = "corpus"]
fn corpus_files_are_published_unit_by_unit() {
    let files = [
        ("mp4", "bbb/bbb_10s_1080p_h264_aac.mp4"),
        ("flv", "flv/srs_bbb_10s_360p.flv"),
        ("flv-b", "flv/scuffle_avc_aac.flv"),
    ];
    come_through(&testkit::corpus_dir(), &files);
}

fn come_through(root: &Path, files: &[(&str, &str)]) {
    let server = server();
    for (name, file) in files {
        let stream = format!("live/{name}");
        let path = root.join(file);
        finish(server.publish(&path, &server.rtmp_url(&stream), &["--fast"]));
        server.until_ended(&stream, "v0", LIMIT);
        let source = Received::of(&path);
        assert_came_through(file, &source, &over_hls(&server, &stream), Begin::Start);
    }
}

#[test]
fn a_file_takes_as_long_as_it_lasts() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let clip = folder.path().join("clip.mp4");
    cut(&media("mp4/film.mp4"), "2", &[], &clip);
    let begun = std::time::Instant::now();
    finish(server.publish(&clip, &server.rtmp_url("live/x"), &[]));
    assert!(begun.elapsed() >= Duration::from_millis(1800), "{:?}", begun.elapsed());
    server.until_ended("live/x", "v0", LIMIT);
    let received = over_hls(&server, "live/x");
    assert_came_through("real time", &Received::of(&clip), &received, Begin::Start);
}

#[test]
fn a_loop_goes_on_in_time_and_misses_nothing_at_the_seam() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for kind in ["mp4", "flv"] {
            let (server, folder) = (&server, folder.path());
            scope.spawn(move || loops(server, kind, folder));
        }
    });
}

fn loops(server: &Server, kind: &str, folder: &Path) {
    let clip = folder.join(format!("clip.{kind}"));
    cut(&media("mp4/film.mp4"), "2", &[], &clip);
    let source = Received::of(&clip);
    let stream = format!("live/{kind}");
    let mut publisher = server.publish(&clip, &server.rtmp_url(&stream), &["--loop"]);
    until_ready(server, &stream);
    server.until_listed(&stream, &["v0", "a0"], 3, LIMIT);
    assert!(publisher.is_running());
    drop(publisher);
    let playlist = server.until_ended(&stream, "v0", LIMIT);
    assert_eq!(count(&playlist, "#EXT-X-DISCONTINUITY"), 0, "{playlist}");

    let received = over_hls(server, &stream);
    for (of, frame) in [("video", 1.0 / 30.0), ("audio", 1024.0 / 48_000.0)] {
        // Silence fills the time by which the file's audio is shorter.
        let sounds = |unit: &&Unit| unit.md5 != SILENCE;
        let sent = source.only(of);
        let got: Vec<&Unit> = received.only(of).iter().filter(sounds).collect();
        assert!(got.len() > 2 * sent.len(), "{kind}: {} {of} units", got.len());
        for (index, (got, sent)) in got.iter().zip(sent.iter().cycle()).enumerate() {
            assert_eq!(got.md5, sent.md5, "{kind}: {of} unit {index}");
        }
        for (index, pair) in got.windows(2).enumerate() {
            // The tracks of a file differ a little in length, so one of them pauses.
            let step = pair[1].dts - pair[0].dts;
            assert!(step > 0.0 && step < 3.0 * frame, "{kind}: {of} {index}: {step} s");
        }
    }
}
