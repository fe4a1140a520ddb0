//! `streamgauge meter`, compared with the kernel and other tools.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::assert_published;
use serde_json::Value;
use streamgauge::meter::kernel::Kernel;
use streamgauge::meter::{HEADER, Meter, Options, Recording};
use testkit::{Program, eventually};

const LIMIT: Duration = Duration::from_secs(60);

fn meter(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.arg("meter").args(arguments);
    command
}

fn own_id() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

/// A field of /proc/meminfo, in bytes.
fn meminfo(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// The counters that nstat prints, by its names.
fn nstat() -> std::collections::HashMap<String, u64> {
    let history = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("nstat");
    command.args(["-a", "-s", "-z"]).env("NSTAT_HISTORY", history.path());
    let output = String::from_utf8(Program::output(&mut command, LIMIT)).unwrap();
    output
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        })
        .collect()
}

#[test]
fn the_kernels_counters_are_nstats() {
    let before = nstat();
    let ours = Kernel::read();
    let after = nstat();
    assert!(ours.0.len() >= 30, "{ours:?}");
    for (name, value) in &ours.0 {
        // Counters only grow, whatever else the machine does.
        assert!((before[*name]..=after[*name]).contains(value), "{name} {value}");
    }
}

#[test]
fn traffic_over_loopback_is_counted_by_bytes_and_segments() {
    const LENGTH: usize = 20_000_000;
    let mut meter = Meter::start(&Options::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        std::io::copy(&mut socket, &mut std::io::sink()).unwrap()
    });
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(&vec![0; LENGTH]).unwrap();
    drop(socket);
    assert_eq!(reader.join().unwrap(), LENGTH as u64);
    let sample = meter.sample().unwrap();
    assert!(sample.system.up >= LENGTH as u64, "{sample:?}");
    assert!(sample.system.down >= LENGTH as u64, "{sample:?}");
    // One connection, and segments of at most 64 KiB.
    assert!(sample.kernel.of("TcpActiveOpens") >= 1);
    assert!(sample.kernel.of("TcpOutSegs") >= LENGTH as u64 / 65_536, "{sample:?}");
}

#[test]
fn memory_in_use_is_what_it_would_take_to_read_it_by_hand() {
    let by_hand = || {
        let cached = meminfo("Cached:") - meminfo("Shmem:") + meminfo("SReclaimable:");
        meminfo("MemTotal:") - meminfo("MemFree:") - meminfo("Buffers:") - cached
    };
    let mut meter = Meter::start(&Options::default()).unwrap();
    // Other programs take and free memory all the time, so one look may differ.
    eventually(LIMIT, "both are nearly the same", || {
        meter.sample().unwrap().system.memory.abs_diff(by_hand()) < 100 << 20
    });
}

#[test]
fn memory_that_is_taken_shows_in_the_system_and_the_process() {
    const LENGTH: usize = 300 << 20;
    let options = Options { pids: vec![own_id()], with_children: false, ..Options::default() };
    let mut meter = Meter::start(&options).unwrap();
    let before = meter.sample().unwrap();
    let taken = vec![1u8; LENGTH];
    let after = meter.sample().unwrap();
    assert_eq!(taken.iter().map(|b| u64::from(*b)).sum::<u64>(), LENGTH as u64);
    let (before, after) = (&before.processes[0], &after.processes[0]);
    // Other tests of this process run at the same time, but need little memory.
    let grown = |a: u64, b: u64| b.saturating_sub(a) as f64 / LENGTH as f64;
    assert!((0.8..1.6).contains(&grown(before.resident, after.resident)), "{after:?}");
    let proportional = (before.proportional.unwrap(), after.proportional.unwrap());
    assert!((0.8..1.6).contains(&grown(proportional.0, proportional.1)), "{after:?}");
    let anonymous = (before.anonymous.unwrap(), after.anonymous.unwrap());
    assert!((0.8..1.6).contains(&grown(anonymous.0, anonymous.1)), "{after:?}");
}

