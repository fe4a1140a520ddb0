//! Latencies are told by the clock of the machine on which the verb was started.

use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt;
use streamgauge::agents::wire::{self, Answer, Hello};
use testkit::Nats;
use tokio::task::JoinSet;

use crate::support::{LIMIT, agent, block_on, client, document, hellos, lines, origin, run};

/// How far behind the clock of the second agent seems to be.
const BEHIND: Duration = Duration::from_secs(100);

/// A second agent, which passes on to the first all that it is asked. Its clock of the time of day is
/// behind.
async fn pretend(client: Client, of: Hello) {
    let own = Hello { name: "behind".to_owned(), id: "behind".to_owned(), ..of.clone() };
    let mut calls = client.subscribe(wire::FIND).await.unwrap();
    let mut asked = client.subscribe(wire::subject("behind")).await.unwrap();
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            // It must be found before it is asked.
            biased;
            Some(call) = calls.next() => {
                if let Some(reply) = call.reply {
                    client.publish(reply, wire::write(&own, b"")).await.unwrap();
                }
            }
            Some(ask) = asked.next() => {
                let (client, to) = (client.clone(), wire::subject(&of.id));
                answers.spawn(async move {
                    let Some(reply) = ask.reply else {
                        return client.publish(to, ask.payload).await.unwrap();
                    };
                    let answer = client.request(to, ask.payload).await.unwrap();
                    let answer = match wire::read::<Answer>(&answer.payload).unwrap().0 {
                        Answer::Clocks { monotonic, unix } => {
                            Answer::Clocks { monotonic, unix: unix - BEHIND }
                        }
                        other => other,
                    };
                    client.publish(reply, wire::write(&answer, b"")).await.unwrap();
                });
            }
        }
    }
}

#[test]
fn a_clock_that_is_behind_is_corrected() {
    let (nats, server) = (Nats::start(), origin());
    let _agent = agent(&nats, "real");
    let folder = tempfile::tempdir().unwrap();
    let url = server.url("/live/demo/v0/media.m3u8");
    let output = folder.path().to_str().unwrap();
    let viewers = ["viewers", &url, "--batch-size", "4", "--duration", "2s", "--loops", "2"];
    let (_, document) = block_on(async {
        let client = client(&nats).await;
        let real = hellos(&client, 1).await["real"].clone();
        let pretends = tokio::spawn(pretend(client.clone(), real));
        hellos(&client, 2).await;
        let run = run(&nats, 2, &[&viewers[..], &["-o", output]].concat());
        let finished = tokio::task::spawn_blocking(move || run.wait(LIMIT)).await.unwrap();
        pretends.abort();
        document(&finished)
    });
    let [behind, real] = [0, 1].map(|at| &document["agents"][at]);
    assert_eq!((&behind["name"], &real["name"]), (&"behind".into(), &"real".into()));
    for (agent, seconds) in [(behind, -100.0), (real, 0.0)] {
        let ahead = agent["clock"]["ahead"].as_f64().unwrap();
        let most = agent["clock"]["uncertainty"].as_f64().unwrap() + 0.005;
        assert!((ahead - seconds).abs() <= most, "{document:#}");
    }
    // Both look at the same clock. So the one whose clock seems to be behind tells a time that is
    // later by that.
    let reports = lines(&folder.path().join("viewers.jsonl"));
    assert_eq!(reports.len(), 4, "{document:#}");
    for report in reports {
        let is_behind = report["id"].as_u64().unwrap() % 2 == 0;
        let delivery = report["delivery"]["mean"].as_f64().unwrap();
        let expected = if is_behind { 100.0..130.0 } else { -1.0..30.0 };
        assert!(expected.contains(&delivery), "{report:#}");
    }
}
