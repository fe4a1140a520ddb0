//! A stall of the server or of the generator shows in the percentiles: requests that are due during
//! the stall count from when they were due. There is no coordinated omission.

use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::Value;
use testkit::{Program, eventually};

use super::compare::Nginx;
use super::server::Server;
use super::{LIMIT, command, count, document, number};

/// 200 requests a second, until it is interrupted. On a busy machine a stall may begin late, and the
/// end may come late. So each stall is long enough to show in its percentile in a run of many
/// seconds.
const ARGUMENTS: [&str; 5] = ["--rate", "200", "--duration", "10m", "--json"];
/// Requests of the schedule.
const SCHEDULED: u64 = 200 * 600;

/// Runs the generator, and stalls it or its server once after a hundred requests. It ends when
/// `enough` requests have come. Returns its exit status and its document.
fn with_a_stall(
    url: &str,
    server: Option<&Program>,
    stall: Duration,
    requests: impl Fn() -> u64,
    enough: u64,
) -> (Option<i32>, Value) {
    let generator = Program::spawn(&mut command(&[&[url], &ARGUMENTS[..]].concat()));
    eventually(LIMIT, "a hundred requests have come", || requests() > 100);
    let stalled = server.unwrap_or(&generator);
    stalled.pause();
    std::thread::sleep(stall);
    stalled.resume();
    eventually(LIMIT, "the rest has come", || requests() >= enough);
    let finished = generator.stop(LIMIT);
    let document = document(&finished);
    // No request was left out.
    let begun = count(&document, "/counters/requests");
    assert_eq!(begun + count(&document, "/not_begun"), SCHEDULED, "{document:#}");
    assert_eq!(count(&document, "/generator/lag/count"), begun, "{document:#}");
    assert_eq!(count(&document, "/counters/errors"), 0, "{document:#}");
    assert!(begun >= enough, "{document:#}");
    (finished.status.code(), document)
}

#[test]
fn of_the_server() {
    // 200 requests are due in the stall. 190 of these wait for 50 ms or more. That is more than one
    // in twenty of a run of 19 s.
    let nginx = Nginx::start("");
    let requests = || nginx.requests() as u64;
    let stall = Duration::from_secs(1);
    let (_, document) = with_a_stall(&nginx.url("/4k"), Some(&nginx.program), stall, requests, 300);
    assert!(number(&document, "/last_byte/p95") >= 0.05, "{document:#}");
    assert!(number(&document, "/last_byte/max") >= 0.99, "{document:#}");
}

#[test]
fn a_moment_of_the_generator_is_in_the_percentiles_and_told() {
    let server = Server::start(&[]);
    // 60 of 800 requests are due during the stall, fewer than one in ten. 52 of these wait for 80 ms
    // or more. That is more than one in a hundred of a run of 26 s.
    let (stall, requests) = (Duration::from_millis(300), || server.seen.requests.load(Relaxed));
    let (status, document) = with_a_stall(&server.url("/delay/40"), None, stall, requests, 800);
    assert!(number(&document, "/last_byte/p99") >= 0.08, "{document:#}");
    assert!(number(&document, "/last_byte/max") >= 0.33, "{document:#}");
    assert!(number(&document, "/generator/lag/max") >= 0.29, "{document:#}");
    // If the server is late for seconds, too, the generator's part is small. `load::trust` has tests
    // of the rule.
    let part = number(&document, "/generator/lag_share/p99");
    let warnings = document["warnings"].to_string();
    assert!(part > 0.0, "{document:#}");
    let told = warnings.contains("the generator's own lag is") && warnings.contains("of p99");
    assert!(told || part <= 0.1, "{part}: {warnings}");
    // On a machine without spare time, far more requests may be late. Then the generator reports
    // it.
    let saturated = document["generator"]["saturated"] == true;
    assert_eq!(status, Some(if saturated { 3 } else { 0 }), "{document:#}");
}

#[test]
fn a_generator_that_stands_still_for_long_is_not_trusted() {
    let server = Server::start(&[]);
    // 340 requests wait for 300 ms or more. That is more than one in ten of a run of 17 s.
    let (stall, requests) = (Duration::from_secs(2), || server.seen.requests.load(Relaxed));
    let (status, document) = with_a_stall(&server.url("/ok/1000"), None, stall, requests, 500);
    assert!(number(&document, "/last_byte/p90") >= 0.3, "{document:#}");
    assert_eq!(document["generator"]["saturated"], true);
    assert_eq!(status, Some(3));
}

#[test]
fn a_run_is_trusted_unless_there_are_reasons() {
    let server = Server::start(&[]);
    let url = server.url("/delay/200");
    let document = super::run(&[&url, "--rate", "50", "--duration", "2s", "--fail-if", "p50>2s"]);
    assert_eq!(count(&document, "/counters/responses"), 100);
    // On a machine without spare time there may be reasons. `load::trust` has tests of the rule.
    let trusted = document["generator"]["reasons"] == serde_json::json!([]);
    assert_eq!(document["generator"]["saturated"], !trusted, "{document:#}");
    assert_eq!(document["exit_status"], if trusted { 0 } else { 3 }, "{document:#}");
}

#[test]
fn a_generator_that_cannot_keep_up_says_so() {
    // A loop cannot be slowed down by sharing its processor, because it may choose another. So it
    // gets too much work.
    let server = Server::start(&[]);
    let url = server.url("/ok/100");
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    let arguments = ["--rate", "5000000", "--duration", "500ms", "--connections", "4", "--json"];
    command.arg("http").arg(&url).args(arguments).args(["--timeout", "1s"]);
    let finished = Program::spawn(&mut command).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(3), "{}", finished.stderr);
    let document = document(&finished);
    assert!(!document["generator"]["reasons"].as_array().unwrap().is_empty());
}
