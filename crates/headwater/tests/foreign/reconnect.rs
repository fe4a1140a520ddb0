//! A publisher that is lost and comes back. Viewers stay and are told what changed.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{
    FROM_START, LIMIT, Received, count, cut, finish, media, play, publish, server_with, until_ready,
};

const STREAM: &str = "live/back";

fn maps(playlist: &str) -> Vec<&str> {
    playlist.lines().filter(|line| line.starts_with("#EXT-X-MAP")).collect()
}

#[test]
fn a_publisher_comes_back_and_its_viewers_stay() {
    let server = server_with("window = \"5m\"\nreconnect = \"15s\"\nsilence = \"20s\"\n");
    // It does not come to its end before the publisher is ended.
    let file = media("mp4/minute.mp4");
    let source = Received::of(&file);
    let url = server.rtmp_url(STREAM);

    let first = publish(&file, &url, "1");
    until_ready(&server, STREAM);
    server.until_listed(STREAM, &["v0", "a0"], 1, LIMIT);
    let viewer = play(&server.url(&format!("/{STREAM}/index.m3u8")), FROM_START);
    server.until_listed(STREAM, &["v0", "a0"], 2, LIMIT);
    // Dropping kills the program by its id.
    drop(first);
    // The name is free once the server has seen the connection's end.
    let state = format!("/api/v1/streams/{STREAM}");
    server.get_until(&state, LIMIT, |r| r.text().contains("offline"));
    finish(publish(&file, &url, "10"));

    for track in ["v0", "a0"] {
        let playlist = server.until_ended(STREAM, track, LIMIT);
        let lines: Vec<&str> = playlist.lines().collect();
        assert_eq!(count(&playlist, "#EXT-X-DISCONTINUITY"), 1, "{track}: {playlist}");
        assert!(lines.contains(&"#EXT-X-DISCONTINUITY"), "{track}: {playlist}");
        assert_eq!(maps(&playlist).len(), 1, "{track}: {playlist}");
    }
    // The viewer that was there from the start has the media before the loss and all media after
    // it.
    let received = Received::by(viewer);
    for kind in ["video", "audio"] {
        let (sent, got) = (source.only(kind), received.only(kind));
        let before = got.len().checked_sub(sent.len()).unwrap_or_else(|| {
            panic!("{} {kind} units, {} were published the second time", got.len(), sent.len())
        });
        assert!(before > 0 && before < sent.len(), "{before} {kind} units before the loss");
        for (index, (got, sent)) in got.iter().zip(sent[..before].iter().chain(sent)).enumerate() {
            assert_eq!(got.md5, sent.md5, "{kind} unit {index}, {before} before the loss");
        }
        let steps = got.windows(2).map(|pair| pair[1].dts - pair[0].dts);
        assert!(steps.clone().all(|step| step > 0.0), "{kind}: time runs back");
    }
}

/// Number, Discontinuity Sequence Number and header of every complete segment (RFC 8216bis
/// 4.4.4.3).
fn segments(playlist: &str) -> Vec<(String, u64, String)> {
    let (mut sequence, mut map) = (0, String::new());
    let mut found = Vec::new();
    for line in playlist.lines() {
        if let Some(number) = line.strip_prefix("#EXT-X-DISCONTINUITY-SEQUENCE:") {
            sequence = number.parse().unwrap();
        } else if line == "#EXT-X-DISCONTINUITY" {
            sequence += 1;
        } else if line.starts_with("#EXT-X-MAP:") {
            map = line.split('"').nth(1).unwrap().to_owned();
        } else if !line.starts_with('#') && line.ends_with(".m4s") {
            found.push((line.to_owned(), sequence, map.clone()));
        }
    }
    found
}

/// One publication after the other under the same name, at other resolutions. The first leave the
/// window while the last come. A stream that has ended is there as long as its window.
#[test]
fn another_resolution_has_its_own_header_and_numbers_stay_as_the_window_moves() {
    let server = server_with(
        "window = \"12s\"\ntarget_duration = \"1s\"\nsegment_target = \"1s\"\nreconnect = \"15s\"\n",
    );
    let folder = tempfile::tempdir().unwrap();
    let mut clips = Vec::new();
    for (name, from) in
        [("large", "mp4/film.mp4"), ("small", "mp4/minute.mp4"), ("large again", "mp4/film.mp4")]
    {
        let clip = folder.path().join(format!("{name}.mp4"));
        cut(&media(from), "6", &[], &clip);
        clips.push(clip);
    }
    let mut known: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut bytes: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut look = |deadline: Instant| {
        assert!(Instant::now() < deadline, "no end");
        let answer = server.get(&format!("/{STREAM}/v0/media.m3u8"));
        if answer.status() != 200 {
            return false;
        }
        for (uri, sequence, map) in segments(answer.text()) {
            let was = known.entry(uri.clone()).or_insert_with(|| (sequence, map.clone()));
            assert_eq!(*was, (sequence, map.clone()), "{uri} has changed: {}", answer.text());
            for name in [&map, &uri] {
                bytes.entry(name.clone()).or_insert_with(|| {
                    let answer = server.get(&format!("/{STREAM}/v0/{name}"));
                    assert_eq!(answer.status(), 200, "{name}");
                    answer.body
                });
            }
        }
        answer.text().contains("#EXT-X-ENDLIST")
    };
    let deadline = Instant::now() + LIMIT;
    for clip in &clips {
        let mut publisher = server.publish(clip, &server.rtmp_url(STREAM), &[]);
        while publisher.is_running() {
            look(deadline);
            thread::sleep(Duration::from_millis(50));
        }
        finish(publisher);
    }
    while !look(deadline) {
        thread::sleep(Duration::from_millis(50));
    }

    // Each publication has a header. Equal configurations share one. With its header ffmpeg finds
    // in a publication's segments what was published.
    let mut runs: Vec<(u64, String, Vec<u8>)> = Vec::new();
    for (uri, (sequence, map)) in &known {
        if runs.last().is_none_or(|(last, ..)| last != sequence) {
            runs.push((*sequence, map.clone(), bytes[map].clone()));
        }
        let (_, of, run) = runs.last_mut().unwrap();
        assert_eq!(of, map, "{uri}");
        run.extend_from_slice(&bytes[uri]);
    }
    let sequences: Vec<u64> = runs.iter().map(|(sequence, ..)| *sequence).collect();
    assert_eq!(sequences, [0, 1, 2]);
    assert!(runs[0].1 != runs[1].1 && runs[1].1 != runs[2].1, "{known:?}");
    for ((_, _, run), clip) in runs.iter().zip(&clips) {
        let file = folder.path().join("run.mp4");
        std::fs::write(&file, run).unwrap();
        let hashes = |of: &Received| -> Vec<String> {
            of.video().iter().map(|unit| unit.md5.clone()).collect()
        };
        let (received, source) = (Received::of(&file), Received::of(clip));
        assert_eq!(hashes(&received), hashes(&source), "{}", clip.display());
    }
}
