//! The NATS server ends, and comes back without what it held in memory.

use std::time::{Duration, Instant};

use testkit::{Nats, eventually, http, playlist};

use crate::support::{LIMIT, clip, node, publish};

/// The number of the newest segment in a playlist of video.
fn newest(text: &str) -> u64 {
    playlist::numbers(text).last().copied().unwrap_or(0)
}

#[test]
fn without_nats_a_node_serves_its_own_and_copies_go_on_afterwards() {
    let mut nats = Nats::start();
    let (a, b, c) = (node(&nats, "a"), node(&nats, "b"), node(&nats, "c"));
    let publisher = publish(&a, &clip(), "live/x");
    let playlist = "/live/x/v0/media.m3u8";
    eventually(LIMIT, "b has it", || http::get(b.http, playlist).status() == 200);
    nats.kill(0);
    let before = newest(http::get(a.http, playlist).text());
    // Longer than a lease lasts, and than nodes remember who is silent.
    eventually(LIMIT, "a goes on", || newest(http::get(a.http, playlist).text()) >= before + 7);
    // What b has, it has; nobody knows whether others have what it has not.
    assert_eq!(http::get(b.http, playlist).status(), 200);
    assert!(newest(http::get(b.http, playlist).text()) <= before + 1);
    let unknown = http::get(c.http, playlist);
    assert_eq!((unknown.status(), unknown.header("retry-after")), (503, Some("1")));
    nats.run(0);
    let back = Instant::now();
    eventually(LIMIT, "b goes on", || {
        let (a, b) = (http::get(a.http, playlist), http::get(b.http, playlist));
        newest(b.text()) > before + 7 && a.text() == b.text()
    });
    eventually(LIMIT, "c has it", || http::get(c.http, playlist).status() == 200);
    assert!(back.elapsed() < LIMIT + Duration::from_secs(60));
    // The publisher was not disturbed, and no discontinuity was told.
    assert!(!http::get(b.http, playlist).text().contains("DISCONTINUITY\n"));
    assert!(!a.whole_log().contains("publisher left"), "{}", a.log());
    drop(publisher);
}
