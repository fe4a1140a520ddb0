//! Counts are exact, and times are those that the server causes.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::server::{Server, pattern};
use super::{count, number, run};

/// Checks that every count of a run of `/NAME/…` agrees with the server's own count.
#[track_caller]
fn assert_exact(path: &str, arguments: &[&str], connections: u64) {
    let server = Server::start(&[]);
    let url = server.url(path);
    let mut all = vec![url.as_str(), "--requests", "500"];
    all.extend(arguments);
    let document = run(&all);
    let seen = &server.seen;
    for (path, expected) in [
        ("/counters/requests", 500),
        ("/counters/responses", 500),
        ("/counters/errors", 0),
        ("/statuses/200", 500),
        ("/counters/body_bytes", 500 * 1000),
        ("/counters/head_bytes", seen.head_bytes.load(Relaxed)),
        ("/counters/sent_bytes", seen.request_bytes.load(Relaxed)),
        ("/counters/connections", connections),
        ("/first_byte/count", 500),
        ("/last_byte/count", 500),
    ] {
        assert_eq!(count(&document, path), expected, "{path} in {document:#}");
    }
    assert_eq!(seen.requests.load(Relaxed), 500);
    assert_eq!(seen.connections.load(Relaxed), connections);
}

#[test]
fn a_closed_loop_over_kept_connections() {
    assert_exact("/ok/1000", &["--connections", "7"], 7);
}

#[test]
fn a_closed_loop_on_two_threads() {
    assert_exact("/ok/1000", &["--connections", "5", "--threads", "2"], 5);
}

#[test]
fn a_connection_for_each_request() {
    assert_exact("/ok/1000", &["--connections", "5", "--no-keepalive"], 500);
}

#[test]
fn pipelined_requests() {
    assert_exact("/ok/1000", &["--connections", "3", "--pipeline", "16"], 3);
}

#[test]
fn an_open_loop() {
    // One connection, so that the number of connections does not depend on the machine.
    assert_exact("/ok/1000", &["--rate", "1000", "--connections", "1"], 1);
}

/// A loop that never sleeps does not count as overloaded.
#[test]
fn a_loop_that_never_sleeps() {
    assert_exact("/ok/1000", &["--rate", "1000", "--connections", "1", "--busy-poll"], 1);
    let server = Server::start(&[]);
    let arguments = ["--rate", "20", "--duration", "500ms", "--busy-poll"];
    let document = run(&[&[server.url("/ok/1000").as_str()], &arguments[..]].concat());
    assert_eq!(count(&document, "/counters/responses"), 10);
    let (busy, wall) = ("/generator/workers/0/cpu", "/generator/workers/0/wall");
    assert!(number(&document, busy) < 0.5 * number(&document, wall), "{document:#}");
}

#[test]
fn chunked_bodies() {
    assert_exact("/chunked", &["--connections", "3"], 3);
    assert_exact("/chunked", &["--connections", "2", "--pipeline", "8"], 2);
}

#[test]
fn bodies_that_end_with_the_connection() {
    assert_exact("/until_close/1000", &["--connections", "3"], 500);
    assert_exact("/http10", &["--connections", "3"], 500);
}

#[test]
fn large_bodies_dropped_in_the_kernel_are_counted_to_the_byte() {
    for (path, length) in [("/ok/3000000", 3_000_000), ("/until_close/3000000", 3_000_000)] {
        let server = Server::start(&[]);
        let document = run(&[&server.url(path), "--requests", "20", "--connections", "2"]);
        assert_eq!(count(&document, "/counters/body_bytes"), 20 * length);
        let head = server.seen.head_bytes.load(Relaxed);
        assert_eq!(count(&document, "/counters/head_bytes"), head);
    }
}

