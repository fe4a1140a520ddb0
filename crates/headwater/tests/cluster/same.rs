//! Every node answers with the same bytes.

use std::collections::BTreeMap;
use std::process::Command;

use testkit::{Nats, Program, Server, eventually, hashes_so_far, http, playlist, push};

use crate::support::{LIMIT, clip, is_unknown, node, publish};

/// The objects of a playlist that are there: segments, parts and headers.
fn named(playlist: &str) -> Vec<String> {
    let hint = playlist::uris(playlist, HINT).next();
    let uris = playlist::uris(playlist, "#").filter(|uri| Some(*uri) != hint);
    let media = uris.chain(playlist::listed(playlist)).filter(|name| !name.contains("media.m3u8"));
    media.map(str::to_owned).collect()
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

/// The part that comes next.
const HINT: &str = "#EXT-X-PRELOAD-HINT";

/// Returns how long the object is, if all nodes have it. It is the same on all.
fn length(nodes: &[&Server], object: &str) -> Option<usize> {
    let bytes: Vec<_> = nodes.iter().map(|node| http::get(node.http, object)).collect();
    if bytes.iter().any(|answer| answer.status() != 200) {
        return None;
    }
    assert!(bytes.iter().all(|answer| answer.body == bytes[0].body), "{object}");
    Some(bytes[0].body.len())
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
        node.until_listed("live/x.y/z", &["v0"], 3, LIMIT);
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
            let object = path(&format!("{track}/{name}"));
            let length = length(&nodes, &object).unwrap_or_else(|| panic!("{object} is not there"));
            compared.insert(object, length);
        }
        // The part of a preload hint is still to come: the answer waits for it. Where a node is not run for some
        // seconds, it closes a part early, and the next keyframe may come in place of the hinted part.
        eventually(LIMIT, "a hinted part", || {
            let playlist = http::get(nodes[0].http, &path(&format!("{track}/media.m3u8")));
            let hinted = playlist::uris(playlist.text(), HINT).next().unwrap();
            let object = path(&format!("{track}/{hinted}"));
            length(&nodes, &object).is_some_and(|length| compared.insert(object, length).is_none())
        });
    }
    assert!(compared.len() > 20, "{compared:?}");
    // Push has the same bytes, on a node that has a copy.
    let mut viewer = push::Client::connect(nodes[2].http, &path("push?latency=segment"));
    let pushed: Vec<_> = (0..8).map(|_| viewer.until(|frame| frame.opcode == 2).payload).collect();
    let playlist = http::get(nodes[0].http, &path("v0/media.m3u8"));
    let is_pushed = |name: &&str| {
        let segment = http::get(nodes[0].http, &path(&format!("v0/{name}"))).body;
        pushed.contains(&segment)
    };
    let found = playlist::listed(playlist.text()).filter(is_pushed).count();
    assert!(found >= 2, "{found} of {}", pushed.len());
    // Players by RTMP, and by endless files, there as well.
    let sources = ["live.flv", "live.mp4"].map(|file| nodes[2].url(&path(file)));
    for source in sources.into_iter().chain([nodes[2].rtmp_url("live/x.y/z")]) {
        let mut player = Command::new("ffmpeg");
        let args = "-map 0:v -frames:v 50 -f framemd5 -".split(' ');
        player.args(["-v", "error", "-i", &source].into_iter().chain(args));
        let played = Program::spawn(&mut player).wait(LIMIT);
        assert_eq!(hashes_so_far(&played.stdout).len(), 50, "{source}: {}", played.stderr);
    }
    // A name that nobody has is unknown everywhere. A node that has lost NATS for a moment does not know it.
    let is_unknown = |node: &Server| is_unknown(node, "/live/other/index.m3u8");
    eventually(LIMIT, "it is unknown", || nodes.iter().all(|node| is_unknown(node)));
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
    b.log_line(LIMIT, |line| line.contains("already published"));
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
    eventually(LIMIT, "y is unknown", || is_unknown(&b, "/live/y/index.m3u8"));
    eventually(LIMIT, "it is gone", || status("/live/x/index.m3u8") == 404);
}
