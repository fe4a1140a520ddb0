//! Expensive answers are made once a second, however often clients ask for them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use testkit::http::Client as Http;

use testkit::rtmp::Client;

use crate::support::{LIMIT, Origin};

/// Asks repeatedly for an answer that differs each time it is made, and counts the different ones.
/// Calls `before` before each request.
fn renderings(origin: &Origin, path: &str, mut before: impl FnMut()) -> (usize, Duration) {
    let mut http = Http::connect(origin.http, LIMIT).expect("the server listens");
    let mut answers = HashSet::new();
    let begun = Instant::now();
    let mut asked = 0;
    // At least this often, and until a second answer was seen: it must be made again, too.
    while asked < 50 || answers.len() < 2 {
        assert!(begun.elapsed() < LIMIT, "{} after {asked} requests", answers.len());
        before();
        let answer = http.get(path, &[]);
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        answers.insert(answer.body);
        asked += 1;
    }
    (answers.len(), begun.elapsed())
}

/// The first answer is no older than the first request, and between two answers is a second.
/// However fast or slow the machine is, there are no more than that.
#[track_caller]
fn assert_once_a_second(path: &str, (renderings, within): (usize, Duration)) {
    let most = 1 + within.as_secs();
    assert!(renderings as u64 <= most, "{path}: {renderings} renderings in {within:?}");
}

/// `/metrics` contains the time at which it was made.
#[test]
fn metrics_are_rendered_once_a_second() {
    let origin = Origin::start("");
    assert_once_a_second("/metrics", renderings(&origin, "/metrics", || {}));
}

/// Before each request another stream begins, which a new list would contain.
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

/// The same for the description of a stream, which gets another rendition before each request.
#[test]
fn a_stream_is_described_once_a_second() {
    let origin = Origin::start("");
    let _publisher = Client::publish(origin.rtmp, "live/x");
    let path = "/api/v1/streams/live/x";
    let (mut begun, mut renditions) = (0, Vec::new());
    let counted = renderings(&origin, path, || {
        // A stream has at most 16 publishers, and who left is counted until the server notices.
        if renditions.len() == 8 {
            renditions.clear();
            origin.get_until("/api/v1/streams/live/x", LIMIT, |answer| {
                answer.text().matches("\"protocol\"").count() == 1
            });
        }
        renditions.push(Client::publish(origin.rtmp, &format!("live/x?rendition=r{begun}")));
        begun += 1;
    });
    assert_once_a_second(path, counted);
}
