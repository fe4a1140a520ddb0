//! ffmpeg, GStreamer and VLC receive through each manifest what is in the file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use testkit::{Program, Server};

use crate::support::{LIMIT, all_decoded, all_units, decoded, media, server, timed, units};

/// Files of every codec and layout that is packaged.
const TITLES: [&str; 9] = [
    "mp4/film.mp4",
    // moov last, B-frames, 5.1
    "mp4/surround.mp4",
    "mp4/late-index.mp4",
    "mp4/quicktime.mov",
    "mp4/hevc.mp4",
    "mp4/av1.mp4",
    "mp4/opus.mp4",
    // fragmented
    "mp4/fragmented.mp4",
    "mp4/vfr.mp4",
];

/// The same for files of the corpus.
const REAL_TITLES: [&str; 9] = [
    "bbb/bbb_10s_1080p_h264_aac.mp4",
    // moov last, B-frames, 5.1
    "bbb/bbb_30s_480p_51ch_moovend.mp4",
    "film/sintel_trailer_52s_720p_h264_aac.mp4",
    "mp4/rsmpeg_mov_sample_30s_720p.mov",
    "mp4/torchcodec_testsrc2_h265.mp4",
    "mp4/torchcodec_testsrc2_av1_10bit.mp4",
    "mp4/membrane_ref_opus.mp4",
    // fragmented
    "mp4/androidx_sample_with_increasing_timestamps_320w_240h_fragmented.mp4",
    "mp4/mediabunny_cursed-vfr.mp4",
];

/// The kinds of streams a file has, as ffmpeg selects them.
fn streams(file: &Path) -> Vec<&'static str> {
    let packets = testkit::ffprobe_packets(file);
    let has = |kind: &str| packets.iter().any(|packet| packet.kind == kind);
    [("video", "0:v:0"), ("audio", "0:a:0")]
        .into_iter()
        .filter_map(|(kind, map)| has(kind).then_some(map))
        .collect()
}

/// Reads all streams at once through HLS, one by one through DASH: ffmpeg 5.1 stops at the end of
/// the first if it reads several from a manifest.
fn by_manifest(
    manifest: &str,
    maps: &[&str],
    read: impl Fn(&[&str]) -> Vec<Vec<String>>,
) -> Vec<Vec<String>> {
    if manifest == "index.m3u8" {
        return read(maps);
    }
    maps.iter().flat_map(|map| read(&[map])).collect()
}

#[test]
fn ffmpeg_receives_every_access_unit_through_hls_and_dash() {
    receive(&testkit::media_dir(), &TITLES);
}

#[test]
#[ignore = "corpus"]
fn corpus_ffmpeg_receives_every_access_unit_through_hls_and_dash() {
    receive(&testkit::corpus_dir(), &REAL_TITLES);
}

fn receive(root: &Path, titles: &[&str]) {
    let server = server(root);
    for title in titles {
        let file = root.join(title);
        let maps = streams(&file);
        let source = all_units(file.to_str().unwrap(), &maps);
        assert!(source.iter().all(|units| units.len() > 10), "{title}");
        for manifest in ["index.m3u8", "manifest.mpd"] {
            let url = server.url(&format!("/vod/{title}/{manifest}"));
            let got = by_manifest(manifest, &maps, |maps| all_units(&url, maps));
            for ((map, got), source) in maps.iter().zip(&got).zip(&source) {
                assert_eq!(got.len(), source.len(), "{title} {manifest} {map}");
                assert!(got == source, "{title} {manifest} {map}: other access units");
            }
        }
    }
}

#[test]
fn ffmpeg_decodes_the_video_and_audio_of_the_source() {
    // moov last, B-frames, 5.1; HEVC; AV1; Opus; priming hidden by an edit list
    let titles = ["surround-60.mp4", "hevc.mp4", "av1.mp4", "opus.mp4", "short.mp4"];
    decode(&testkit::media_dir().join("mp4"), &titles);
}

#[test]
#[ignore = "corpus"]
fn corpus_ffmpeg_decodes_the_video_and_audio_of_the_source() {
    let titles = [
        // moov last, B-frames, 5.1; HEVC; AV1; Opus; priming hidden by an edit list
        "bbb/bbb_2s_1080p60_51ch.mp4",
        "mp4/torchcodec_testsrc2_h265.mp4",
        "mp4/torchcodec_testsrc2_av1_10bit.mp4",
        "mp4/membrane_ref_opus.mp4",
        "mp4/scuffle_avc_aac.mp4",
    ];
    decode(&testkit::corpus_dir(), &titles);
}

fn decode(root: &Path, titles: &[&str]) {
    let server = server(root);
    // The file's edit list hides the samples that start up the decoder. Segments cannot express
    // that. Without its edit list the file decodes to the same frames, including the priming of the
    // audio.
    let whole = &["-ignore_editlist", "1"];
    for title in titles {
        let file = root.join(title);
        let maps = streams(&file);
        let source = all_decoded(file.to_str().unwrap(), whole, &maps);
        for manifest in ["index.m3u8", "manifest.mpd"] {
            let url = server.url(&format!("/vod/{title}/{manifest}"));
            let got = by_manifest(manifest, &maps, |maps| all_decoded(&url, &[], maps));
            for ((map, got), source) in maps.iter().zip(&got).zip(&source) {
                assert_eq!(got.len(), source.len(), "{title} {manifest} {map}");
                assert!(got == source, "{title} {manifest} {map}: other frames");
            }
        }
    }
}

#[test]
fn audio_and_video_stay_together() {
    // Edit lists that begin within the media of one track, of both, or that delay one.
    let titles = [
        "film.mp4",
        "surround-60.mp4",
        "short.mp4",
        "quicktime.mov",
        "late-sound.mp4",
        "late-pictures.mp4",
        "shorter-sound.mp4",
    ];
    compare_times(&testkit::media_dir().join("mp4"), &titles);
}

