//! Agents, and runs that they share.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{Client, ConnectOptions, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use streamgauge::agents::wire::{self, Answer, Ask, Hello, Report};
use streamgauge::shard::monotonic;
use testkit::{Nats, Program, eventually};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{lines, start};

/// Longest wait, on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Starts an agent, and waits until it is ready.
pub(crate) fn agent(nats: &Nats, name: &str) -> Program {
    let url = nats.url(0);
    let agent = start(["agent", "--nats", &url, "--name", name]);
    let ready = agent.stdout_line(LIMIT, |_| true);
    assert_eq!(ready, format!("ready agent={name} nats={url}"));
    agent
}

/// Starts a run that so many agents share.
pub(crate) fn run(nats: &Nats, agents: u32, arguments: &[&str]) -> Program {
    let (url, agents) = (nats.url(0), agents.to_string());
    start([arguments, &["--nats", &url, "--agents", &agents, "--json"]].concat())
}

/// Starts a run of six viewers of a silent server, and waits until all have joined.
pub(crate) fn waiting(nats: &Nats, agents: u32, url: &str, folder: &Path) -> Program {
    let output = folder.to_str().unwrap();
    let times = ["--duration", "300s", "--timeout", "290s", "--loops", "2", "-o", output];
    let program = run(nats, agents, &[&["viewers", url, "--batch-size", "6"], &times[..]].concat());
    eventually(LIMIT, "all viewers have joined", || {
        lines(&folder.join("ticks.jsonl")).last().is_some_and(|tick| tick["joined"] == 6)
    });
    program
}

/// Runs a test's own part on NATS.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

pub(crate) async fn client(nats: &Nats) -> Client {
    client_of(&nats.url(0)).await
}

/// Connects to the server of NATS at this URL.
pub(crate) async fn client_of(url: &str) -> Client {
    // By itself a client waits only for some seconds.
    let patient = ConnectOptions::new().connection_timeout(LIMIT).request_timeout(Some(LIMIT));
    patient.connect(url).await.unwrap()
}

pub(crate) async fn next(subscriber: &mut Subscriber) -> async_nats::Message {
    timeout(LIMIT, subscriber.next()).await.expect("a message in time").expect("a connection")
}

/// So many agents that answer calls for agents, by name.
pub(crate) async fn hellos(client: &Client, count: usize) -> BTreeMap<String, Hello> {
    hellos_until(client, |found| found.len() >= count).await
}

/// Calls agents until those that have answered are enough.
async fn hellos_until(
    client: &Client,
    enough: impl Fn(&BTreeMap<String, Hello>) -> bool,
) -> BTreeMap<String, Hello> {
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.unwrap();
    let mut calls = tokio::time::interval(Duration::from_secs(1));
    let mut found = BTreeMap::new();
    let find = async {
        while !enough(&found) {
            tokio::select! {
                // One that has just connected hears the next call.
                _ = calls.tick() => {
                    let call = client.publish_with_reply(wire::FIND, inbox.clone(), Bytes::new());
                    call.await.unwrap();
                }
                message = answers.next() => {
                    // Also the notice that there are none comes here.
                    if let Ok((hello, _)) = wire::read::<Hello>(&message.unwrap().payload) {
                        found.insert(hello.name.clone(), hello);
                    }
                }
            }
        }
    };
    timeout(LIMIT, find).await.expect("all agents answer");
    found
}

/// What an idle agent of this name and version says of itself.
pub(crate) fn hello(name: &str) -> Hello {
    Hello {
        protocol: wire::PROTOCOL,
        name: name.to_owned(),
        id: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        busy: false,
        // An agent may say what it likes.
        cores: 0,
        files: 1000,
    }
}

/// An agent of this name that has no processes. It tells of each that it is to start what a process would say: that it is
/// ready and, once told to begin, these last words.
pub(crate) async fn scripted(client: Client, name: &'static str, last: Value) {
    let mut calls = client.subscribe(wire::FIND).await.unwrap();
    let mut asked = client.subscribe(wire::subject(name)).await.unwrap();
    loop {
        tokio::select! {
            // It must be found before it is asked.
            biased;
            Some(call) = calls.next() => {
                client.publish(call.reply.unwrap(), wire::write(&hello(name), b"")).await.unwrap();
            }
            Some(message) = asked.next() => {
                let (ask, body) = wire::read::<Ask>(&message.payload).unwrap();
                if let Some(reply) = message.reply {
                    let answer = match ask {
                        Ask::Clocks { .. } => {
                            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                            Answer::Clocks { monotonic: monotonic(), unix }
                        }
                        _ => Answer::Done,
                    };
                    client.publish(reply, wire::write(&answer, b"")).await.unwrap();
                }
                let (run, child, reports) = match ask {
                    Ask::Start { run, children, .. } => {
                        (run, children[0], vec![(0, "\"Ready\"\n".to_owned(), None)])
                    }
                    Ask::Input { run, child } if body.starts_with(b"{\"Begin\":") => {
                        let end = (2, String::new(), Some(Ok(())));
                        (run, child, vec![(1, format!("{last}\n"), None), end])
                    }
                    _ => continue,
                };
                for (number, said, ended) in reports {
                    let report = Report { child, number, ended };
                    let message = wire::write(&report, said.as_bytes());
                    client.publish(run.clone(), message).await.unwrap();
                }
            }
        }
    }
}

/// An agent of this name in front of another. It passes on what `passes` lets through, and the answers as `answers`
/// alters them.
pub(crate) async fn stand_in(
    client: Client,
    of: Hello,
    name: &str,
    mut passes: impl FnMut(&Ask) -> bool,
    answers: fn(Answer) -> Answer,
) {
    let own = Hello { name: name.to_owned(), id: name.to_owned(), ..of.clone() };
    let mut calls = client.subscribe(wire::FIND).await.unwrap();
    let mut asked = client.subscribe(wire::subject(name)).await.unwrap();
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            // It must be found before it is asked.
            biased;
            Some(call) = calls.next() => {
                if let Some(reply) = call.reply {
                    client.publish(reply, wire::write(&own, b"")).await.unwrap();
                }
            }
            Some(asked) = asked.next() => {
                let ask = wire::read::<Ask>(&asked.payload).unwrap().0;
                if !passes(&ask) {
                    continue;
                }
                let real = matches!(ask, Ask::Reserve { .. }).then(|| of.name.clone());
                let (client, to) = (client.clone(), wire::subject(&of.id));
                let Some(reply) = asked.reply else {
                    client.publish(to, asked.payload).await.unwrap();
                    continue;
                };
                under_way.spawn(async move {
                    // The run called both. The other must have answered that before it is reserved in place of this
                    // one, because it says then that it is busy. It answers calls in their order.
                    if let Some(name) = real {
                        hellos_until(&client, |found| found.contains_key(&name)).await;
                    }
                    let answer = client.request(to, asked.payload).await.unwrap();
                    let answer = answers(wire::read::<Answer>(&answer.payload).unwrap().0);
                    client.publish(reply, wire::write(&answer, b"")).await.unwrap();
                });
            }
        }
    }
}

/// Waits until these agents serve no run.
pub(crate) fn all_idle(nats: &Nats, count: usize) {
    eventually(LIMIT, "all agents are idle", || {
        block_on(async { hellos(&client(nats).await, count).await.values().all(|a| !a.busy) })
    });
}
