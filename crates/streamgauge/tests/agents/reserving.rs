//! Before a run begins: agents are asked together, and are free again when there is no run.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use rustix::process::Signal;
use streamgauge::agents::wire::{self, Answer, Ask};
use testkit::Nats;

use crate::common;
use crate::support::{LIMIT, agent, block_on, client, hello, next, run};

const VIEWERS: [&str; 4] = ["viewers", "rtmp://127.0.0.1:9/live/x", "--duration", "1s"];

#[test]
fn a_crew_that_is_interrupted_before_its_run_frees_its_agents() {
    for signal in [Signal::INT, Signal::TERM] {
        let nats = Nats::start();
        let agent = agent(&nats, "a");
        // Nobody knows the second agent that is needed.
        let run = run(&nats, 2, &VIEWERS);
        agent.stderr_line(LIMIT, |line| line.ends_with("reserved"));
        common::signal(&run, signal);
        let finished = run.wait(LIMIT);
        // On a slow machine, the signal may come when the crew has given up by itself.
        let is_late = finished.stderr.contains("2 agents are needed");
        let expected = if is_late { 2 } else { 130 };
        assert_eq!(finished.status.code(), Some(expected), "{}", finished.stderr);
        let idle = agent.stderr_line(LIMIT, |line| line.contains("idle: "));
        assert!(idle.ends_with("idle: released"), "{idle}");
    }
}

#[test]
fn agents_are_asked_together() {
    let nats = Nats::start();
    let finished = block_on(async {
        let client = client(&nats).await;
        let mut calls = client.subscribe(wire::FIND).await.unwrap();
        let mut asked = client.subscribe(wire::subject("*")).await.unwrap();
        client.flush().await.unwrap();
        let run = run(&nats, 3, &VIEWERS);
        let run = tokio::task::spawn_blocking(move || run.wait(LIMIT));
        let mut replies = BTreeMap::new();
        // No agent answers before all have been asked.
        while replies.len() < 3 {
            tokio::select! {
                Some(call) = calls.next() => for id in ["x", "y", "z"] {
                    let reply = call.reply.clone().unwrap();
                    client.publish(reply, wire::write(&hello(id), b"")).await.unwrap();
                },
                message = next(&mut asked) => {
                    let (ask, _) = wire::read::<Ask>(&message.payload).unwrap();
                    if matches!(ask, Ask::Reserve { .. }) {
                        replies.insert(message.subject.to_string(), message.reply.unwrap());
                    }
                }
            }
        }
        let no = wire::write(&Answer::Refused("it has a headache".to_owned()), b"");
        for reply in replies.into_values() {
            client.publish(reply, no.clone()).await.unwrap();
        }
        client.flush().await.unwrap();
        drop((calls, asked));
        run.await.unwrap()
    });
    assert_eq!(finished.status.code(), Some(2), "{}", finished.stderr);
    for name in ["x", "y", "z"] {
        let complaint = format!("agent {name}: it has a headache");
        // On a slow machine, the crew may give up before the answer comes. All were asked before it was sent.
        let late = format!("agent {name}: it did not answer");
        let told = [complaint, late].iter().any(|why| finished.stderr.contains(why));
        assert!(told, "{}", finished.stderr);
    }
}