#[test]
#[ignore = "corpus"]
fn corpus_audio_and_video_stay_together() {
    let titles = [
        "bbb/bbb_10s_1080p_h264_aac.mp4",
        "bbb/bbb_2s_1080p60_51ch.mp4",
        "mp4/scuffle_avc_aac.mp4",
        "mp4/androidx_bt601.mov",
        "mp4/androidx_edit_list_positive_shift.mp4",
        "mp4/androidx_sample_shorter_audio.mp4",
    ];
    compare_times(&testkit::corpus_dir(), &titles);
}

fn compare_times(root: &Path, titles: &[&str]) {
    let server = server(root);
    for title in titles {
        let source = root.join(title);
        for manifest in ["index.m3u8", "manifest.mpd"] {
            let url = server.url(&format!("/vod/{title}/{manifest}"));
            let shift = |map: &str| {
                let (source, got) = (timed(source.to_str().unwrap(), map), timed(&url, map));
                // Compares the end, because edit lists hide the beginning.
                let (then, md5) = source.last().unwrap();
                let (now, _) = got.iter().rfind(|(_, other)| other == md5).unwrap();
                now - then
            };
            let (a, b) = (shift("0:v:0"), shift("0:a:0"));
            assert!((a - b).abs() < 0.001, "{title} {manifest}: shifted by {a} s and {b} s");
        }
    }
}

/// GStreamer's clients. They write each rendition's bytes to a file, header first.
fn gstreamer(url: &str, demux: &str, pads: [&str; 2], into: [&Path; 2]) -> Program {
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "souphttpsrc", &format!("location={url}"), "!", demux, "name=d"]);
    for (pad, file) in pads.into_iter().zip(into) {
        let location = format!("location={}", file.display());
        command.args([pad, "!", "queue", "!", "filesink", &location]);
    }
    Program::spawn(&mut command)
}

#[test]
fn gstreamer_receives_every_access_unit_through_hls_and_dash() {
    let server = server(&testkit::media_dir());
    let folder = tempfile::tempdir().unwrap();
    for title in [TITLES[0], TITLES[1]] {
        let source = media(title);
        let source = all_units(source.to_str().unwrap(), &["0:v:0", "0:a:0"]);
        for (manifest, demux, pads) in [
            ("index.m3u8", "hlsdemux", ["d.src_0", "d.src_1"]),
            ("manifest.mpd", "dashdemux", ["d.video_00", "d.audio_00"]),
        ] {
            let url = server.url(&format!("/vod/{title}/{manifest}"));
            let files = ["video.mp4", "audio.mp4"].map(|name| folder.path().join(name));
            let player = gstreamer(&url, demux, pads, [&files[0], &files[1]]).wait(LIMIT);
            assert!(player.status.success(), "{title} {manifest}: {}", player.stderr);
            for (file, source) in files.iter().zip(&source) {
                let got = units(file.to_str().unwrap(), "0");
                assert_eq!(got.len(), source.len(), "{title} {manifest} {}", file.display());
                assert!(got == *source, "{title} {manifest} {}", file.display());
                std::fs::remove_file(file).unwrap();
            }
        }
    }
}

/// VLC, which writes what it plays to a transport stream. It refuses to run as root, so it runs as
/// another user.
fn vlc(url: &str, file: &Path) -> Program {
    let sout = format!("#std{{access=file,mux=ts,dst={}}}", file.display());
    let program = ["-u", "nobody", "--", "cvlc", "-q", url, "--sout", &sout, "vlc://quit"];
    let home = file.parent().unwrap();
    Program::spawn(Command::new("runuser").args(program).env("HOME", home))
}

#[test]
fn vlc_plays_through_hls_and_dash() {
    let server = server(&testkit::media_dir());
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let title = TITLES[0];
    let frames = decoded(media(title).to_str().unwrap(), &["-ignore_editlist", "1"], "0:v:0");
    let played = |resource: &str| {
        let file = folder.path().join("played.ts");
        vlc(&server.url(&format!("/vod/{title}{resource}")), &file).wait(LIMIT);
        decoded(file.to_str().unwrap(), &[], "0:v:0")
    };
    // VLC's multiplexer keeps back the last fifth of a second of everything that it plays.
    let from_the_file = played("");
    assert!(frames.starts_with(&from_the_file), "{} frames", from_the_file.len());
    assert!(from_the_file.len() > frames.len() * 9 / 10, "{} frames", from_the_file.len());
    for manifest in ["/index.m3u8", "/manifest.mpd"] {
        let got = played(manifest);
        assert_eq!(got.len(), from_the_file.len(), "{manifest}");
        assert!(got == from_the_file, "{manifest}: other frames");
    }
}

/// Another program opens a title's manifest as a player does.
#[test]
fn gstreamer_plays_without_being_told_how() {
    let server = server(&testkit::media_dir());
    for title in [TITLES[0], "mp4/tracks.mp4"] {
        for manifest in ["index.m3u8", "manifest.mpd"] {
            plays(&server, &format!("/vod/{title}/{manifest}"));
        }
    }
}

fn plays(server: &Server, path: &str) {
    let uri = format!("uri={}", server.url(path));
    let sinks = ["video-sink=fakesink", "audio-sink=fakesink"];
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "playbin3", &uri]).args(sinks);
    let player = Program::spawn(&mut command).wait(LIMIT);
    assert!(player.status.success(), "{path}: {}", player.stderr);
    assert!(!player.stderr.contains("ERROR"), "{path}: {}", player.stderr);
}