#[test]
fn statuses_are_counted_by_what_they_are() {
    let server = Server::start(&["ok", "ok", "ok", "status"]);
    let document = run(&[&server.url("/mix/404"), "--requests", "400"]);
    assert_eq!(count(&document, "/statuses/200"), 300);
    assert_eq!(count(&document, "/statuses/404"), 100);
    assert_eq!(count(&document, "/counters/errors"), 0);
}

#[test]
fn head_requests_have_no_body() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let targets = dir.path().join("targets");
    let text = format!("# one by HEAD\nHEAD {0}\n\n{0}\n", server.url("/ok/1000"));
    std::fs::write(&targets, text).unwrap();
    let document =
        run(&["--targets", targets.to_str().unwrap(), "--requests", "100", "--connections", "4"]);
    assert_eq!(count(&document, "/counters/responses"), 100);
    assert_eq!(count(&document, "/counters/body_bytes"), 50 * 1000);
    assert_eq!(count(&document, "/target_count"), 2);
}

#[test]
fn a_known_delay_is_in_every_latency() {
    let server = Server::start(&[]);
    let began = Instant::now();
    let document = run(&[&server.url("/delay/50"), "--rate", "50", "--requests", "50"]);
    let elapsed = began.elapsed().as_secs_f64();
    for figure in ["min", "p50", "p99", "max", "mean"] {
        let found = number(&document, &format!("/last_byte/{figure}"));
        // The histogram is off by up to a thousandth. The machine decides how much longer the
        // answer took.
        assert!((0.0499..elapsed).contains(&found), "{figure} {found}");
        assert!(number(&document, &format!("/first_byte/{figure}")) >= 0.0499);
    }
}

#[test]
fn first_and_last_byte_are_told_apart() {
    let server = Server::start(&[]);
    let document = run(&[&server.url("/halves/100"), "--requests", "10", "--connections", "2"]);
    let between = number(&document, "/last_byte/min") - number(&document, "/first_byte/min");
    assert!(between >= 0.095, "{document:#}");
    assert!(number(&document, "/last_byte/min") >= 0.0999);
}

#[test]
fn a_rate_is_kept_whatever_the_server_does() {
    let server = Server::start(&[]);
    // Each answer takes 200 ms. A closed loop with ten connections would send 50 requests per
    // second.
    let document = run(&[&server.url("/delay/200"), "--rate", "100", "--duration", "2s"]);
    assert_eq!(count(&document, "/counters/requests"), 200);
    assert_eq!(count(&document, "/counters/responses"), 200);
    assert_eq!(server.seen.requests.load(Relaxed), 200);
    assert!(number(&document, "/elapsed") >= 1.99 + 0.2);
    assert_eq!(count(&document, "/generator/lag/count"), 200);
}

#[test]
fn too_few_connections_show_in_the_latency_not_in_the_rate() {
    let server = Server::start(&[]);
    let arguments = ["--rate", "100", "--duration", "1s", "--connections", "1"];
    let url = server.url("/delay/20");
    let document = run(&[&[url.as_str()], &arguments[..]].concat());
    // A hundred answers of 20 ms, one after the other. The last was due at 990 ms and came after 2
    // s at the earliest.
    assert_eq!(count(&document, "/counters/responses"), 100);
    assert!(number(&document, "/last_byte/max") >= 1.0, "{document:#}");
    assert!(count(&document, "/queued") > 0);
}

#[test]
fn a_duration_ends_a_closed_loop() {
    let server = Server::start(&[]);
    // Requests are sent and answered also where the machine stands still for some seconds.
    let document = run(&[&server.url("/ok/100"), "--duration", "8s", "--connections", "4"]);
    let elapsed = number(&document, "/elapsed");
    assert!((8.0..32.0).contains(&elapsed), "{elapsed}");
    let requests = count(&document, "/counters/requests");
    assert!(requests > 0);
    assert!(count(&document, "/unfinished") <= 4);
    let ended = count(&document, "/counters/responses") + count(&document, "/unfinished");
    assert_eq!(ended, requests);
    let in_seconds: u64 =
        document["seconds"].as_array().unwrap().iter().map(|s| count(s, "/responses")).sum();
    assert_eq!(in_seconds, count(&document, "/counters/responses"));
}

