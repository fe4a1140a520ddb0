//! The node that has a publisher is killed, and the publisher comes to another.

use std::time::Instant;

use serde_json::Value;
use testkit::playlist::numbers;
use testkit::{Nats, eventually, hashes_so_far, http};

use crate::support::{LIMIT, clip, node, node_with, publish, viewer};

#[test]
fn a_publisher_goes_on_at_a_node_that_has_no_copy() {
    let nats = Nats::start();
    let (a, b, c) = (node(&nats, "a"), node(&nats, "b"), node(&nats, "c"));
    let clip = clip();
    let playlist = "/live/x/v0/media.m3u8";
    let first = publish(&a, &clip, "live/x");
    eventually(LIMIT, "a copy", || http::get(c.http, playlist).status() == 200);
    // A viewer of node c, which follows b later. It stays connected. Nobody watches at b.
    let viewer = viewer(&c.url("/live/x/live.flv"), "500");
    eventually(LIMIT, "some segments", || numbers(http::get(c.http, playlist).text()).len() >= 3);
    let before = *numbers(http::get(c.http, playlist).text()).last().unwrap();
    a.kill();
    drop(first);
    // An encoder tries until it is let in.
    let mut second = publish(&b, &clip, "live/x");
    eventually(LIMIT, "b lets it in", || {
        if !second.is_running() {
            second = publish(&b, &clip, "live/x");
        }
        second.is_running() && b.log().contains("goes on here")
    });
    let mut shown = Vec::new();
    eventually(LIMIT, "c follows b", || {
        let (b, c) = (http::get(b.http, playlist), http::get(c.http, playlist));
        shown = numbers(c.text());
        b.text() == c.text() && shown.last().is_some_and(|newest| *newest >= before + 3)
    });
    assert!(shown.windows(2).all(|pair| pair[1] == pair[0] + 1), "{shown:?}");
    assert!(shown.contains(&before), "{before} is not in {shown:?}");
    let text = http::get(c.http, playlist);
    assert_eq!(text.text().matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{}", text.text());
    let received = viewer.wait(LIMIT);
    assert_eq!(hashes_so_far(&received.stdout).len(), 500, "{}", received.stderr);
}

#[test]
fn a_publisher_that_returns_to_another_node_goes_on_there() {
    let nats = Nats::start();
    let (a, b) = (node(&nats, "a"), node(&nats, "b"));
    let clip = clip();
    let playlist = "/live/x/v0/media.m3u8";
    let first = publish(&a, &clip, "live/x");
    eventually(LIMIT, "a copy", || http::get(b.http, playlist).status() == 200);
    let before = *numbers(http::get(b.http, playlist).text()).last().unwrap();
    drop(first);
    // Node a waits for it, and lets b have the stream.
    let mut second = publish(&b, &clip, "live/x");
    let mut shown = Vec::new();
    eventually(LIMIT, "both have what b goes on with", || {
        if !second.is_running() {
            second = publish(&b, &clip, "live/x");
        }
        let (a, b) = (http::get(a.http, playlist), http::get(b.http, playlist));
        shown = numbers(a.text());
        let is_on = b.text().contains("#EXT-X-DISCONTINUITY\n");
        is_on && a.text() == b.text() && shown.last().is_some_and(|newest| *newest >= before + 3)
    });
    assert!(shown.windows(2).all(|pair| pair[1] == pair[0] + 1), "{shown:?}");
    assert!(shown.contains(&before), "{before} is not in {shown:?}");
    assert!(second.is_running());
}

/// The dates in a playlist, which begin with the oldest.
fn dates(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:")).collect()
}

#[test]
fn the_history_of_a_stream_that_nobody_watches_outlives_its_node() {
    let nats = Nats::start();
    let [a, b, c] = ["a", "b", "c"].map(|name| node_with(&nats, name, "copies = 1\n"));
    let clip = clip();
    let playlist = "/live/x/v0/media.m3u8";
    let first = publish(&a, &clip, "live/x");
    // Only the node of the stream is asked: a question to another would make a copy there.
    let mut copies = Vec::new();
    eventually(LIMIT, "one node keeps a copy", || {
        let told: Value =
            serde_json::from_str(http::get(a.http, "/api/v1/cluster").text()).unwrap();
        let of = told["streams"][0]["copies"].as_array().cloned().unwrap_or_default();
        copies = of.iter().filter_map(|copy| Some(copy["node"].as_str()?.to_owned())).collect();
        !copies.is_empty()
    });
    assert_eq!(copies.len(), 1, "{copies:?}");
    eventually(LIMIT, "some segments", || numbers(http::get(a.http, playlist).text()).len() >= 4);
    let before = http::get(a.http, playlist).text().to_owned();
    let shown = Instant::now();
    eventually(LIMIT, "the copy has what was shown", || {
        let told: Value =
            serde_json::from_str(http::get(a.http, "/api/v1/cluster").text()).unwrap();
        let seconds = |value: &Value| value.as_f64().unwrap();
        // An announcement that came a while ago says how far behind the copy was then.
        let mut nodes = told["nodes"].as_array().unwrap().iter();
        let heard =
            nodes.find(|node| node["name"] == *copies[0]).map(|node| &node["heard_seconds"]);
        let heard = seconds(heard.unwrap());
        let behind = seconds(&told["streams"][0]["copies"][0]["behind_seconds"]);
        shown.elapsed().as_secs_f64() > heard + behind
    });
    let third = if copies[0] == "b" { &c } else { &b };
    a.kill();
    drop(first);
    let mut second = publish(third, &clip, "live/x");
    let mut after = String::new();
    eventually(LIMIT, "the third node goes on", || {
        if !second.is_running() {
            second = publish(third, &clip, "live/x");
        }
        after = http::get(third.http, playlist).text().to_owned();
        // The copy may have had more segments than were shown. Those of the node itself come after them.
        let own = after.split_once("#EXT-X-DISCONTINUITY\n").map(|(_, own)| numbers(own));
        let newest = numbers(&before).last().copied();
        third.log().contains("goes on here") && own.is_some_and(|own| own.last().copied() > newest)
    });
    let (old, new) = (numbers(&before), numbers(&after));
    assert!(new.windows(2).all(|pair| pair[1] == pair[0] + 1), "{new:?}");
    assert!(after.contains("#EXT-X-DISCONTINUITY\n"), "{after}");
    // The copy was behind by a part or two. All segments but the last are there, with their dates.
    assert!(old[..old.len() - 1].iter().all(|number| new.contains(number)), "{old:?} {new:?}");
    assert_eq!(dates(&before)[0], dates(&after)[0]);
    let dates = dates(&after);
    assert!(dates.len() > 1 && dates.is_sorted(), "{dates:?}");
}
