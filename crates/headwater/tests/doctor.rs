//! What `headwater doctor` says of this machine, which tests make worse.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Finished, Nats, Program, Server, certificate};

const BINARY: &str = env!("CARGO_BIN_EXE_headwater");
const LIMIT: Duration = Duration::from_secs(90);

/// What every machine on which tests run can carry.
const MODEST: &str = "[http]\nlisten = \"127.0.0.1:0\"\nmax_connections = 10\n\
    [rtmp]\nlisten = \"127.0.0.1:0\"\nmax_publishers = 10\nmax_players = 10\n\
    [webrtc]\nlisten = \"127.0.0.1:0\"\nmax_sessions = 10\n[control]\nlisten = \"127.0.0.1:0\"\n[live]\nmemory = \"16MiB\"\n\
    [vod]\nroot = \".\"\n";

/// Runs the doctor in a folder, by this shell command in which `$0` is the program, with this configuration.
fn run_by(folder: &Path, shell: &str, configuration: &str) -> Finished {
    std::fs::write(folder.join("headwater.toml"), configuration).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", shell, BINARY]).current_dir(folder);
    Program::spawn(&mut command).wait(LIMIT)
}

/// The exit status and the document of the doctor.
fn examine_by(folder: &Path, shell: &str, configuration: &str) -> (Option<i32>, Value) {
    let finished = run_by(folder, &format!("{shell} --json"), configuration);
    let document = serde_json::from_slice(&finished.stdout);
    (finished.status.code(), document.unwrap_or_else(|error| panic!("{error}: {finished:?}")))
}

const DOCTOR: &str = "exec \"$0\" doctor --config headwater.toml";

fn examine(configuration: &str) -> (Option<i32>, Value) {
    let folder = tempfile::tempdir().unwrap();
    examine_by(folder.path(), DOCTOR, configuration)
}

/// The checks of a name.
fn named<'a>(document: &'a Value, name: &str) -> Vec<&'a Value> {
    document["checks"].as_array().unwrap().iter().filter(|check| check["name"] == name).collect()
}

#[track_caller]
fn assert_only_problem(found: &(Option<i32>, Value), name: &str) {
    let (status, document) = found;
    let checks = document["checks"].as_array().unwrap().iter();
    let problems: Vec<_> =
        checks.filter(|check| check["level"] == "problem").map(|check| &check["name"]).collect();
    assert_eq!(problems, [name], "{document:#}");
    assert_eq!((*status, &document["problems"]), (Some(1), &Value::from(1)), "{document:#}");
    let check = named(document, name).into_iter().find(|check| check["level"] == "problem");
    let check = check.unwrap();
    assert!(check["why"].is_string() && check["remedy"].is_string(), "{check:#}");
}

#[test]
fn a_machine_that_can_do_what_is_configured_is_well_and_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let finished = run_by(folder.path(), DOCTOR, MODEST);
    let text = String::from_utf8(finished.stdout).unwrap();
    assert_eq!(finished.status.code(), Some(0), "{text}");
    let (last, lines) =
        text.lines().collect::<Vec<_>>().split_last().map(|(l, r)| (*l, r.to_vec())).unwrap();
    assert!(last.starts_with("0 problems, "), "{text}");
    for line in &lines {
        let told = line.starts_with("warning  ") && line.contains(". Do: ");
        assert!(told || line.starts_with("ok       "), "{line}");
    }
    for name in ["descriptors", "live.memory", "workers", "clock", "vod.root", "rtmp.listen"] {
        assert!(
            lines.iter().any(|line| line[9..].starts_with(&format!("{name}: "))),
            "{name}\n{text}"
        );
    }
    // Neither TLS nor access control nor a cluster is configured.
    assert!(!["http.tls", "access.", "cluster."].iter().any(|name| text.contains(name)), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(finished.stderr, "");
}

#[test]
fn what_cannot_be_read_is_neither_well_nor_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, configuration, expected) in [
        (DOCTOR, "[htttp]\n", "headwater.toml:1: htttp: unknown key"),
        (DOCTOR, "[http.tls]\nkey = \"k.pem\"\n", "http.tls.certificate: must be given"),
        ("exec \"$0\" doctor --config none.toml", "", "none.toml"),
        ("exec \"$0\" doctor --fast", "", "--fast"),
    ] {
        let finished = run_by(folder.path(), shell, configuration);
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert!(finished.stderr.contains(expected) && finished.stdout.is_empty(), "{finished:?}");
    }
    let finished = run_by(folder.path(), &format!("{DOCTOR} >/dev/full"), MODEST);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert!(finished.stderr.contains("standard output: "), "{finished:?}");
}

#[test]
fn a_port_that_another_program_has_is_a_problem() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let found =
        examine(&MODEST.replace(
            "[rtmp]\nlisten = \"127.0.0.1:0\"",
            &format!("[rtmp]\nlisten = \"{address}\""),
        ));
    assert_only_problem(&found, "rtmp.listen");
    let [check] = named(&found.1, "rtmp.listen")[..] else { panic!("{:#}", found.1) };
    assert!(check["found"].as_str().unwrap().contains(&address.to_string()), "{check:#}");

    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let found = examine(&MODEST.replace(
        "[webrtc]\nlisten = \"127.0.0.1:0\"",
        &format!("[webrtc]\ntcp = false\nlisten = \"{address}\""),
    ));
    assert_only_problem(&found, "webrtc.listen");
}

