//! Every injected fault is found and named correctly, and no other fault is reported.

use std::net::TcpListener;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Program, eventually};

use super::server::{Server, pattern};
use super::{LIMIT, command, count, document, finish, run};

fn errors(document: &Value, kind: &str) -> u64 {
    count(document, &format!("/errors/{kind}/count"))
}

/// Checks that all errors of a run are of one kind.
#[track_caller]
fn assert_only(document: &Value, kind: &str, expected: u64) {
    assert_eq!(errors(document, kind), expected, "{kind} in {document:#}");
    assert_eq!(count(document, "/counters/errors"), expected, "{document:#}");
}

/// A mixture of faults and good answers.
const MIX: &[&str] = &[
    "ok",
    "closed",
    "ok",
    "reset",
    "ok",
    "short_body",
    "chunked",
    "short_head",
    "ok",
    "content_length",
    "until_close",
    "bad_response",
    "ok",
    "wrong_range",
];

#[test]
fn each_of_a_mixture_is_found_and_counted_as_what_it_is() {
    let server = Server::start(MIX);
    let rounds = 40;
    let requests = (MIX.len() * rounds).to_string();
    let document = run(&[
        &server.url("/mix/1000"),
        "--requests",
        &requests,
        "--connections",
        "8",
        "--no-keepalive",
    ]);
    let rounds = rounds as u64;
    for (kind, expected) in [
        ("closed", rounds),
        ("reset", rounds),
        ("short_body", 2 * rounds),
        ("content_length", rounds),
        ("bad_response", rounds),
    ] {
        assert_eq!(errors(&document, kind), expected, "{kind} in {document:#}");
    }
    assert_eq!(count(&document, "/counters/errors"), 6 * rounds);
    // A 206 without a request for a range is an answer with a status, like any other.
    assert_eq!(count(&document, "/statuses/206"), rounds);
    assert_eq!(count(&document, "/statuses/200"), (MIX.len() as u64 - 7) * rounds);
    assert_eq!(count(&document, "/counters/sent_again"), 0);
    assert_eq!(server.seen.done("reset"), rounds);
}

#[test]
fn faults_on_kept_connections_are_found_too() {
    for (fault, kind) in [
        ("short_body", "short_body"),
        ("short_head", "short_body"),
        ("content_length", "content_length"),
        // On a kept connection this looks like the end of a body that is longer than announced.
        ("bad_response", "content_length"),
    ] {
        let mix: &'static [&'static str] = match fault {
            "short_body" => &["ok", "ok", "short_body"],
            "short_head" => &["ok", "ok", "short_head"],
            "content_length" => &["ok", "ok", "content_length"],
            _ => &["ok", "ok", "bad_response"],
        };
        let server = Server::start(mix);
        let document = run(&[&server.url("/mix/1000"), "--requests", "300", "--connections", "1"]);
        // After unexpected or senseless bytes, the client closes the connection.
        assert_only(&document, kind, 100);
    }
}

#[test]
fn a_kept_connection_that_closes_is_asked_again_and_that_is_counted() {
    let server = Server::start(&["ok", "ok", "ok", "closed"]);
    let document = run(&[&server.url("/mix/1000"), "--requests", "300", "--connections", "1"]);
    assert_only(&document, "closed", 0);
    assert_eq!(count(&document, "/counters/responses"), 300);
    assert_eq!(count(&document, "/counters/sent_again"), server.seen.done("closed"));
    assert!(server.seen.done("closed") >= 99);
}

#[test]
fn a_wrong_range_is_found() {
    let server = Server::start(&["file", "wrong_range"]);
    let dir = tempfile::tempdir().unwrap();
    let targets = dir.path().join("targets");
    std::fs::write(&targets, format!("{} 0-99\n", server.url("/mix/1000"))).unwrap();
    let document =
        run(&["--targets", targets.to_str().unwrap(), "--requests", "100", "--connections", "2"]);
    assert_only(&document, "wrong_range", 50);
    assert_eq!(count(&document, "/statuses/206"), 50);
}

