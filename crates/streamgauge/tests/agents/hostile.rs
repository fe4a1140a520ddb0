//! Foreign messages, and agents of other versions.

use async_nats::Client;
use bytes::Bytes;
use serde_json::Value;
use streamgauge::agents::wire::{self, Answer, Ask, Hello, Report};
use testkit::{Nats, noise};

use crate::common::{document_of, silent};
use crate::support::{LIMIT, agent, all_idle, block_on, client, hello, hellos, next, run, waiting};

/// Sends a message to an agent; returns what it answers.
async fn ask(client: &Client, subject: &str, message: impl Into<Bytes>) -> Answer {
    let answer = client.request(subject.to_owned(), message.into()).await.unwrap();
    wire::read::<Answer>(&answer.payload).unwrap().0
}

#[test]
fn garbage_and_strangers_do_an_agent_no_harm() {
    let (nats, folder) = (Nats::start(), tempfile::tempdir().unwrap());
    let [a, _b] = [agent(&nats, "a"), agent(&nats, "b")];
    let (_listener, url) = silent();
    let (run, told) = block_on(async {
        let client = client(&nats).await;
        let id = hellos(&client, 2).await["a"].id.clone();
        let subject = wire::subject(&id);
        let mut seen = client.subscribe(subject.clone()).await.unwrap();
        client.flush().await.unwrap();
        let run = tokio::task::spawn_blocking({
            let (nats, url, folder) = (nats, url.clone(), folder.path().to_owned());
            move || {
                let run = waiting(&nats, 2, &url, &folder);
                (run, nats)
            }
        });
        let told = loop {
            let message = next(&mut seen).await;
            if let Ok((Ask::Reserve { run }, _)) = wire::read(&message.payload) {
                break run;
            }
        };
        let (run, nats) = run.await.unwrap();
        let stranger = || "_INBOX.stranger".to_owned();
        let garbage = [
            Bytes::new(),
            Bytes::from_static(b"{}\n"),
            Bytes::from_static(b"\"Reserve\"\n"),
            Bytes::from(noise(7, 5000)),
            Bytes::from(vec![b'{'; 200_000]),
            wire::write(&Ask::Reserve { run: told.clone() }, &vec![0; wire::PIECE + 1]),
        ];
        for message in garbage {
            assert!(matches!(ask(&client, &subject, message.clone()).await, Answer::Refused(_)));
            client.publish(wire::FIND, message.clone()).await.unwrap();
            client.publish(told.clone(), message).await.unwrap();
        }
        for asked in [
            Ask::Reserve { run: stranger() },
            Ask::Reserve { run: "streamgauge.agents".to_owned() },
            Ask::Clocks { run: Some(stranger()) },
            Ask::Start { run: stranger(), role: "viewers".to_owned(), children: vec![900] },
            Ask::Start { run: told.clone(), role: "sh".to_owned(), children: vec![900] },
            Ask::Start { run: told.clone(), role: "http".to_owned(), children: vec![7; 300] },
            Ask::Start { run: told.clone(), role: "http".to_owned(), children: vec![900, 900] },
            Ask::Input { run: told.clone(), child: 900 },
            Ask::Input { run: stranger(), child: 0 },
            Ask::Taken { run: told.clone(), child: 0, pieces: u64::MAX },
            Ask::Release { run: stranger() },
        ] {
            let answer = ask(&client, &subject, wire::write(&asked, b"x\n")).await;
            assert!(matches!(answer, Answer::Refused(_)), "{asked:?}: {answer:?}");
        }
        // Reports of a child that nobody started.
        let report = Report { child: 900, number: 0, ended: Some(Ok(())) };
        client.publish(told.clone(), wire::write(&report, b"")).await.unwrap();
        client.flush().await.unwrap();
        ((run, nats), told)
    });
    let (run, nats) = run;
    assert!(wire::is_run(&told));
    run.terminate();
    let (_, document) = document_of(&run.wait(LIMIT));
    assert_eq!((&document["viewers"]["reported"], &document["lost"]), (&6.into(), &0.into()));
    assert!(document["agents"].as_array().unwrap().iter().all(|a| a["lost"] == Value::Null));
    all_idle(&nats, 2);
    drop(a);
}

#[test]
fn an_agent_of_another_version_is_refused_by_name() {
    let nats = Nats::start();
    let finished = block_on(async {
        let client = client(&nats).await;
        let mut calls = client.subscribe(wire::FIND).await.unwrap();
        client.flush().await.unwrap();
        let run = run(&nats, 1, &["viewers", "rtmp://h/live/x", "--duration", "1s"]);
        let run = tokio::task::spawn_blocking(move || run.wait(LIMIT));
        let call = next(&mut calls).await;
        let old = Bytes::from_static(b"{\"protocol\": 999, \"name\": \"old\", \"age\": 7}\n");
        let odd = Bytes::from_static(b"{\"protocol\": 1, \"name\": \"od\\nd\"}\n");
        let hello = Hello { version: "0.0.0".to_owned(), ..hello("other") };
        for hello in [odd, old, wire::write(&hello, b"")] {
            client.publish(call.reply.clone().unwrap(), hello).await.unwrap();
        }
        run.await.unwrap()
    });
    assert_eq!(finished.status.code(), Some(2));
    let own = wire::PROTOCOL;
    let complaint =
        format!("agent old: speaks version 999 of the protocol, and this program {own}");
    assert!(finished.stderr.contains(&complaint), "{}", finished.stderr);
    let complaint = "agent other: is of version \"0.0.0\", and this program of";
    assert!(finished.stderr.contains(complaint), "{}", finished.stderr);
}
