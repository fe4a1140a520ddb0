//! Answers that cost something to make are made once a second, however often they are asked for.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use testkit::http::Client as Http;

use crate::support::{Client, LIMIT, Origin};

/// Asks again and again for what is another each time it is made, and counts how often it was. `before` is
/// done before each request.
fn renderings(origin: &Origin, path: &str, mut before: impl FnMut()) -> (usize, Duration) {
    let mut http = Http::connect(origin.http, LIMIT).expect("the server listens");
    let mut answers = HashSet::new();
    let begun = Instant::now();
    let mut asked = 0;
    // So often, and until a second one was seen: it is made again, too.
    while asked < 50 || answers.len() < 2 {
        assert!(begun.elapsed() < LIMIT, "{} after {asked} requests", answers.len());
        before();
        http.send("GET", path, &[], b"").expect("the server is there");
        let answer = http.receive().expect("the server answers");
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        answers.insert(answer.body);
        asked += 1;
    }
    (answers.len(), begun.elapsed())
}

/// The first of so many renderings is as old as the first request at most, and between one and the next is
/// a second: however fast or slow the machine is, there were no more than that.
#[track_caller]
fn assert_once_a_second(path: &str, (renderings, within): (usize, Duration)) {
    let most = 1 + within.as_secs();
    assert!(renderings as u64 <= most, "{path}: {renderings} renderings in {within:?}");
}

/// `/metrics` says when it was made.
#[test]
fn metrics_are_rendered_once_a_second() {
    let origin = Origin::start("");
    assert_once_a_second("/metrics", renderings(&origin, "/metrics", || {}));
}

/// Before each request another stream begins, which the list would tell of.
#[test]
fn the_list_of_streams_is_rendered_once_a_second() {
    let origin = Origin::start("");
    let mut publishers = Vec::new();
    let path = "/api/v1/streams";
    let counted = renderings(&origin, path, || {
        let name = format!("live/s{}", publishers.len());
        publishers.push(Client::publish(origin.rtmp, &name));
    });
    assert_once_a_second(path, counted);
}

/// Likewise what is said of one stream, which has another rendition before each request.
#[test]
fn a_stream_is_described_once_a_second() {
    let origin = Origin::start("");
    let mut publishers = vec![Client::publish(origin.rtmp, "live/x")];
    let path = "/api/v1/streams/live/x";
    let counted = renderings(&origin, path, || {
        let name = format!("live/x?rendition=r{}", publishers.len());
        publishers.push(Client::publish(origin.rtmp, &name));
    });
    assert_once_a_second(path, counted);
}
