//! Uncommon streams, published by ffmpeg and by `headwater publish`.

use std::path::Path;
use std::thread;

use testkit::{Avc, Server};

use crate::support::{
    Begin, LIMIT, Received, assert_came_through, count, cut, finish, media, over_hls, play,
    publish, server, server_with, until_ready,
};

/// Publishes a file once with each program, as fast as possible, and compares the media received.
fn comes_through(server: &Server, name: &str, file: &Path, track: &str) {
    let source = Received::of(file);
    for (by, fast) in [("ffmpeg", true), ("headwater", false)] {
        let stream = format!("live/{name}-{by}");
        let url = server.rtmp_url(&stream);
        finish(match fast {
            true => publish(file, &url, "1000"),
            false => server.publish(file, &url, &["--fast"]),
        });
        let playlist = server.until_ended(&stream, track, LIMIT);
        assert_eq!(count(&playlist, "#EXT-X-DISCONTINUITY"), 0, "{name} by {by}:\n{playlist}");
        assert_eq!(count(&playlist, "#EXT-X-GAP"), 0, "{name} by {by}:\n{playlist}");
        let name = format!("{name} by {by}");
        assert_came_through(&name, &source, &over_hls(server, &stream), Begin::Start);
    }
}

#[test]
fn b_frames_at_24_frames_per_second() {
    let folder = tempfile::tempdir().unwrap();
    let clip = folder.path().join("sintel.mp4");
    cut(&media("mp4/late-index.mp4"), "20", &[], &clip);
    let source = Received::of(&clip);
    assert!(source.video().iter().any(|unit| unit.pts > unit.dts + 0.04), "no B-frames");
    comes_through(&server(), "sintel", &clip, "v0");
}

#[test]
fn audio_alone() {
    comes_through(&server(), "sound", &media("flv/sound.flv"), "a0");
}

#[test]
fn pictures_alone() {
    let server = server();
    comes_through(&server, "pictures", &media("mp4/pictures-10s.mp4"), "v0");
    comes_through(&server, "short", &media("mp4/pictures-ntsc.mp4"), "v0");
}

#[test]
fn six_channels_at_24_frames_per_second() {
    comes_through(&server(), "surround", &media("mp4/surround.mp4"), "v0");
}

#[test]
fn nal_units_whose_length_takes_two_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.mp4");
    std::fs::write(&file, Avc::of("mp4/pictures-ntsc.mp4").with_two_byte_lengths().mp4()).unwrap();
    comes_through(&server(), "two", &file, "v0");
}

/// ffmpeg 5.1 cannot publish these codecs, because Enhanced RTMP is newer. It reads them from CMAF.
#[test]
fn newer_codecs_come_through_every_delivery_that_carries_them() {
    // On a busy machine a player comes when the publisher has left. Until the stream is over it gets the same.
    let server = server_with("window = \"5m\"\nreconnect = \"20s\"\n");
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for (name, file, track) in [
            ("hevc", "mp4/hevc.mp4", "v0"),
            ("hevc-10s", "mp4/hevc-10s.mp4", "v0"),
            ("av1", "mp4/av1.mp4", "v0"),
            ("av1-aac", "mp4/av1-aac.mp4", "v0"),
            ("opus", "mp4/opus.mp4", "a0"),
        ] {
            let (server, clip) = (&server, folder.path().join(format!("{name}.mp4")));
            cut(&media(file), "2", &[], &clip);
            scope.spawn(move || newer_codec(server, name, &clip, track));
        }
    });
}

fn newer_codec(server: &Server, name: &str, file: &Path, track: &str) {
    let stream = format!("live/{name}");
    let source = Received::of(file);
    let url = |path: &str| server.url(&format!("/{stream}/{path}"));
    let publisher = server.publish(file, &server.rtmp_url(&stream), &[]);
    until_ready(server, &stream);
    let mp4 = play(&url("live.mp4"), &[]);
    finish(publisher);
    server.until_ended(&stream, track, LIMIT);
    let name = |by: &str| format!("{name} by {by}");
    let hls = over_hls(server, &stream);
    assert_came_through(&name("HLS"), &source, &hls, Begin::Start);
    assert_came_through(&name("live.mp4"), &source, &Received::by(mp4), Begin::Keyframe);
    let dash = Received::by(play(&url("manifest.mpd"), &[]));
    assert_came_through(&name("DASH"), &source, &dash, Begin::Start);
}

/// The same with real files.
#[test]
#[ignore = "corpus"]
fn corpus_awkward_streams_come_through() {
    let server = server();
    let real = |name: &str| testkit::corpus_dir().join(name);
    let folder = tempfile::tempdir().unwrap();
    let clip = folder.path().join("sintel.mp4");
    cut(&real("film/sintel_trailer_52s_720p_h264_aac.mp4"), "20", &[], &clip);
    for (name, file, track) in [
        ("sintel", clip, "v0"),
        ("sound", real("flv/membrane_bun33s_audio.flv"), "a0"),
        ("pictures", real("mp4/membrane_ref_video.mp4"), "v0"),
        ("short", real("mp4/androidx_sample_video_only.mp4"), "v0"),
        ("surround", real("bbb/bbb_30s_480p_51ch_moovend.mp4"), "v0"),
        ("two", real("mp4/androidx_sample_2_byte_NAL_length.mp4"), "v0"),
    ] {
        comes_through(&server, name, &file, track);
    }
    thread::scope(|scope| {
        for (name, file, track) in [
            ("hevc", "mp4/torchcodec_testsrc2_h265.mp4", "v0"),
            ("hevc-10s", "mp4/membrane_ref_video_hevc.mp4", "v0"),
            ("av1", "mp4/androidx_sample_with_av1c.mp4", "v0"),
            ("av1-aac", "mp4/androidx_sample_with_colr_mdcv_and_clli.mp4", "v0"),
            ("opus", "mp4/membrane_ref_opus.mp4", "a0"),
        ] {
            let (server, clip) = (&server, folder.path().join(format!("{name}.mp4")));
            cut(&real(file), "2", &[], &clip);
            scope.spawn(move || newer_codec(server, name, &clip, track));
        }
    });
}
