//! Unusable arguments are refused with the reason. Criteria decide the exit status.

use super::server::Server;
use super::{finish, run};
use crate::common::assert_published;

#[track_caller]
fn assert_refused(arguments: &[&str], reason: &str) {
    let finished = finish(arguments);
    assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains(reason), "{}", finished.stderr);
    assert!(finished.stdout.is_empty());
}

#[test]
fn unusable_arguments_are_named() {
    for (arguments, reason) in [
        (&[][..], "nothing to ask for"),
        (&["nonsense"], "no http:// or https://"),
        (&["rtmp://h/live/x"], "the scheme is neither http nor https"),
        (&["http://h/", "--rate", "0"], "not a number of requests a second"),
        (&["http://h/", "--duration", "5"], "a time such as"),
        (&["http://h/", "--range-size", "0"], "at least a byte"),
        (&["http://h/", "--fail-if", "p99=1s"], "no > or < in it"),
        (&["http://h/", "--header", "Host: x"], "set by the client itself"),
        (&["http://h/", "--header", "no colon"], "no colon in it"),
        (&["http://h/", "--connections", "0"], "0 is not in 1.."),
        (&["http://h/", "--targets", "/nowhere"], "/nowhere"),
        (&["http://127.0.0.1:1/", "--check", "/nowhere"], "/nowhere"),
        (&["http://no-such-host.invalid/"], "no-such-host.invalid"),
        (&["http://h/", "--connections", "100000000"], "are more than 250"),
    ] {
        assert_refused(arguments, reason);
    }
}

#[test]
fn a_wrong_line_of_targets_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("targets");
    std::fs::write(&path, "http://h/a\n\nGET http://h/b 9-5\n").unwrap();
    assert_refused(&["--targets", path.to_str().unwrap()], "line 3: \"9-5\" is not a range");
}

#[test]
fn a_length_that_is_not_known_cannot_be_divided() {
    let server = Server::start(&[]);
    let url = server.url("/chunked");
    assert_refused(&[&url, "--range-size", "1KiB"], "its length is not known");
}

#[test]
fn criteria_decide_the_exit_status() {
    let server = Server::start(&[]);
    let url = server.url("/delay/50");
    let common = ["--rate", "20", "--requests", "20"];
    let passes = run(&[&[url.as_str(), "--fail-if", "p99>1h"], &common[..]].concat());
    assert_ne!(passes["exit_status"], 1, "{passes:#}");
    assert_eq!(passes["criteria"][0]["failed"], false);
    let fails = run(&[&[url.as_str(), "--fail-if", "p50>20ms"], &common[..]].concat());
    assert_eq!(fails["criteria"][0]["failed"], true, "{fails:#}");
    // On a machine that is too busy, the exit status reports saturation instead.
    let saturated = fails["generator"]["saturated"] == true;
    assert_eq!(fails["exit_status"], if saturated { 3 } else { 1 });
}

#[test]
fn people_get_tables() {
    let server = Server::start(&["ok", "short_body"]);
    let finished = finish(&[&server.url("/mix/1000"), "--requests", "20", "--fail-if", "errors>5"]);
    let text = String::from_utf8(finished.stdout).unwrap();
    for expected in ["last byte", "short_body", "500 of 1000 bytes", "FAILED: fail if errors>5"] {
        assert!(text.contains(expected), "{expected:?} in {text}");
    }
    // No progress without a terminal.
    assert_eq!(finished.stderr, "");
}

#[test]
fn the_published_schema_is_that_of_the_document() {
    assert_published("http", &schemars::schema_for!(streamgauge::load::report::Document));
}
