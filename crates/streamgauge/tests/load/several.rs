//! Several processes do what one may not, and their results are those of one run.

use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Program, eventually};

use super::server::Server;
use super::{LIMIT, count, document, finish, run};

/// Starts the generator with at most 128 open files for each process.
fn with_few_files(arguments: &[&str]) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 128 && exec \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_streamgauge")).arg("http").args(arguments).arg("--json");
    Program::spawn(&mut command)
}

#[test]
fn more_connections_than_a_process_may_have_files() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run").display().to_string();
    // Slow enough that all connections are used before the first sends its next request.
    let url = server.url("/delay/300");
    let arguments = ["--connections", "300", "--requests", "900", "-o", &folder];
    let document = document(&with_few_files(&[&[&*url], &arguments[..]].concat()).wait(LIMIT));
    for (path, expected) in [
        ("/processes", 5),
        ("/connections", 300),
        ("/counters/connections", 300),
        ("/counters/requests", 900),
        ("/counters/responses", 900),
        ("/counters/errors", 0),
        ("/counters/body_bytes", 900_000),
        ("/counters/head_bytes", server.seen.head_bytes.load(Relaxed)),
        ("/counters/sent_bytes", server.seen.request_bytes.load(Relaxed)),
        ("/statuses/200", 900),
        ("/first_byte/count", 900),
        ("/last_byte/count", 900),
        ("/connect/count", 300),
    ] {
        assert_eq!(count(&document, path), expected, "{path} in {document:#}");
    }
    assert_eq!(server.seen.requests.load(Relaxed), 900);
    assert_eq!(document["generator"]["workers"].as_array().unwrap().len() % 5, 0);
    let in_seconds: u64 =
        document["seconds"].as_array().unwrap().iter().map(|s| count(s, "/responses")).sum();
    assert_eq!(in_seconds, 900);
    let summary = std::fs::read_to_string(dir.path().join("run/summary.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&summary).unwrap(), document);
}

#[test]
fn a_schedule_is_divided_without_loss_or_repetition() {
    let server = Server::start(&[]);
    let url = server.url("/file/60000");
    let arguments = ["--rate", "500", "--requests", "600", "--connections", "200"];
    let ranges = ["--range-size", "100", "--range-order", "sequential"];
    let all = [&[&*url], &arguments[..], &ranges].concat();
    let document = document(&with_few_files(&all).wait(LIMIT));
    assert!(count(&document, "/processes") >= 4, "{document:#}");
    assert_eq!(count(&document, "/statuses/206"), 600, "{document:#}");
    assert_eq!(count(&document, "/generator/lag/count"), 600);
    let mut asked = server.seen.ranges.lock().unwrap().clone();
    // The first request is for the length. Only one process asks for it.
    assert_eq!(asked.remove(0), "0-0");
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 600);
}

#[test]
fn as_many_as_asked_for_over_http_2_too() {
    let nginx = super::compare::Nginx::start("http2");
    let arguments = ["--processes", "3", "--requests", "30", "--connections", "6", "--http2"];
    let document = run(&[&[&*nginx.url("/4k")], &arguments[..]].concat());
    assert_eq!(count(&document, "/processes"), 3);
    assert_eq!(count(&document, "/counters/body_bytes"), 30 * 4096);
    let finished = finish(&["http://127.0.0.1:1/", "--processes", "3", "--connections", "2"]);
    assert_eq!(finished.status.code(), Some(2));
    assert!(finished.stderr.contains("3 processes for 2 connections"), "{}", finished.stderr);
}

/// Waits for so many more requests.
fn wait_for_requests(server: &Server, count: u64) {
    let requests = || server.seen.requests.load(Relaxed);
    let until = requests() + count;
    eventually(LIMIT, "requests have come", || requests() >= until);
}

const LONG: [&str; 6] = ["--rate", "100", "--duration", "10m", "--processes", "2"];

#[test]
fn an_interrupt_ends_all_with_what_they_have() {
    let server = Server::start(&[]);
    // On one connection, a request comes after the answer before it. So only the last one of each process is in doubt.
    let one_each = ["--connections", "2"];
    let program = with_few_files(&[&[&*server.url("/ok/100")], &LONG[..], &one_each].concat());
    wait_for_requests(&server, 21);
    let document = document(&program.stop(LIMIT));
    assert_eq!(document["interrupted"], true);
    assert_eq!(count(&document, "/counters/responses"), count(&document, "/first_byte/count"));
    assert!(count(&document, "/counters/responses") >= 19);
    assert!(count(&document, "/not_begun") > 50_000);
}

/// The first child process of a run.
fn a_child_of(program: &Program) -> Pid {
    let parent = program.id();
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let child = children.split_ascii_whitespace().next().unwrap().parse().unwrap();
    Pid::from_raw(child).unwrap()
}

/// Checks that the figures are those of the other process, and that the document says so.
#[track_caller]
fn assert_half_is_lost(document: &serde_json::Value, reason: &str) {
    assert_eq!(document["exit_status"], 3, "{document:#}");
    let reasons = document["generator"]["reasons"].to_string();
    assert!(reasons.contains(reason), "{reasons}");
    assert_eq!(document["generator"]["workers"].as_array().unwrap().len(), 1);
    assert!(count(document, "/counters/responses") > 0);
    assert_eq!(count(document, "/counters/responses"), count(document, "/first_byte/count"));
}

#[test]
fn a_process_that_is_lost_leaves_the_figures_of_the_others() {
    let server = Server::start(&[]);
    let program = with_few_files(&[&[&*server.url("/ok/100")], &LONG[..]].concat());
    wait_for_requests(&server, 20);
    kill_process(a_child_of(&program), Signal::KILL).unwrap();
    // The other process goes on.
    wait_for_requests(&server, 100);
    let document = document(&program.stop(LIMIT));
    assert_half_is_lost(&document, "of 2 (pid");
}

#[test]
fn a_process_that_hangs_holds_up_no_run() {
    // Each has a server of its own, which tells when it has begun.
    let [server, other] = [Server::start(&[]), Server::start(&[])];
    let began = Instant::now();
    // It is stopped before its end.
    let ends = ["--rate", "100", "--duration", "20s", "--processes", "2"];
    let ends = with_few_files(&[&[&*server.url("/ok/100")], &ends[..]].concat());
    let stopped = with_few_files(&[&[&*other.url("/ok/100")], &LONG[..]].concat());
    for (program, server) in [(&ends, &server), (&stopped, &other)] {
        wait_for_requests(server, 20);
        kill_process(a_child_of(program), Signal::STOP).unwrap();
    }
    // The other process goes on. It may not have begun before.
    wait_for_requests(&other, 20);
    let of_stopped = document(&stopped.stop(LIMIT));
    assert_half_is_lost(&of_stopped, "did not end in time");
    let of_ended = document(&ends.wait(LIMIT));
    assert!(began.elapsed() < Duration::from_secs(20 + 10 + 60), "{:?}", began.elapsed());
    assert_half_is_lost(&of_ended, "did not end in time");
}
