//! Runs that several processes share because one may not open enough files.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{Program, eventually};

use crate::common::{LIMIT, children, document, lines, newest_tick, origin, silent, start};

/// Starts the instrument in a process that may open this many files.
fn start_with_files(files: u32, arguments: &[&str]) -> Program {
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let limit = format!("--nofile={files}:{files}");
    Program::spawn(Command::new("prlimit").args([&limit, program]).args(arguments))
}

/// Whether a process runs. A zombie does not.
fn runs(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Waits until this many viewers have joined.
fn joined(folder: &Path, viewers: u64) {
    eventually(LIMIT, "all viewers have joined", || {
        newest_tick(folder).is_some_and(|tick| tick["joined"] == viewers)
    });
}

#[test]
fn more_viewers_than_files_are_one_run_of_several_processes() {
    let server = origin();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run");
    let url = server.rtmp_url("live/demo");
    let (_, document) = document(start_with_files(
        128,
        &[
            "viewers",
            &url,
            "--batches",
            "2",
            "--batch-size",
            "150",
            "--duration",
            "8s",
            "--at-least",
            "0.2",
            "--verify",
            "sample=10",
            "--reference",
            testkit::demo_clip().to_str().unwrap(),
            "--json",
            "-o",
            output.to_str().unwrap(),
        ],
    ));
    assert_eq!(document["processes"], 5, "{document:#}");
    assert!(document["generator"]["loops"].as_array().unwrap().len() >= 5, "{document:#}");
    let viewers = &document["viewers"];
    assert_eq!((&viewers["reported"], &document["lost"]), (&300.into(), &0.into()));
    assert!(viewers["errors"].as_object().unwrap().is_empty(), "{document:#}");
    assert!(viewers["matched"].as_u64().unwrap() > 1000, "{document:#}");
    assert_eq!(viewers["matched"], viewers["verified_samples"], "{document:#}");

    let reports = lines(&output.join("viewers.jsonl"));
    let ids: BTreeSet<u64> = reports.iter().map(|line| line["id"].as_u64().unwrap()).collect();
    assert_eq!((reports.len(), ids), (300, (0..300).collect()));
    let sum: u64 = reports.iter().map(|line| line["media_bytes"].as_u64().unwrap()).sum();
    assert_eq!(viewers["media_bytes"], sum);
    // A busy machine delays those who join, as it delays the event loops.
    let loops = document["generator"]["loops"].as_array().unwrap().iter();
    let lag = loops.map(|of| of["lag_max"].as_f64().unwrap()).fold(0.0, f64::max);
    for line in &reports {
        let late = line["joined"].as_f64().unwrap() - line["batch"].as_f64().unwrap();
        assert!((0.0..3.0 + 10.0 * lag).contains(&late), "{lag} s: {line:#}");
    }
    let ticks = lines(&output.join("ticks.jsonl"));
    let last = ticks.last().unwrap();
    assert_eq!((&last["media_bytes"], &last["left"]), (&sum.into(), &300.into()), "{last:#}");
    let all = |tick: &Value| tick["media_bytes"].as_u64().unwrap();
    assert!(ticks.is_sorted_by_key(all), "{ticks:#?}");
    assert!(output.join("startup.hlog").exists());
}

#[test]
fn capacity_and_requests_by_kind_are_shared_alike() {
    let server = origin();
    let url = server.url("/live/demo/v0/media.m3u8");
    let (_, document) = document(start([
        "capacity",
        &url,
        "--start",
        "4",
        "--step",
        "2",
        "--max",
        "6",
        "--min-bitrate",
        "1k",
        "--duration",
        // Viewers get something also where the machine stands still for some seconds.
        "12s",
        "--pause",
        "10ms",
        "--processes",
        "2",
        "--json",
    ]));
    assert_eq!(document["capacity"], 6, "{document:#}");
    for step in document["steps"].as_array().unwrap() {
        assert_eq!(step["processes"], 2, "{step:#}");
        let kinds = step["results"]["requests_by_kind"].as_object().unwrap();
        let answered: u64 = kinds.values().map(|kind| kind["count"].as_u64().unwrap()).sum();
        assert!(answered > 4, "{step:#}");
        assert_eq!(step["results"]["reported"], step["viewers"], "{step:#}");
    }
}

#[test]
fn a_process_that_dies_is_named_and_its_viewers_are_lost() {
    let (_listener, url) = silent();
    let folder = tempfile::tempdir().unwrap();
    let program = start([
        "viewers",
        &url,
        "--batch-size",
        "30",
        "--duration",
        "60s",
        "--timeout",
        "50s",
        "--processes",
        "3",
        "--loops",
        "3",
        "--json",
        "-o",
        folder.path().to_str().unwrap(),
    ]);
    joined(folder.path(), 30);
    let processes = children(&program);
    assert_eq!(processes.len(), 3);
    kill_process(Pid::from_raw(processes[1]).unwrap(), Signal::KILL).unwrap();
    eventually(LIMIT, "the process is missed", || children(&program).len() == 2);
    program.terminate();
    let (code, document) = document(program);
    assert_eq!((code, &document["interrupted"]), (3, &true.into()), "{document:#}");
    assert_eq!((&document["lost"], &document["viewers"]["reported"]), (&10.into(), &20.into()));
    let reasons = document["generator"]["reasons"].to_string();
    assert!(reasons.contains(&format!("process 2 of 3 (pid {}): signal: 9", processes[1])));
    assert!(processes.into_iter().all(|id| !runs(id)));
}

#[test]
fn no_process_outlives_the_one_that_started_it() {
    let (_listener, url) = silent();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let arguments = ["--duration", "60s", "--timeout", "50s", "--processes", "2", "-o", output];
    let program = start(["viewers", &url, "--batch-size", "4"].into_iter().chain(arguments));
    joined(folder.path(), 4);
    let processes = children(&program);
    assert_eq!(processes.len(), 2);
    // A killed program cannot tell its children.
    drop(program);
    eventually(LIMIT, "the processes have ended", || processes.iter().all(|id| !runs(*id)));
}

#[test]
fn a_share_without_a_parent_is_refused() {
    for (role, wrong) in [("viewers", "a job"), ("cooks", "called cooks")] {
        let finished = start(["shard", role]).wait(LIMIT);
        assert_eq!(finished.status.code(), Some(2), "{role}");
        assert!(finished.stderr.contains(wrong), "{role}: {}", finished.stderr);
    }
}

#[test]
fn viewers_connect_from_the_address_that_they_are_given() {
    use viewer::{Clock, Lane, Options, Totals, Viewer};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/live/x", listener.local_addr().unwrap());
    let source = IpAddr::from(Ipv4Addr::new(127, 0, 0, 9));
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let accepted = std::thread::spawn(move || listener.accept().unwrap().1);
    runtime.block_on(async {
        let options = Options { patience: Duration::from_secs(20), ..Options::default() };
        let lane = Lane::from(Clock::start(), options, Totals::default().into(), Some(source));
        let viewer = Viewer::join(&lane, (0, 0), false, None);
        // The server closes the connection.
        assert!(viewer::player::play(&viewer, &url.parse().unwrap()).await.is_err());
    });
    assert_eq!(accepted.join().unwrap().ip(), source);
    assert!(began.elapsed() < LIMIT);
}
