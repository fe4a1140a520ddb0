//! What ffmpeg makes for viewers by WHEP while they watch: sound, and pictures without B-frames.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::{Program, Server, eventually};

use crate::support::{LIMIT, OFFER, aiortc, find, post, said, server};

/// Publishes a clip again and again, and waits until viewers find it.
#[track_caller]
fn publish(server: &Server, clip: &Path, stream: &str) -> Program {
    let to = server.rtmp_url(&format!("live/{stream}"));
    let publisher = server.publish(clip, &to, &["--loop"]);
    let playlist = format!("/live/{stream}/index.m3u8");
    server.get_until(&playlist, LIMIT, |answer| answer.status() == 200);
    publisher
}

/// Makes a clip with B-frames and AAC. It is white, and there is a tone, in the first quarter of each
/// second.
#[track_caller]
fn flashes(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("flashes.mp4");
    let white = "drawbox=color=white:t=fill:enable='lt(mod(t,1),0.25)'";
    let picture = format!("color=c=black:s=320x180:r=24:d=12,{white}");
    let sound = "aevalsrc='0.5*sin(2*PI*440*t)*lt(mod(t,1),0.25)':s=44100:d=12";
    let encode =
        "-c:v libx264 -preset ultrafast -bf 2 -b_strategy 0 -g 48 -pix_fmt yuv420p -c:a aac";
    testkit::ffmpeg(
        ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", sound]
            .into_iter()
            .chain(encode.split_ascii_whitespace())
            .chain([path.to_str().unwrap()]),
    );
    path
}

/// Ids of the companions' processes that the log has named.
fn companions(server: &Server) -> Vec<u32> {
    let log = server.log();
    let started = log.lines().filter_map(|line| line.split("companion: ffmpeg ").nth(1));
    let started = started.filter(|line| line.contains(" for WebRTC viewers"));
    started.filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}

/// When frames of this level begin after others, in seconds of the clock of the sender's reports.
fn begins(played: &Value, least: f64) -> Vec<f64> {
    let start = played["start"].as_f64().unwrap();
    let frames = played["seen"].as_array().unwrap().iter();
    let mut frames = frames.map(|frame| (frame[0].as_f64().unwrap(), frame[1].as_f64().unwrap()));
    let mut was_on = true;
    std::iter::from_fn(|| {
        frames.by_ref().find_map(|(time, level)| {
            let is_on = level > least;
            (!std::mem::replace(&mut was_on, is_on) && is_on).then_some(start + time)
        })
    })
    .collect()
}

#[test]
fn b_frames_and_aac_are_played_with_picture_and_sound_in_step() {
    let server = server("");
    let folder = tempfile::tempdir().unwrap();
    let _publisher = publish(&server, &flashes(folder.path()), "x");
    let player = aiortc("hear", &server.url("/live/x/whep"));
    server.log_line(LIMIT, |line| line.contains("makes audio, and video without B-frames"));

    // All viewers share it, and nobody else knows of it.
    let another = post(&server, "/live/x/whep", OFFER);
    assert_eq!(another.status(), 201, "{}", another.text());
    for manifest in ["index.m3u8", "manifest.mpd"] {
        let manifest = server.get(&format!("/live/x/{manifest}")).text().to_owned();
        assert!(manifest.contains("mp4a.40.2") && !manifest.contains("opus"), "{manifest}");
        for other in ["v1/media", "a1/media", "id=\"v1\"", "id=\"a1\""] {
            assert!(!manifest.contains(other), "{manifest}");
        }
    }
    let known = server.get("/api/v1/streams/live/x").text().to_owned();
    assert!(known.contains("\"mp4a.40.2\"") && known.contains("\"v0\""), "{known}");
    assert!(!known.contains("opus") && !known.contains("\"v1\""), "{known}");

    let played = said(player);
    let (video, audio) = (find(&played, "video"), find(&played, "audio"));
    // aiortc fails on no picture, but it would show B-frames in the wrong order.
    let (white, tones) = (begins(video, 128.0), begins(audio, 1000.0));
    assert!(white.len() >= 2 && tones.len() >= 2, "{white:?} {tones:?}");
    for time in &white {
        let nearest = tones.iter().map(|tone| (tone - time).abs()).fold(f64::MAX, f64::min);
        // Sound comes in packets of 20 ms.
        let is_outside = *time < tones[0] || tones.last() < Some(time);
        assert!(nearest < 0.05 || is_outside, "{white:?} {tones:?}");
    }
    // Packets of sound follow each other without a gap. On a busy machine some may get lost.
    let times = audio["seen"].as_array().unwrap().windows(2);
    let (even, uneven): (Vec<_>, Vec<_>) = times.partition(|pair| {
        let apart = pair[1][0].as_f64().unwrap() - pair[0][0].as_f64().unwrap();
        (apart - 0.02).abs() < 0.0001
    });
    assert!(uneven.len() * 4 < even.len(), "{audio}");
    let processes = companions(&server);
    assert_eq!(processes.len(), 1, "{}", server.log());
    // It ends after the last viewer.
    eventually(LIMIT, "no companion", || server.metric("headwater_ladders") == 0);
    server.log_line(LIMIT, |line| line.contains("companion: it has ended"));
    let is_there = || Path::new(&format!("/proc/{}", processes[0])).exists();
    eventually(LIMIT, "no process", || !is_there());
}