#[test]
fn descriptors_and_threads_are_counted() {
    // A process of its own: the threads of this one come and go.
    let mut child = Command::new("sh")
        .args(["-c", "exec 7</dev/null 8</dev/null 9</dev/null; echo ready; read line"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let options = Options { pids: vec![pid], with_children: false, ..Options::default() };
    let sample = Meter::start(&options).unwrap().sample().unwrap();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    drop(child.stdin.take());
    child.wait().unwrap();
    let usage = &sample.processes[0];
    assert_eq!((usage.descriptors, usage.threads), (Some(open), 1), "{usage:?}");
    assert_eq!((usage.name.as_str(), usage.pid), ("sh", pid));
    assert!(open >= 6, "{open}");
}

/// The figure after `label` in the output of time(1).
#[track_caller]
fn of_time(text: &str, label: &str) -> f64 {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
    line.unwrap_or_else(|| panic!("no {label} in {text}")).trim().parse().unwrap()
}

#[test]
fn processor_time_memory_and_switches_are_those_of_time() {
    // Works for a while and then sleeps often. It does not end before the last sample.
    const SCRIPT: &str = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; \
                          i=0; while [ $i -lt 40 ]; do i=$((i+1)); sleep 0.02; done; \
                          echo done; read line < $0";
    let dir = tempfile::tempdir().unwrap();
    let (report, end) = (dir.path().join("time"), dir.path().join("end"));
    Program::output(Command::new("mkfifo").arg(&end), LIMIT);
    let mut command = Command::new("/usr/bin/time");
    command.arg("-v").arg("-o").arg(&report).args(["sh", "-c", SCRIPT]).arg(&end);
    let program = Program::spawn(&mut command);
    let options = Options {
        pids: vec![i32::try_from(program.id()).unwrap()],
        with_children: true,
        ..Options::default()
    };
    let meter = Meter::start(&options).unwrap();
    let (send, samples) = std::sync::mpsc::channel();
    let sink = Box::new(move |sample: &streamgauge::meter::Sample| {
        send.send(sample.clone()).map_err(anyhow::Error::from)
    });
    let recording = Recording::start(meter, Duration::from_millis(20), sink).unwrap();
    program.stdout_line(LIMIT, |line| line == "done");
    let mut seen: Vec<_> = samples.try_iter().collect();
    // The first of these may have been begun before.
    seen.extend((0..2).map(|_| samples.recv_timeout(LIMIT).unwrap()));
    std::fs::write(&end, "\n").unwrap();
    program.wait(LIMIT);
    recording.stop().unwrap();
    let text = std::fs::read_to_string(&report).unwrap();
    let of_shell: Vec<_> = seen
        .into_iter()
        .chain(samples)
        .flat_map(|sample| sample.processes)
        .filter(|usage| usage.name == "sh")
        .collect();
    let shell = of_shell.last().expect("the shell was seen");
    let resident = of_shell.iter().map(|usage| usage.resident).max().unwrap();
    let theirs = of_time(&text, "User time (seconds):") + of_time(&text, "System time (seconds):");
    let ours = shell.cpu_user + shell.cpu_system;
    // time(1) includes the cost of the sleeps, some ms each.
    assert!(ours <= theirs + 0.03, "{ours} {theirs}");
    assert!(ours >= 0.5 * theirs - 0.3, "{ours} {theirs}");
    let most = of_time(&text, "Maximum resident set size (kbytes):") * 1024.0;
    assert!(resident as f64 <= most * 1.05 + 65_536.0, "{resident} {most}");
    assert!(resident > 100_000);
    // The shell waited for each of its sleeps.
    let waits = of_time(&text, "Voluntary context switches:");
    assert!(shell.switches_voluntary as f64 <= waits, "{} {waits}", shell.switches_voluntary);
    assert!(shell.switches_voluntary >= 20, "{}", shell.switches_voluntary);
}

#[test]
fn the_csv_has_the_studys_columns_and_the_json_lines_everything() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("run.csv");
    let pid = own_id().to_string();
    let arguments = ["--interval", "200ms", "--duration", "1s", "--pid", &pid, "--json", "-o"];
    let begun = Instant::now();
    let finished = Program::spawn(&mut meter(&[&arguments[..], &[csv.to_str().unwrap()]].concat()))
        .wait(LIMIT);
    let most = begun.elapsed().as_secs_f64() / 0.2;
    assert!(finished.status.success(), "{}", finished.stderr);
    let document: Value = serde_json::from_slice(&finished.stdout).unwrap();
    let text = std::fs::read_to_string(&csv).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let rows: Vec<Vec<f64>> =
        lines.map(|line| line.split(',').map(|n| n.parse().unwrap()).collect()).collect();
    // As many rows as the machine allowed, and no more than the time allowed.
    assert!((1..=most as usize).contains(&rows.len()), "{text}");
    assert_eq!(document["samples"], rows.len());
    for row in &rows {
        let [seconds, load, memory, cpu, up, down] = row[..] else { panic!("{row:?}") };
        assert!(seconds == seconds.trunc() && (0.0..60.0).contains(&seconds), "{row:?}");
        assert!(load >= 0.0 && (0.0..=100.0).contains(&cpu), "{row:?}");
        assert!(memory > 1e6 && up >= 0.0 && down >= 0.0, "{row:?}");
    }
    let json = std::fs::read_to_string(csv.with_extension("jsonl")).unwrap();
    let samples: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(samples.len(), rows.len());
    for (sample, row) in samples.iter().zip(&rows) {
        assert_eq!(sample["system"]["memory"].as_f64(), Some(row[2]));
        assert_eq!(sample["processes"][0]["pid"], own_id());
        assert!(sample["kernel"]["TcpRetransSegs"].is_u64(), "{sample}");
        assert!(sample["sockets"]["used"].as_u64() > Some(0), "{sample}");
        assert!(sample["slab"].as_u64() > Some(1 << 20), "{sample}");
    }
}

#[test]
fn a_late_sample_says_how_late_and_the_next_ones_are_on_time() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("run.csv");
    let arguments = ["--interval", "100ms", "-o", csv.to_str().unwrap(), "--json"];
    let program = Program::spawn(&mut meter(&arguments));
    let lines = || std::fs::read_to_string(&csv).map_or(0, |text| text.lines().count());
    let wait_for = |count: usize| eventually(LIMIT, "more lines", || lines() >= count);
    wait_for(3);
    program.pause();
    thread::sleep(Duration::from_millis(1500));
    let before = lines();
    program.resume();
    wait_for(before + 3);
    let finished = program.stop(LIMIT);
    let document: Value = serde_json::from_slice(&finished.stdout).unwrap();
    assert!(document["longest_interval"].as_f64().unwrap() >= 1.4, "{document:#}");
    let json = std::fs::read_to_string(csv.with_extension("jsonl")).unwrap();
    let at: Vec<f64> = json
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap()["at"].as_f64().unwrap())
        .collect();
    let late = at.windows(2).filter(|pair| pair[1] - pair[0] >= 1.4).count();
    assert!(late >= 1, "{at:?}");
    // Late samples are not repeated: no two samples for one interval.
    let turns: Vec<_> = at.iter().map(|at| (at / 0.1) as u64).collect();
    assert!(turns.windows(2).all(|pair| pair[0] < pair[1]), "{at:?}");
}