#[test]
fn ranges_are_within_the_file_and_their_bytes_are_checked() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, pattern(100_000)).unwrap();
    for order in ["random", "sequential"] {
        let document = run(&[
            &server.url("/file/100000"),
            "--range-size",
            "3000",
            "--range-order",
            order,
            "--requests",
            "200",
            "--check",
            file.to_str().unwrap(),
        ]);
        assert_eq!(count(&document, "/statuses/206"), 200, "{document:#}");
        assert_eq!(count(&document, "/counters/errors"), 0, "{document:#}");
    }
    let ranges = server.seen.ranges.lock().unwrap().clone();
    // One request of each run was for the length.
    assert_eq!(ranges.len(), 402);
    let asked = |range: &&String| !range.starts_with("0-0");
    let sequential: Vec<_> = ranges[201..].iter().filter(asked).cloned().collect();
    // 34 ranges cover the file; the last is shorter.
    assert!(sequential.iter().any(|range| range == "99000-99999"), "{sequential:?}");
    assert_eq!(sequential.iter().filter(|range| *range == "3000-5999").count(), 6);
}

#[test]
fn redirections_are_followed_to_the_answer() {
    let server = Server::start(&[]);
    let url = server.url("/hops/3");
    let document = run(&[&url, "--requests", "50", "--connections", "4"]);
    assert_eq!(count(&document, "/counters/redirects"), 150);
    assert_eq!(count(&document, "/statuses/200"), 50);
    assert_eq!(server.seen.requests.load(Relaxed), 200);
    let document = run(&[&url, "--requests", "50", "--redirects", "0"]);
    assert_eq!(count(&document, "/statuses/302"), 50);
}

#[test]
fn records_make_every_figure_again() {
    use hdrhistogram::serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    };
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    let document = run(&[
        &server.url("/ok/1000"),
        "--rate",
        "200",
        "--duration",
        "2500ms",
        "-o",
        folder.to_str().unwrap(),
    ]);
    let ticks = std::fs::read_to_string(folder.join("ticks.jsonl")).unwrap();
    let ticks: Vec<serde_json::Value> =
        ticks.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(ticks.len() >= 2, "{ticks:?}");
    for pair in ticks.windows(2) {
        assert!(number(&pair[0], "/at") < number(&pair[1], "/at"));
        assert!(count(&pair[0], "/responses") <= count(&pair[1], "/responses"));
    }
    assert_eq!(count(ticks.last().unwrap(), "/responses"), 500);
    assert_eq!(count(ticks.last().unwrap(), "/body_bytes"), 500_000);
    let log = std::fs::read(folder.join("last_byte.hlog")).unwrap();
    let encoded = IntervalLogIterator::new(&log).find_map(|entry| match entry.unwrap() {
        LogEntry::Interval(interval) => Some(interval.encoded_histogram().to_owned()),
        _ => None,
    });
    let bytes = from_base64(&encoded.unwrap());
    let histogram: hdrhistogram::Histogram<u64> =
        Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
    assert_eq!(histogram.len(), 500);
    let p99 = histogram.value_at_quantile(0.99) as f64 / 1e9;
    assert!((p99 - number(&document, "/last_byte/p99")).abs() < 1e-9);
    let summary = std::fs::read_to_string(folder.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary, document);
}

fn from_base64(text: &str) -> Vec<u8> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = (0u32, 0u32);
    let mut bytes = Vec::new();
    for letter in text.trim_end_matches('=').chars() {
        let value = u32::try_from(ALPHABET.find(letter).unwrap()).unwrap();
        bits = ((bits.0 << 6 | value) & 0xffff, bits.1 + 6);
        if bits.1 >= 8 {
            bits.1 -= 8;
            bytes.push((bits.0 >> bits.1) as u8);
        }
    }
    bytes
}
