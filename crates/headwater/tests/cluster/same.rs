//! Every node answers with the same bytes.

use std::collections::BTreeMap;
use std::process::Command;

use testkit::{Nats, Program, Server, eventually, http, push};

use crate::support::{LIMIT, clip, node, publish};

/// The objects that a playlist names: segments, parts and headers.
fn named(playlist: &str) -> Vec<String> {
    let uris = playlist
        .split("URI=\"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let lines = playlist
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::to_owned);
    uris.chain(lines).filter(|name| !name.contains("media.m3u8")).collect()
}

/// What each node answers for a path, once it is the same on all.
fn same(nodes: &[&Server], path: &str) -> String {
    let mut text = String::new();
    eventually(LIMIT, path, || {
        let mut answers = nodes.iter().map(|node| http::get(node.http, path));
        let first = answers.next().unwrap();
        text = first.text().to_owned();
        first.status() == 200
            && answers.all(|answer| {
                answer.text() == text && answer.header("etag") == first.header("etag")
            })
    });
    text
}

#[test]
fn each_object_of_a_stream_is_the_same_on_every_node() {
    let nats = Nats::start();
    let nodes = [node(&nats, "a"), node(&nats, "b"), node(&nats, "c")];
    let nodes: Vec<_> = nodes.iter().collect();
    let publisher = publish(nodes[0], &clip(), "live/x.y/z");
    let path = |object: &str| format!("/live/x.y/z/{object}");
    // Each node has its copy while the stream is young, so each has followed it for some segments.
    for node in &nodes {
        let playlist = path("v0/media.m3u8");
        eventually(LIMIT, "three segments", || {
            http::get(node.http, &playlist).text().matches("#EXTINF").count() >= 3
        });
    }
    let index = same(&nodes, &path("index.m3u8"));
    assert!(index.contains("v0/media.m3u8") && index.contains("a0/media.m3u8"), "{index}");
    same(&nodes, &path("manifest.mpd"));
    let mut compared = BTreeMap::new();
    for track in ["v0", "a0"] {
        let playlist = same(&nodes, &path(&format!("{track}/media.m3u8")));
        assert!(
            playlist.contains("#EXT-X-PART:") && playlist.contains("PROGRAM-DATE-TIME"),
            "{playlist}"
        );
        for name in named(&playlist) {
            // The part that a preload hint names is still to come: the answer waits for it.
            let object = path(&format!("{track}/{name}"));
            let bytes: Vec<_> = nodes.iter().map(|node| http::get(node.http, &object)).collect();
            assert!(bytes.iter().all(|answer| answer.status() == 200), "{object}");
            assert!(bytes.iter().all(|answer| answer.body == bytes[0].body), "{object}");
            compared.insert(object, bytes[0].body.len());
        }
    }
    assert!(compared.len() > 20, "{compared:?}");
    // Push has the same bytes, on a node that has a copy.
    let mut viewer = push::Client::connect(nodes[2].http, &path("push?latency=segment"));
    let pushed: Vec<_> = (0..8).map(|_| viewer.until(|frame| frame.opcode == 2).payload).collect();
    let playlist = http::get(nodes[0].http, &path("v0/media.m3u8"));
    let whole = |name: &&str| name.ends_with(".m4s") && name.matches('.').count() == 1;
    let is_pushed = |name: &&str| {
        let segment = http::get(nodes[0].http, &path(&format!("v0/{name}"))).body;
        pushed.contains(&segment)
    };
    let found = playlist.text().lines().filter(whole).filter(is_pushed).count();
    assert!(found >= 2, "{found} of {}", pushed.len());
    // Players by RTMP, and by endless files, there as well.
    let sources = ["live.flv", "live.mp4"].map(|file| nodes[2].url(&path(file)));
    for source in sources.into_iter().chain([nodes[2].rtmp_url("live/x.y/z")]) {
        let mut player = Command::new("ffmpeg");
        player.args([
            "-v",
            "error",
            "-i",
            &source,
            "-map",
            "0:v",
            "-frames:v",
            "50",
            "-f",
            "framemd5",
            "-",
        ]);
        let played = Program::spawn(&mut player).wait(LIMIT);
        let frames = String::from_utf8(played.stdout).unwrap();
        let shown = frames.lines().filter(|line| line.starts_with("0,")).count();
        assert_eq!(shown, 50, "{source}: {}", played.stderr);
    }
    // A name that nobody has is unknown everywhere.
    assert!(
        nodes.iter().all(|node| http::get(node.http, "/live/other/index.m3u8").status() == 404)
    );
    drop(publisher);
}

#[test]
fn a_name_is_published_once_in_the_cluster() {
    let nats = Nats::start();
    let (a, b) = (node(&nats, "a"), node(&nats, "b"));
    let clip = clip();
    let mut first = publish(&a, &clip, "live/x");
    eventually(LIMIT, "b has it", || http::get(b.http, "/live/x/index.m3u8").status() == 200);
    let second = publish(&b, &clip, "live/x").wait(LIMIT);
    assert!(!second.status.success());
    assert!(b.log().contains("already published"), "{}", b.log());
    assert!(first.is_running());
}

#[test]
fn a_stream_whose_node_has_gone_is_unknown_in_the_end() {
    let nats = Nats::start();
    let (a, b) = (node(&nats, "a"), node(&nats, "b"));
    let publisher = publish(&a, &clip(), "live/x");
    let status = |path: &str| http::get(b.http, path).status();
    eventually(LIMIT, "b has it", || status("/live/x/v0/media.m3u8") == 200);
    drop(publisher);
    drop(a);
    // What b has of it can still be watched, and another name is unknown.
    assert_eq!(status("/live/x/v0/media.m3u8"), 200);
    assert_eq!(status("/live/y/index.m3u8"), 404);
    eventually(LIMIT, "it is gone", || status("/live/x/index.m3u8") == 404);
}
