//! Starts real servers.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use streamgauge::lab::peer::{Ingest, Job, Peer};
use streamgauge::lab::process::{Ended, Server};
use testkit::{Program, eventually, http};

use crate::common::assert_published;
use crate::{Scene, lab};

/// Longest wait, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);

/// Counts the processes with this text in their command line.
fn running(word: &Path) -> usize {
    let word = word.to_str().unwrap();
    let has = |process: procfs::process::Process| {
        let words = process.cmdline().ok()?;
        let ended = process.stat().ok()?.state == 'Z';
        (!ended && words.iter().any(|found| found.contains(word))).then_some(())
    };
    procfs::process::all_processes().unwrap().filter_map(|process| has(process.ok()?)).count()
}

/// Counts the processes in a server's group, including the guard that leads it.
fn group_of(server: &Server) -> usize {
    let group = |pid: i32| procfs::process::Process::new(pid).ok()?.stat().ok().map(|s| s.pgrp);
    let own = group(i32::try_from(server.pid()).unwrap()).unwrap();
    let all = procfs::process::all_processes().unwrap();
    all.filter_map(|process| group(process.ok()?.pid)).filter(|pgrp| *pgrp == own).count()
}

#[test]
fn nginx_serves_a_range_and_is_gone_with_its_workers() {
    let scene = Scene::new();
    fs::write(scene.path("media/a.bin"), (0..=255).collect::<Vec<u8>>()).unwrap();
    let peer = Peer::read(&lab().join("nginx.toml")).unwrap();
    let mut place = scene.place();
    place.cpus = Some("0".to_owned());
    let server = Server::start(&peer, &place, &scene.path("server.log")).unwrap();
    let url = server.url(Job::File, "a.bin").unwrap();
    assert_eq!(url, format!("http://127.0.0.1:{}/a.bin", server.http()));
    let address = ([127, 0, 0, 1], server.http()).into();
    let answer = http::get_with(address, "/a.bin", &[("Range", "bytes=16-19")]);
    assert_eq!((answer.status(), answer.body.as_slice()), (206, [16, 17, 18, 19].as_slice()));
    // The guard, the master and at least one worker.
    assert!(group_of(&server) >= 3);
    assert!(server.command().starts_with(&["taskset".to_owned()]));
    let pid = server.pid();
    assert_eq!(server.stop().unwrap(), Ended::Asked);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(running(&scene.path("work")), 0);
}

#[test]
fn a_server_that_dies_at_once_is_quoted() {
    let scene = Scene::new();
    let peer = scene.script("echo first; echo no such option >&2; exit 3", "");
    let error = format!("{:#}", scene.start(&peer).expect_err("dead"));
    assert!(
        error.starts_with("mine: the server has ended, exit status: 3; it printed last:"),
        "{error}"
    );
    assert!(error.ends_with("first\nno such option"), "{error}");
    assert_eq!(running(scene.path("").as_path()), 0);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let scene = Scene::new();
    let text = "title = \"M\"\nabout = \"M.\"\nversion.command = [\"true\"]\n[start]\n\
                command = [\"/nonexistent/server\"]\nready.line = \"x\"\n[serves]\n";
    let error = format!("{:#}", scene.start(&scene.peer(text).unwrap()).expect_err("absent"));
    assert!(error.starts_with("mine: /nonexistent/server: No such file"), "{error}");
}

#[test]
fn a_server_that_never_becomes_ready_is_ended() {
    let scene = Scene::new();
    let marker = scene.path("marker");
    let script = format!("echo almost; sleep 600 & : {}; wait", marker.display());
    // It has printed something by then.
    let peer = scene.script(&script, "seconds = 8");
    let begun = Instant::now();
    let error = format!("{:#}", scene.start(&peer).expect_err("never ready"));
    assert_eq!(error, "mine: not ready after 8 s; it printed last:\nalmost");
    assert!(begun.elapsed() >= Duration::from_secs(8));
    assert_eq!(running(&marker), 0);
}

