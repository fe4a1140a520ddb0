//! Agents and crews that are missing or go away.

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Nats, Program, eventually};

use crate::common::{children, document_of, signal, silent, start};
use crate::support::{LIMIT, agent, all_idle, run, waiting};

#[test]
fn too_few_agents_are_an_error_that_says_which_there_are() {
    let nats = Nats::start();
    let _agent = agent(&nats, "a");
    let arguments = ["viewers", "rtmp://127.0.0.1:9/live/x", "--duration", "1s"];
    let finished = run(&nats, 2, &arguments).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
    let expected = "2 agents are needed, and 1 idle ones were found: a";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    // The one that was found is free again, and a run of one agent has it.
    let (_, document) = document_of(&run(&nats, 1, &arguments).wait(LIMIT));
    assert_eq!(document["agents"][0]["name"], "a", "{document:#}");
}

#[test]
fn an_agent_serves_one_run_at_a_time() {
    let (nats, folder) = (Nats::start(), tempfile::tempdir().unwrap());
    let _agent = agent(&nats, "a");
    let (_listener, url) = silent();
    let first = waiting(&nats, 1, &url, folder.path());
    let second = run(&nats, 1, &["viewers", &url, "--duration", "1s"]).wait(LIMIT);
    assert_eq!(second.status.code(), Some(2));
    assert!(second.stderr.contains("agent a: busy"), "{}", second.stderr);
    first.terminate();
    let (_, document) = document_of(&first.wait(LIMIT));
    assert_eq!((&document["viewers"]["reported"], &document["lost"]), (&6.into(), &0.into()));
    all_idle(&nats, 1);
}

/// Checks that one of two agents was lost with its half of the viewers.
#[track_caller]
fn assert_lost(run: Program, name: &str) {
    run.stderr_line(LIMIT, |line| line.contains(&format!("agent {name}: it is")));
    run.terminate();
    let (code, document) = document_of(&run.wait(LIMIT));
    assert_eq!((code, &document["interrupted"]), (3, &true.into()), "{document:#}");
    assert_eq!((&document["lost"], &document["viewers"]["reported"]), (&3.into(), &3.into()));
    for agent in document["agents"].as_array().unwrap() {
        let is_lost = agent["name"] == name;
        assert_eq!(agent["lost"] != Value::Null, is_lost, "{document:#}");
        if is_lost {
            assert!(agent["lost"]["at"].as_f64().unwrap() > 0.0, "{document:#}");
        }
    }
    let reasons = document["generator"]["reasons"].to_string();
    assert!(reasons.contains(&format!("agent {name}: it is ")), "{reasons}");
    assert!(reasons.contains(&format!("3 viewers of agent {name} are lost")), "{reasons}");
}

#[test]
fn an_agent_that_is_killed_is_named_and_the_others_go_on() {
    let (nats, folder) = (Nats::start(), tempfile::tempdir().unwrap());
    let [_a, b] = [agent(&nats, "a"), agent(&nats, "b")];
    let (_listener, url) = silent();
    let run = waiting(&nats, 2, &url, folder.path());
    signal(&b, Signal::KILL);
    assert_lost(run, "b");
}

#[test]
fn an_agent_that_is_ended_takes_its_processes_along() {
    let (nats, folder) = (Nats::start(), tempfile::tempdir().unwrap());
    let [a, _b] = [agent(&nats, "a"), agent(&nats, "b")];
    let (_listener, url) = silent();
    let run = waiting(&nats, 2, &url, folder.path());
    let processes = children(&a);
    assert_eq!(processes.len(), 1);
    a.terminate();
    assert_eq!(a.wait(LIMIT).status.code(), Some(0));
    let ended = |id: &i32| !std::path::Path::new(&format!("/proc/{id}")).exists();
    eventually(LIMIT, "its processes have ended", || processes.iter().all(ended));
    assert_lost(run, "a");
}

#[test]
fn an_agent_that_hangs_is_named_and_the_others_go_on() {
    let (nats, folder) = (Nats::start(), tempfile::tempdir().unwrap());
    let [a, _b] = [agent(&nats, "a"), agent(&nats, "b")];
    let (_listener, url) = silent();
    let run = waiting(&nats, 2, &url, folder.path());
    signal(&a, Signal::STOP);
    assert_lost(run, "a");
    // It finds out that nobody waits for it.
    signal(&a, Signal::CONT);
    all_idle(&nats, 2);
    eventually(LIMIT, "its processes have ended", || children(&a).is_empty());
}

#[test]
fn agents_of_a_crew_that_is_killed_serve_the_next() {
    let (nats, folder) = (Nats::start(), tempfile::tempdir().unwrap());
    let agents = [agent(&nats, "a"), agent(&nats, "b")];
    let (_listener, url) = silent();
    let first = waiting(&nats, 2, &url, folder.path());
    assert!(agents.iter().all(|agent| children(agent).len() == 1));
    signal(&first, Signal::KILL);
    all_idle(&nats, 2);
    eventually(LIMIT, "their processes have ended", || {
        agents.iter().all(|agent| children(agent).is_empty())
    });
    let folder = tempfile::tempdir().unwrap();
    let next = waiting(&nats, 2, &url, folder.path());
    next.terminate();
    assert_eq!(document_of(&next.wait(LIMIT)).1["viewers"]["reported"], 6);
}

#[test]
fn a_run_ends_without_its_nats_server() {
    let (mut nats, folder) = (Nats::start(), tempfile::tempdir().unwrap());
    let agents = [agent(&nats, "a"), agent(&nats, "b")];
    let (_listener, url) = silent();
    let run = waiting(&nats, 2, &url, folder.path());
    nats.kill(0);
    let (code, document) = document_of(&run.wait(LIMIT));
    assert_eq!((code, &document["lost"]), (3, &6.into()), "{document:#}");
    assert!(document["agents"].as_array().unwrap().iter().all(|a| a["lost"] != Value::Null));
    eventually(LIMIT, "the agents' processes have ended", || {
        agents.iter().all(|agent| children(agent).is_empty())
    });
    // They come back with the server.
    nats.run(0);
    all_idle(&nats, 2);
}

#[test]
fn agents_end_when_they_are_told_and_refuse_what_they_cannot_use() {
    let nats = Nats::start();
    let one = start(["agent", "--nats", &nats.url(0)]);
    let ready = one.stdout_line(LIMIT, |line| line.starts_with("ready agent="));
    assert!(ready.ends_with(&format!(" nats={}", nats.url(0))), "{ready}");
    one.terminate();
    assert_eq!(one.wait(LIMIT).status.code(), Some(0));
    let url = nats.url(0);
    for (arguments, complaint) in [
        (&["agent", "--nats", &url, "--name", "a b"][..], "is no name"),
        (&["agent", "--nats", &url, "--nats-credentials", "/none"], "/none"),
        (&["agent"], "--nats"),
        (&["viewers", "rtmp://h/live/x", "--duration", "1s", "--agents", "2"], "--nats"),
        (&["http", "http://h/", "--nats", &url], "--agents"),
    ] {
        let finished = start(arguments).wait(LIMIT);
        assert_eq!(finished.status.code(), Some(2), "{arguments:?}");
        assert!(finished.stderr.contains(complaint), "{}", finished.stderr);
    }
    let arguments =
        ["http", "http://127.0.0.1:9/", "--agents", "1", "--nats", "nats://127.0.0.1:9"];
    let finished = start(arguments).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2));
    assert!(finished.stderr.contains("NATS at nats://127.0.0.1:9"), "{}", finished.stderr);
}