#[test]
fn aac_of_rtmp_is_heard_beside_the_published_video() {
    let server = server("");
    let _publisher = publish(&server, &testkit::clip("mp4/film.mp4"), "x");
    let played = said(aiortc("hear", &server.url("/live/x/whep")));
    server.log_line(LIMIT, |line| line.contains("makes audio for WebRTC viewers"));
    let (video, audio) = (find(&played, "video"), find(&played, "audio"));
    assert!(video["frames"].as_u64().unwrap() >= 100, "{video}");
    let levels = audio["seen"].as_array().unwrap().iter().map(|frame| frame[1].as_f64().unwrap());
    let loud = levels.filter(|level| *level > 50.0).count();
    assert!(loud >= 50, "{audio}");
    assert!(!server.log().contains("Could not find codec parameters"), "{}", server.log());
}

#[test]
fn without_transcoding_rtmp_is_played_without_its_sound() {
    let server = server("[webrtc]\ntranscode = false");
    let _publisher = publish(&server, &testkit::clip("mp4/film.mp4"), "x");
    let played = said(aiortc("see", &server.url("/live/x/whep")));
    assert!(find(&played, "video")["frames"].as_u64().unwrap() >= 60, "{played:?}");
    assert_eq!(find(&played, "audio")["frames"], 0);
    server.log_line(LIMIT, |line| line.contains("for WebRTC viewers: webrtc.transcode = false"));
}

#[test]
fn without_ffmpeg_or_a_place_there_is_video_and_a_reason() {
    let clip = testkit::clip("mp4/film.mp4");
    let refused = |server: &Server, stream: &str, reason: &str| {
        let answer = post(server, &format!("/live/{stream}/whep"), OFFER);
        assert_eq!(answer.status(), 201, "{}", answer.text());
        let log = server.log_line(LIMIT, |line| line.contains(reason));
        assert!(log.contains("nothing is made for WebRTC viewers"), "{log}");
    };
    let none = server("[ladder]\nffmpeg = \"/no/ffmpeg\"");
    let _publisher = publish(&none, &clip, "x");
    refused(&none, "x", "there is no program /no/ffmpeg");

    let one = server("[ladder]\nmax_streams = 1");
    let _publishers = ["x", "y"].map(|stream| publish(&one, &clip, stream));
    // This viewer holds the place. It has enough only when y has been refused.
    let _viewer = aiortc("hold", &one.url("/live/x/whep"));
    one.log_line(LIMIT, |line| line.contains("makes audio for WebRTC viewers"));
    refused(&one, "y", "ladder.max_streams");
}

#[test]
fn an_ffmpeg_that_dies_is_started_again() {
    let server = server("");
    let _publisher = publish(&server, &testkit::clip("mp4/film.mp4"), "x");
    let player = aiortc("hear", &server.url("/live/x/whep"));
    eventually(LIMIT, "a companion", || companions(&server).len() == 1);
    let first = companions(&server)[0];
    Program::output(Command::new("kill").args(["-KILL", &first.to_string()]), LIMIT);
    eventually(LIMIT, "another", || companions(&server).len() == 2);
    // What this one hears comes from the second.
    let played = said(aiortc("hear", &server.url("/live/x/whep")));
    assert!(find(&played, "audio")["frames"].as_u64().unwrap() >= 100, "{played:?}");
    drop(player);
    assert_eq!(server.metric("headwater_ladders_failed_total"), 1);
}