#[test]
fn a_server_that_ignores_its_signal_is_killed_with_its_workers() {
    let scene = Scene::new();
    // The worker ignores the signal, too: ignored signals are inherited.
    let peer = scene.script("trap '' TERM; sleep 600 & echo ready; wait; sleep 600", "");
    let server = scene.start(&peer).unwrap();
    // The guard, the shell and its worker.
    assert_eq!(group_of(&server), 3);
    let (pid, begun) = (server.pid(), Instant::now());
    assert_eq!(server.stop().unwrap(), Ended::Killed);
    assert!(begun.elapsed() >= Duration::from_secs(10));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn workers_are_asked_to_end_as_the_server_is() {
    let scene = Scene::new();
    let script = "trap 'exit 0' TERM; (trap 'echo worker; exit 0' TERM; echo ready; \
                  while :; do sleep 0.01; done) & while :; do sleep 0.01; done";
    let server = scene.start(&scene.script(script, "")).unwrap();
    assert_eq!(server.stop().unwrap(), Ended::Asked);
    // The shell may add a message about a program that was ended.
    assert!(fs::read_to_string(scene.path("server.log")).unwrap().contains("worker\n"));
}

#[test]
fn a_peer_is_asked_with_its_own_signal() {
    let scene = Scene::new();
    let script =
        "trap '' TERM; trap 'echo asked; exit 0' INT; echo ready; while :; do sleep 0.01; done";
    let server = scene.start(&scene.script(script, "[stop]\nsignal = \"INT\"")).unwrap();
    assert_eq!(server.stop().unwrap(), Ended::Asked);
    assert!(fs::read_to_string(scene.path("server.log")).unwrap().contains("asked\n"));
}

#[test]
fn a_dropped_server_is_gone_with_its_workers() {
    let scene = Scene::new();
    let marker = scene.path("marker");
    let script = format!("sh -c 'echo ready; sleep 600; : {}' & wait", marker.display());
    let server = scene.start(&scene.script(&script, "")).unwrap();
    assert!(running(&marker) >= 1);
    drop(server);
    assert_eq!(running(&marker), 0);
}

#[test]
fn a_port_that_is_taken_is_tried_again_with_another() {
    let scene = Scene::new();
    // The script finds its port in use twice.
    let script = "echo x >> tries; if [ $(wc -l < tries) -lt 3 ]; then \
                  echo 'bind: Address already in use'; exit 1; fi; echo ready {http}; exec sleep 600";
    let server = scene.start(&scene.script(script, "")).unwrap();
    let log = fs::read_to_string(scene.path("server.log")).unwrap();
    assert!(log.ends_with(&format!("ready {}\n", server.http())), "{log}");
    assert_eq!(log.matches("Address already in use").count(), 2);
}

#[test]
fn an_origin_runs_for_as_long_as_the_server_before_it() {
    let scene = Scene::new();
    let script = |name: &str, says: &str| {
        format!(
            "trap 'echo {name} >> {{root}}/ended; exit 0' TERM; echo {says}; \
             while :; do sleep 0.01; done"
        )
    };
    let publish = "[publish]\nrtmp = \"rtmp://{host}:{rtmp}/live/{name}\"\n\
                   whip = \"http://{host}:{http}/live/{name}/whip\"";
    scene.script(&script("origin", "ready"), "");
    let text = fs::read_to_string(scene.path("mine.toml")).unwrap();
    fs::write(scene.path("behind.toml"), format!("{text}{publish}\n")).unwrap();
    scene.script(&script("server", "ready, before {origin}"), "");
    let text = fs::read_to_string(scene.path("mine.toml")).unwrap();
    let peer = scene.peer(&format!("origin = \"behind\"\n{text}")).unwrap();
    let server = scene.start(&peer).unwrap();
    let origin = server.origin().unwrap();
    let (pid, rtmp, http) = (origin.pid(), origin.rtmp(), origin.http());
    let said = fs::read_to_string(scene.path("server.log")).unwrap();
    assert_eq!(said, format!("ready, before {}\n", origin.http()));
    assert_eq!(fs::read_to_string(scene.path("origin.log")).unwrap(), "ready\n");
    let url = |by| server.publish_url(by, "x").unwrap();
    assert_eq!(url(Ingest::Rtmp), format!("rtmp://127.0.0.1:{rtmp}/live/x"));
    assert_eq!(url(Ingest::Whip), format!("http://127.0.0.1:{http}/live/x/whip"));
    assert_eq!(server.stop().unwrap(), Ended::Asked);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(fs::read_to_string(scene.path("media/ended")).unwrap(), "server\norigin\n");
}

#[test]
fn files_environment_and_folders_are_as_the_peer_says() {
    let scene = Scene::new();
    let more =
        "environment = { MINE = \"{rtmp}\" }\n[[file]]\npath = \"a/b\"\ntext = \"{root} {cpus}\"";
    let peer = scene.script("cat a/b; echo; pwd; echo $MINE; echo ready; exec sleep 600", more);
    let mut place = scene.place();
    place.cpus = Some("0".to_owned());
    let server = Server::start(&peer, &place, &scene.path("server.log")).unwrap();
    let said = fs::read_to_string(scene.path("server.log")).unwrap();
    let (root, work) = (scene.path("media"), scene.path("work"));
    let expected = format!("{} 1\n{}\n{}\nready\n", root.display(), work.display(), server.rtmp());
    assert_eq!(said, expected);
}

#[test]
fn a_loads_path_must_be_known_where_a_peer_needs_it() {
    let scene = Scene::new();
    let peer = scene.script("echo ready {path}; exec sleep 600", "");
    let error = format!("{:#}", scene.start(&peer).expect_err("no path"));
    assert!(
        error.contains("mine.toml: start.command: ") && error.ends_with("{path} is not known here")
    );
    let mut place = scene.place();
    place.wanted = Some("a.bin".to_owned());
    let server = Server::start(&peer, &place, &scene.path("server.log")).unwrap();
    assert!(fs::read_to_string(scene.path("server.log")).unwrap().contains("ready a.bin"));
    assert_eq!(
        server.url(Job::File, "b").unwrap(),
        format!("http://127.0.0.1:{}/b", server.http())
    );
    assert_eq!(server.url(Job::Pull, "b").expect_err("no pull").to_string(), "mine: no pull");
    assert!(server.publish_url(Ingest::Rtmp, "x").is_err());
}

/// Starts the program of this test again, and kills it while a server runs.
#[test]
fn no_server_outlives_a_program_that_is_killed() {
    const ASKED: &str = "PEERS_TEST_FOLDER";
    const NAME: &str = "servers::no_server_outlives_a_program_that_is_killed";
    if let Some(folder) = std::env::var_os(ASKED) {
        let scene = Scene::new();
        let marker = Path::new(&folder).join("marker");
        let script = format!("sh -c 'echo ready; sleep 600; : {}' & wait", marker.display());
        let _server = scene.start(&scene.script(&script, "")).unwrap();
        fs::write(Path::new(&folder).join("started"), "").unwrap();
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let scene = Scene::new();
    let mut this = Command::new(std::env::current_exe().unwrap());
    this.args(["--exact", NAME]).env(ASKED, scene.path("")).env("TMPDIR", scene.path(""));
    let mut this = Program::spawn(&mut this);
    eventually(LIMIT, "the server runs", || scene.path("started").exists());
    let marker = scene.path("marker");
    assert!(running(&marker) >= 1);
    // SIGKILL, which it cannot handle.
    let pid = rustix::process::Pid::from_raw(i32::try_from(this.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(this.ended_within(LIMIT).is_some());
    eventually(LIMIT, "the server has ended", || running(&marker) == 0);
}

#[test]
fn installed_peers_are_listed_with_their_version() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.args(["peers", "--json"]).current_dir(lab());
    let document = Program::output(&mut command, LIMIT * 2);
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    let peers = document["peers"].as_array().unwrap();
    let nginx = peers.iter().find(|peer| peer["name"] == "nginx").unwrap();
    assert!(nginx["version"].as_str().unwrap().starts_with("nginx version: nginx/"), "{nginx}");
    assert_eq!(nginx["serves"][0], "file");
    assert_eq!(nginx["from"][0], "Debian nginx");
}

#[test]
fn a_failed_installation_is_reported_and_the_rest_goes_on() {
    let scene = Scene::new();
    for (name, version) in [("bad", "/nonexistent/server"), ("good", "sh\", \"-c\", \"echo 1.2")] {
        let text = format!(
            "title = \"M\"\nabout = \"M.\"\nversion.command = [\"{version}\"]\n[start]\n\
             command = [\"m\"]\nready.line = \"x\"\n[serves]\n"
        );
        fs::write(scene.path(&format!("{name}.toml")), text).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.args(["peers", "--json", "--install"]).current_dir(lab());
    command.args([scene.path("bad.toml"), scene.path("good.toml")]);
    let finished = Program::spawn(&mut command).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2));
    let document: serde_json::Value = serde_json::from_slice(&finished.stdout).unwrap();
    assert!(document["peers"][0]["failed"].as_str().unwrap().contains("/nonexistent/server"));
    assert_eq!(document["peers"][1]["version"], "1.2");
    assert!(document["peers"][1]["failed"].is_null());
}

#[test]
fn the_published_schema_is_that_of_the_document() {
    assert_published("peers", &schemars::schema_for!(streamgauge::lab::install::Document));
}
