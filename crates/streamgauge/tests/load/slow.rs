//! Clients that are slow, rest, or start one after the other.

use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use streamgauge::meter::{Meter, Options};
use testkit::{Program, built, eventually};

use super::server::Server;
use super::{LIMIT, command, count, finish, number, run};

#[test]
fn slow_clients_take_no_more_than_their_rate_and_count_every_byte() {
    let server = Server::start(&[]);
    for (path, body) in [("/ok/400000", 400_000.0), ("/until_close/400000", 400_000.0)] {
        let url = server.url(path);
        let document =
            run(&[&url, "--connections", "4", "--requests", "4", "--read-rate", "200kB"]);
        assert_eq!(count(&document, "/counters/responses"), 4);
        assert_eq!(number(&document, "/counters/body_bytes"), 4.0 * body);
        // Two seconds, minus the allowance for one moment.
        for figure in ["min", "max"] {
            let time = number(&document, &format!("/last_byte/{figure}"));
            assert!(time >= 1.75, "{figure} {time}");
        }
        // The first byte does not wait for the rate. A busy machine makes both times longer.
        let [first, last] = ["/first_byte/min", "/last_byte/min"].map(|at| number(&document, at));
        assert!(first <= last - 1.5, "{first} {last}");
        assert_eq!(number(&document, "/read_rate"), 200_000.0);
    }
}

#[test]
fn small_answers_are_slow_too_and_the_next_waits() {
    let server = Server::start(&[]);
    let url = server.url("/ok/1000");
    let arguments = ["--connections", "1", "--requests", "20", "--read-rate", "10kB"];
    let document = run(&[&[url.as_str()], &arguments[..]].concat());
    assert_eq!(count(&document, "/counters/responses"), 20);
    // More than 20 kB including heads, minus the allowance for one moment.
    assert!(number(&document, "/elapsed") >= 1.7, "{document:#}");
}

#[test]
fn a_slow_client_that_is_cut_off_has_taken_no_more_either() {
    let server = Server::start(&[]);
    let url = server.url("/ok/4000000");
    let document = run(&[&url, "--connections", "1", "--duration", "8s", "--read-rate", "100kB"]);
    // Even if more of the body has reached this machine. One that stands still ends the run later.
    let taken = number(&document, "/counters/body_bytes");
    let most = 100_000.0 * number(&document, "/elapsed") + 30_000.0;
    assert!(taken <= most, "{taken}, at most {most}");
    assert_eq!(count(&document, "/unfinished"), 1);
}

#[test]
fn clients_that_think_rest_between_an_answer_and_the_next_request() {
    let server = Server::start(&[]);
    let url = server.url("/ok/1000");
    let document = run(&[&url, "--connections", "5", "--requests", "25", "--think", "200ms"]);
    assert_eq!(count(&document, "/counters/responses"), 25);
    // Each client has its own connection and rests four times. The client served first rests first.
    assert_eq!(server.seen.connections.load(Relaxed), 5);
    let elapsed = number(&document, "/elapsed");
    assert!(elapsed >= 0.8, "{document:#}");
    // The rest is no part of a latency: five clients rested for 4 s, and waited at most for the
    // rest of their time.
    let waited = 25.0 * number(&document, "/last_byte/mean");
    assert!(waited <= 5.0 * elapsed - 4.0 + 0.01, "{waited}: {document:#}");
    assert_eq!(number(&document, "/think"), 0.2);
}

#[test]
fn a_ramp_spreads_the_beginnings() {
    let server = Server::start(&[]);
    // Each of ten clients sends one request, and has no answer before the next starts.
    let url = server.url("/delay/300");
    for threads in ["1", "2"] {
        let arguments = ["--connections", "10", "--requests", "10", "--ramp", "1s"];
        let document = run(&[&[&*url, "--threads", threads], &arguments[..]].concat());
        assert_eq!(count(&document, "/counters/responses"), 10);
        assert!(number(&document, "/elapsed") >= 0.69, "{document:#}");
        assert!(number(&document, "/seconds/0/requests") >= 1.0);
    }
    // All have begun by then.
    let document = run(&[&url, "--connections", "10", "--duration", "15s", "--ramp", "1s"]);
    assert_eq!(count(&document, "/counters/connections"), 10);
}

#[test]
fn options_that_cannot_be_slow_are_refused_with_the_reason() {
    for (arguments, reason) in [
        (&["--rate", "5", "--think", "1s"][..], "cannot be used with"),
        (&["--rate", "5", "--ramp", "1s"], "cannot be used with"),
        (&["--pipeline", "5", "--think", "1s"], "cannot be used with"),
        (&["--read-rate", "0"], "at least a byte a second"),
        (&["--http2", "--read-rate", "1MB"], "of the client for plain HTTP/1.1"),
    ] {
        let finished = finish(&[&["http://127.0.0.1:1/"], arguments].concat());
        assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains(reason), "{}", finished.stderr);
    }
}

#[test]
fn slow_clients_hold_the_workers_of_a_pool() {
    let root = tempfile::tempdir().unwrap();
    // Far more than the buffers of both ends take.
    std::fs::File::create(root.path().join("large")).unwrap().set_len(64 << 20).unwrap();
    let mut pool = Command::new(built("baselines", "baseline"));
    pool.args(["threadpool", "--listen", "127.0.0.1:0", "--workers", "4", "--timeout", "1m"]);
    let pool = Program::spawn(pool.arg("--root").arg(root.path()));
    let ready = pool.stdout_line(LIMIT, |line| line.starts_with("ready http="));
    let address = ready.trim().strip_prefix("ready http=").unwrap();
    let pids = vec![i32::try_from(pool.id()).unwrap()];
    let mut meter = Meter::start(&Options { pids, ..Options::default() }).unwrap();
    let mut held = || meter.sample().unwrap().processes[0].sending;
    assert_eq!(held(), Some(0));
    let url = format!("http://{address}/large");
    let slow = ["--connections", "3", "--read-rate", "64KiB", "--duration", "10m"];
    let load = Program::spawn(&mut command(&[&[&*url], &slow[..]].concat()));
    eventually(LIMIT, "three workers are held", || held() == Some(3));
    // The fourth still serves.
    run(&[&format!("http://{address}/none"), "--requests", "5"]);
    drop(load);
    eventually(LIMIT, "no worker is held", || held() == Some(0));
}
