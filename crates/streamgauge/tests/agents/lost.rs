//! What is left of a run when agents, or messages of theirs, are lost.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::Signal;
use serde_json::Value;
use streamgauge::agents::wire::Ask;
use testkit::{Nats, Program, eventually};

use crate::common::{children, document_of, lines, origin, signal, silent};
use crate::support::{LIMIT, agent, block_on, client, hellos, run, stand_in};

/// A server of HTTP that never answers, and how many connections it has.
fn mute() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let of_all = Arc::clone(&count);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for socket in listener.incoming().flatten() {
            kept.push(socket);
            of_all.store(kept.len(), Relaxed);
        }
    });
    (url, count)
}

/// Starts requests that two connections of each agent wait for.
fn requests(nats: &Nats, agents: u32) -> Program {
    let (url, connections) = mute();
    let all = 2 * agents;
    let load = ["http", &url, "--connections", &all.to_string(), "--duration", "300s"];
    let waits = ["--timeout", "290s", "--threads", &agents.to_string()];
    let program = run(nats, agents, &[&load[..], &waits].concat());
    eventually(LIMIT, "all connections are open", || connections.load(Relaxed) >= all as usize);
    program
}

#[test]
fn requests_have_a_document_when_all_agents_are_lost() {
    let nats = Nats::start();
    let agent = agent(&nats, "a");
    let run = requests(&nats, 1);
    signal(&agent, Signal::KILL);
    let (code, document) = document_of(&run.wait(LIMIT));
    assert_eq!((code, &document["agents"][0]["name"]), (3, &"a".into()), "{document:#}");
    let why = document["agents"][0]["lost"]["why"].as_str().unwrap();
    assert!(why.contains("it is gone"), "{document:#}");
}

#[test]
fn an_agent_that_is_silent_when_the_run_ends_is_lost() {
    let nats = Nats::start();
    let [a, _b] = [agent(&nats, "a"), agent(&nats, "b")];
    let run = requests(&nats, 2);
    signal(&a, Signal::STOP);
    // The run ends before the agent would be given up.
    run.terminate();
    let (code, document) = document_of(&run.wait(LIMIT));
    signal(&a, Signal::CONT);
    assert_eq!(code, 3, "{document:#}");
    let [a, b] = [0, 1].map(|at| &document["agents"][at]);
    let why = a["lost"]["why"].as_str().unwrap_or_else(|| panic!("{document:#}"));
    assert!(why.starts_with("it is silent: no answer for "), "{document:#}");
    assert!(a["lost"]["at"].as_f64().is_some() && b["lost"] == Value::Null, "{document:#}");
}

#[test]
fn capacity_has_the_steps_before_an_agent_was_lost() {
    let (nats, server) = (Nats::start(), origin());
    let [_a, b] = [agent(&nats, "a"), agent(&nats, "b")];
    let url = server.url("/live/demo/v0/media.m3u8");
    let steps = ["--start", "2", "--step", "2", "--max", "200", "--pause", "15s"];
    // Viewers get something also where the machine stands still for some seconds.
    let criterion = ["--min-bitrate", "1k", "--duration", "12s", "--processes", "2"];
    let program = run(&nats, 2, &[&["capacity", &url], &steps[..], &criterion].concat());
    eventually(LIMIT, "the first step begins", || !children(&b).is_empty());
    eventually(LIMIT, "the first step ends", || children(&b).is_empty());
    signal(&b, Signal::KILL);
    let (code, document) = document_of(&program.wait(LIMIT));
    assert_eq!(code, 3, "{document:#}");
    assert!(document["lost"].as_str().is_some_and(|why| why.contains("agent b")), "{document:#}");
    let steps = document["steps"].as_array().unwrap();
    assert!(steps.len() < 10 && steps[0]["results"]["reported"] == 2, "{document:#}");
}

#[test]
fn what_was_taken_is_told_again_when_a_message_is_lost() {
    let nats = Nats::start();
    let _agent = agent(&nats, "real");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let (_listener, url) = silent();
    // Each process sends more than may wait to be taken. On a busy machine that may come in few messages, so the run lasts
    // until what was taken has been told several times.
    let viewers = ["viewers", &url, "--batch-size", "200", "--duration", "3s", "--loops", "2"];
    let kept = ["--timeout", "50s", "-o", output];
    let lost = Arc::new(AtomicUsize::new(0));
    let (_, document) = block_on(async {
        let client = client(&nats).await;
        let real = hellos(&client, 1).await["real"].clone();
        let of_all = Arc::clone(&lost);
        // Of three messages that tell what was taken, two are lost.
        let passes = move |ask: &Ask| {
            !matches!(ask, Ask::Taken { .. }) || of_all.fetch_add(1, Relaxed) % 3 == 2
        };
        let lossy = tokio::spawn(async move {
            stand_in(client, real, "lossy", passes, |answer| answer).await;
        });
        let finder = crate::support::client(&nats).await;
        hellos(&finder, 2).await;
        let run = run(&nats, 2, &[&viewers[..], &kept].concat());
        let finished = tokio::task::spawn_blocking(move || run.wait(LIMIT)).await.unwrap();
        lossy.abort();
        document_of(&finished)
    });
    assert!(lost.load(Relaxed) >= 2, "nothing was lost");
    assert_eq!((&document["viewers"]["reported"], &document["lost"]), (&200.into(), &0.into()));
    let reports = lines(&folder.path().join("viewers.jsonl"));
    let ids: BTreeSet<u64> = reports.iter().map(|line| line["id"].as_u64().unwrap()).collect();
    assert_eq!((reports.len(), ids), (200, (0..200).collect()));
}
