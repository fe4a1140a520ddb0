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

/// 200 requests per second for 3 s. 60 of them are due in a stall of 300 ms: 40 of these wait for
/// 100 ms or more, which is more than one in twenty.
const ARGUMENTS: [&str; 5] = ["--rate", "200", "--duration", "3s", "--json"];
const STALL: Duration = Duration::from_millis(300);

#[test]
fn of_the_server() {
    let nginx = Nginx::start("");
    let url = nginx.url("/4k");
    let generator = Program::spawn(&mut command(&[&[url.as_str()], &ARGUMENTS[..]].concat()));
    eventually(LIMIT, "a hundred requests have come", || nginx.requests() > 100);
    nginx.program.pause();
    std::thread::sleep(STALL);
    nginx.program.resume();
    let document = document(&generator.wait(LIMIT));
    assert_eq!(count(&document, "/counters/responses"), 600);
    assert!(number(&document, "/last_byte/p95") >= 0.05, "{document:#}");
    assert!(number(&document, "/last_byte/max") >= 0.29, "{document:#}");
    // The generator had no stall.
    assert_eq!(count(&document, "/generator/lag/count"), 600);
}

/// Runs the generator, which stands still for `stall` after a while.
fn with_a_standstill(url: &str, server: &Server, stall: Duration) -> (Option<i32>, Value) {
    let generator = Program::spawn(&mut command(&[&[url], &ARGUMENTS[..]].concat()));
    eventually(LIMIT, "a hundred requests have come", || server.seen.requests.load(Relaxed) > 100);
    generator.pause();
    std::thread::sleep(stall);
    generator.resume();
    let finished = generator.wait(LIMIT);
    (finished.status.code(), document(&finished))
}

#[test]
fn a_moment_of_the_generator_is_in_the_percentiles_and_told() {
    let server = Server::start(&[]);
    let stall = Duration::from_millis(100);
    // 20 of 600 requests are due during the stall. Answers take long enough that the machine's own
    // noise matters little for nine tenths of them.
    let (status, document) = with_a_standstill(&server.url("/delay/40"), &server, stall);
    // No request was left out.
    assert_eq!(count(&document, "/counters/responses"), 600);
    assert!(number(&document, "/last_byte/p99") >= 0.08, "{document:#}");
    assert!(number(&document, "/last_byte/max") >= 0.13, "{document:#}");
    assert!(number(&document, "/generator/lag/max") >= 0.09, "{document:#}");
    assert!(number(&document, "/generator/lag_share/p99") >= 0.1, "{document:#}");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("the generator's own lag is"), "{warnings}");
    assert!(warnings.contains("of p99"), "{warnings}");
    // On a machine without spare time, far more requests may be late. Then the generator reports
    // it.
    let of_p90 = number(&document, "/generator/lag_share/p90");
    assert_eq!(status, Some(if of_p90 > 0.25 { 3 } else { 0 }), "{document:#}");
}

#[test]
fn a_generator_that_stands_still_for_long_is_not_trusted() {
    let server = Server::start(&[]);
    let stall = Duration::from_millis(900);
    let (status, document) = with_a_standstill(&server.url("/ok/1000"), &server, stall);
    assert_eq!(count(&document, "/counters/responses"), 600);
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