#[test]
fn without_a_file_the_csv_is_written_as_it_is_measured() {
    let program = Program::spawn(&mut meter(&["--interval", "50ms"]));
    program.stdout_line(LIMIT, |line| line == HEADER);
    program.stdout_line(LIMIT, |line| line.split(',').count() == 6 && line != HEADER);
    assert!(program.stop(LIMIT).status.success());
}

#[test]
fn a_measurement_shorter_than_its_interval_has_a_sample() {
    let mut command = meter(&["--duration", "100ms", "--interval", "1h", "--json"]);
    let output = Program::output(&mut command, LIMIT);
    let document: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(document["samples"], 1);
    assert!(document["elapsed"].as_f64().unwrap() >= 0.1, "{document}");
    assert!(document["memory"]["max"].as_f64().unwrap() > 0.0, "{document}");
}

#[test]
fn unmeasurable_targets_are_refused() {
    for (arguments, reason) in [
        (&["--pid", "2147483647"][..], "/proc"),
        (&["--pid", "x"], "invalid"),
        (&["--interval", "1us"], "not a time from 10ms"),
        (&["-o", "/nowhere/x.csv"], "/nowhere/x.csv"),
        (&["-o", "x.jsonl"], "-o names the CSV"),
    ] {
        let finished = Program::spawn(&mut meter(arguments)).wait(LIMIT);
        assert_eq!(finished.status.code(), Some(2), "{arguments:?} {}", finished.stderr);
        assert!(finished.stderr.contains(reason), "{}", finished.stderr);
    }
}

#[test]
fn the_published_schema_is_that_of_the_document() {
    assert_published("meter", &schemars::schema_for!(streamgauge::meter::summary::Document));
}