#[test]
fn a_server_that_runs_already_is_no_problem() {
    let server = Server::start(BINARY, ["--workers", "2"]);
    let configuration = MODEST.replace(
        "[http]\nlisten = \"127.0.0.1:0\"",
        &format!("[http]\nlisten = \"{}\"", server.http),
    );
    let (status, document) = examine(&configuration);
    assert_eq!(status, Some(0), "{document:#}");
    let [check] = named(&document, "http.listen")[..] else { panic!("{document:#}") };
    let told = format!("headwater itself, process {}", server.id());
    assert!(check["found"].as_str().unwrap().contains(&told), "{check:#}");
    // It was not disturbed.
    assert_eq!(server.get("/healthz").status(), 200);
}

#[test]
fn a_low_limit_of_descriptors_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let shell = format!("ulimit -n 256; {DOCTOR}");
    assert_only_problem(&examine_by(folder.path(), &shell, MODEST), "descriptors");
}

#[test]
fn certificates_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let [pem, key, other] = ["c.pem", "k.pem", "o.pem"].map(|name| folder.path().join(name));
    let configuration = |key: &Path| {
        format!(
            "{MODEST}[http.tls]\nlisten = \"127.0.0.1:0\"\ncertificate = {pem:?}\nkey = {key:?}\n"
        )
    };
    certificate::make_expired("test", &pem, &key);
    let found = examine(&configuration(&key));
    assert_only_problem(&found, "http.tls.certificate");
    let [check] = named(&found.1, "http.tls.certificate")[..] else { panic!("{:#}", found.1) };
    assert!(check["found"].as_str().unwrap().contains(" expired "), "{check:#}");

    // A key of another certificate.
    certificate::make("test", &folder.path().join("unused.pem"), &other);
    let found = examine(&configuration(&other));
    assert_only_problem(&found, "http.tls.certificate");
    let text = found.1.to_string();
    assert!(text.contains("is not the key of the certificate"), "{text}");

    // A good one for 30 days, though nobody but its own key vouches for it.
    certificate::make("test", &pem, &key);
    let (status, document) = examine(&configuration(&key));
    let [check] = named(&document, "http.tls.certificate")[..] else { panic!("{document:#}") };
    assert_eq!((status, &check["level"]), (Some(0), &Value::from("warning")), "{document:#}");
    assert!(check["found"].as_str().unwrap().contains("127.0.0.1, localhost"), "{check:#}");
    assert_eq!(named(&document, "http.tls.listen").len(), 1);
}

#[test]
fn ffmpeg_is_looked_for_where_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let without = format!("PATH=/nowhere; {DOCTOR}");
    let (status, document) = examine_by(folder.path(), &without, MODEST);
    let [check] = named(&document, "ladder.ffmpeg")[..] else { panic!("{document:#}") };
    assert_eq!((status, &check["level"]), (Some(0), &Value::from("warning")), "{document:#}");
    let ladder = format!("{MODEST}[ladder]\nenabled = true\nmax_streams = 1\nmemory = \"64MiB\"\n");
    assert_only_problem(&examine_by(folder.path(), &without, &ladder), "ladder.ffmpeg");
    let (status, document) = examine(&ladder);
    let [check] = named(&document, "ladder.ffmpeg")[..] else { panic!("{document:#}") };
    assert_eq!((status, &check["level"]), (Some(0), &Value::from("ok")), "{document:#}");
    let off = MODEST.replace("[webrtc]\n", "[webrtc]\ntranscode = false\n");
    let (_, document) = examine_by(folder.path(), &without, &off);
    assert_eq!(named(&document, "ladder.ffmpeg"), [&Value::Null; 0], "{document:#}");
}

#[test]
fn nats_must_answer_with_jetstream() {
    let mut nats = Nats::start();
    let configuration = format!("{MODEST}[cluster]\nnats = [{:?}]\n", nats.url(0));
    let (status, document) = examine(&configuration);
    assert_eq!(status, Some(0), "{document:#}");
    assert_eq!(named(&document, "cluster.nats")[0]["level"], "ok", "{document:#}");
    nats.kill(0);
    assert_only_problem(&examine(&configuration), "cluster.nats");
}

#[test]
fn servers_that_do_not_answer_do_not_hold_the_doctor() {
    // They take connections, and say nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let configuration = format!(
        "{}endpoint = \"http://{address}\"\nallow_http = true\ncache_size = \"64MiB\"\ntimeout = \"1s\"\n\
         [cluster]\nnats = [\"nats://{address}\"]\n[access.jwt]\nkeys = \"http://{address}/keys\"\n",
        MODEST.replace("root = \".\"\n", "root = \"s3://films\"\n[vod.store]\n")
    );
    let begun = Instant::now();
    // With credentials of its own, nobody else is asked for them.
    let shell = format!("export AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=y; {DOCTOR}");
    let (status, document) = examine_by(folder.path(), &shell, &configuration);
    // Each has its own limit, and they are asked at the same time.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!((status, &document["problems"]), (Some(1), &Value::from(3)), "{document:#}");
    for name in ["vod.root", "cluster.nats", "access.jwt.keys"] {
        assert_eq!(named(&document, name)[0]["level"], "problem", "{name}: {document:#}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no cache was made");
}
