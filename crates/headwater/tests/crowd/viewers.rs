//! A thousand viewers, and a few among them that do not read.

use std::time::Instant;

use testkit::http::Client;
use testkit::{Server, SlowReader};

use crate::support::{BINARY, LIMIT, connect, metric, put, start, writes};

const VIEWERS: usize = 1000;

/// The slow viewers stand still with megabytes to come while the server serves a thousand others.
#[test]
fn slow_viewers_among_a_thousand() {
    let server = start("[http]\nsend_timeout = \"10m\"\n");
    let (_, bytes) = put(&server, "file.bin", 200_000);
    put(&server, "long.bin", 50_000_000);
    let slow = [0, 2000].map(|rate| SlowReader::get(server.http, "/vod/long.bin", rate).unwrap());
    // Another slow viewer with many pipelined requests.
    let requests = "GET /vod/file.bin HTTP/1.1\r\nHost: h\r\n\r\n".repeat(300);
    let pipelined = SlowReader::start(server.http, requests.as_bytes(), 0).unwrap();
    let mut watch = connect(&server);
    while metric(&mut watch, "headwater_http_requests_total") < 3 {
        std::thread::yield_now();
    }
    let mut viewers: Vec<Client> = (0..VIEWERS).map(|_| connect(&server)).collect();
    for viewer in &mut viewers {
        viewer.send("GET", "/vod/file.bin", &[], b"").unwrap();
    }
    for viewer in &mut viewers {
        let answer = viewer.receive().unwrap();
        assert!(answer.status() == 200 && answer.body == bytes, "{} bytes", answer.body.len());
    }
    for viewer in slow.into_iter().chain([pipelined]) {
        assert!(!viewer.is_ended() && viewer.received() < 1_000_000, "{} read", viewer.received());
    }
}

/// All viewers that wait for a part get the same playlist and the same part, at once.
#[test]
fn a_thousand_waiting_viewers_get_the_same_part_at_once() {
    // The publisher is on one of the event loops. Viewers are on both.
    let configuration =
        "[live]\npart_target = \"200ms\"\nsegment_target = \"500ms\"\nwindow = \"5m\"\n";
    let server = Server::configured(BINARY, configuration, ["--workers", "2"]);
    let publisher = server.publish(testkit::demo_clip(), &server.rtmp_url("live/x"), &["--loop"]);
    let path = "/live/x/v0/media.m3u8";
    let playlist = server.get_until(path, LIMIT, |response| response.status() == 200);
    let text = playlist.text();
    let first = text.lines().find_map(|line| line.strip_prefix("#EXT-X-MEDIA-SEQUENCE:")).unwrap();
    let complete = text.lines().filter(|line| line.ends_with(".m4s")).count() as u64;
    let open = first.parse::<u64>().unwrap() + complete;

    // The next segment, which has no part yet.
    let msn = open + 1;
    let mut viewers: Vec<Client> = (0..VIEWERS).map(|_| connect(&server)).collect();
    // One viewer asks many times and never reads.
    let request = format!("GET {path}?_HLS_msn={msn} HTTP/1.1\r\nHost: h\r\n\r\n").repeat(200);
    let slow = SlowReader::start(server.http, request.as_bytes(), 0).unwrap();
    for viewer in &mut viewers {
        viewer.send("GET", &format!("{path}?_HLS_msn={msn}&_HLS_part=0"), &[], b"").unwrap();
    }
    let (begun, before) = (Instant::now(), writes(&server));
    let mut tags = std::collections::BTreeMap::new();
    for viewer in &mut viewers {
        let answer = viewer.receive().unwrap();
        assert_eq!(answer.status(), 200, "{answer:?}");
        let tag = answer.header("ETag").unwrap().to_owned();
        let known = tags.entry(tag).or_insert_with(|| answer.body.clone());
        assert!(*known == answer.body, "two playlists of one version");
    }
    // A part wakes the other event loop once, with one write to its descriptor. One write for each
    // waiting viewer would be some 500 writes five times a second.
    let (writes, seconds) = (writes(&server) - before, begun.elapsed().as_secs_f64().max(1.0));
    assert!((writes as f64) < 500.0 * seconds, "{writes} writes in {seconds} s");
    // Viewers that asked late may have seen a later state of the track.
    assert!(tags.len() < VIEWERS / 10, "{} versions for {VIEWERS} viewers", tags.len());
    let part = viewers[0].get(&format!("/live/x/v0/{msn}.0.m4s"), &[]);
    assert_eq!(part.status(), 200);
    for viewer in &mut viewers[1..] {
        viewer.send("GET", &format!("/live/x/v0/{msn}.0.m4s"), &[], b"").unwrap();
    }
    for viewer in &mut viewers[1..] {
        assert!(viewer.receive().unwrap().body == part.body);
    }
    assert!(!slow.is_ended());
    drop(publisher);
}