#[test]
fn a_corrupt_byte_is_found_and_fails_the_run() {
    let server = Server::start(&["ok", "ok", "ok", "ok", "corrupt"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, pattern(1000)).unwrap();
    let url = server.url("/mix/1000");
    let checked = ["--requests", "100", "--connections", "2", "--check", file.to_str().unwrap()];
    let document = run(&[&[url.as_str()], &checked[..]].concat());
    assert_only(&document, "corrupt", 20);
    assert_eq!(document["exit_status"], 1);
    let first = document["errors"]["corrupt"]["first"].as_str().unwrap();
    assert!(first.contains("byte 777 "), "{first}");
}

#[test]
fn redirections_for_ever_end() {
    let server = Server::start(&[]);
    for (path, kind) in
        [("/too_many_redirects", "too_many_redirects"), ("/bad_redirect", "bad_redirect")]
    {
        let document = run(&[&server.url(path), "--requests", "20", "--connections", "2"]);
        assert_only(&document, kind, 20);
    }
    assert_eq!(server.seen.done("too_many_redirects"), 20 * 11);
}

#[test]
fn a_redirection_to_a_name_is_told_and_not_looked_up_on_the_way() {
    let server = Server::start(&["ok", "elsewhere"]);
    let document = run(&[&server.url("/mix/1000"), "--requests", "20", "--connections", "2"]);
    assert_only(&document, "bad_redirect", 10);
    let first = document["errors"]["bad_redirect"]["first"].as_str().unwrap();
    assert!(first.contains("elsewhere.invalid"), "{first}");
    assert_eq!(count(&document, "/statuses/200"), 10);
}

#[test]
fn a_server_that_is_not_there_is_counted_and_the_run_ends() {
    let url = "http://127.0.0.1:1/";
    let document = run(&[url, "--rate", "100", "--duration", "1s"]);
    assert_only(&document, "refused", 100);
    assert_eq!(document["exit_status"], 1);
    // A closed loop does not spin: its clients rest for 100 ms between attempts. The run is longer than a machine
    // stands still, so each of them gets to try.
    let document = run(&[url, "--duration", "8s", "--connections", "3"]);
    let refused = errors(&document, "refused");
    let most = 3 * (super::number(&document, "/elapsed").max(1.0) / 0.1 + 1.0) as u64;
    assert!((3..=most).contains(&refused), "{refused}, at most {most}");
}

#[test]
fn answers_that_never_come_time_out() {
    let server = Server::start(&["ok", "timeout"]);
    // Time enough for the good answers, also where the server is late.
    let arguments = ["--requests", "20", "--connections", "10", "--timeout", "20s"];
    let url = server.url("/mix/1000");
    let document = run(&[&[url.as_str()], &arguments[..]].concat());
    assert_only(&document, "timeout", 10);
    assert_eq!(count(&document, "/statuses/200"), 10);
}

#[test]
fn a_silent_server_does_not_hold_a_run_past_its_end() {
    let server = Server::start(&[]);
    // The run waits for 9 s after its end. If it waited for the last answer, it would take 10 min.
    let url = server.url("/timeout");
    let document = run(&[&url, "--rate", "20", "--duration", "1s", "--timeout", "10m"]);
    assert!(super::number(&document, "/elapsed") < 30.0);
    // The run waited for these answers, and they did not come. To leave them out would flatter the
    // server.
    assert_only(&document, "timeout", 20);
    // All clients have asked by then.
    let document = run(&[&url, "--connections", "5", "--duration", "10s", "--timeout", "10m"]);
    assert_eq!(count(&document, "/unfinished"), 5);
}

#[test]
fn a_silent_server_is_asked_for_lengths_no_longer_than_one_answer_may_take() {
    let server = Server::start(&[]);
    // With a backlog that nobody accepts from, and with several servers.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let bare = format!("limit://{}", deaf.local_addr().unwrap());
    let urls: Vec<_> = (0..200).map(|number| server.url(&format!("/timeout/{number}"))).collect();
    let lengths: Vec<_> = urls.iter().map(|url| &**url).chain(["--range-size", "10"]).collect();
    for targets in [&lengths[..], &[&*bare]] {
        let began = Instant::now();
        let finished = finish(&[targets, &["--timeout", "400ms", "--duration", "1s"]].concat());
        // All of the answers together may take 80 s.
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
        assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains(targets[0]), "{}", finished.stderr);
    }
    // The client has sent its request before it is interrupted. Without the interruption it would
    // end with status 2 after 9 s. A unit test shows that it does not wait until then.
    let before = server.seen.requests.load(Relaxed);
    let program = Program::spawn(&mut command(&lengths));
    eventually(LIMIT, "a request comes", || server.seen.requests.load(Relaxed) > before);
    let finished = program.stop(LIMIT);
    assert_eq!(finished.status.code(), Some(130), "{}", finished.stderr);
}

#[test]
fn an_interrupt_ends_the_run_with_what_was_measured() {
    let server = Server::start(&[]);
    let url = server.url("/ok/1000");
    // On one connection a request shows that the answer before it was taken.
    let arguments = ["--rate", "100", "--duration", "10m", "--connections", "1", "--json"];
    let program = Program::spawn(&mut command(&[&[url.as_str()], &arguments[..]].concat()));
    eventually(LIMIT, "50 requests come", || server.seen.requests.load(Relaxed) >= 50);
    let document = document(&program.stop(LIMIT));
    assert_eq!(document["interrupted"], true);
    assert!(count(&document, "/counters/responses") >= 49);
    assert!(count(&document, "/not_begun") > 50_000);
    assert_eq!(count(&document, "/counters/errors"), 0);
}
