//! Histograms of three agents become those that three processes of one machine make of the same samples. The tests hear
//! what the agents' processes say on its way, and add it up as the parent of processes does.

use async_nats::{Client, Subscriber};
use serde::Serialize;
use serde_json::Value;
use streamgauge::agents::wire::{self, Report};
use streamgauge::load::distribution::Distribution;
use streamgauge::load::tally::Tally;
use streamgauge::summary::Sum;
use testkit::Nats;

use crate::common::{document_of, origin};
use crate::support::{LIMIT, agent, block_on, client, next, run};

const AGENTS: u32 = 3;

/// Hears what all agents send to crews.
struct Tap {
    /// The connection lasts as long.
    _client: Client,
    reports: Subscriber,
}

impl Tap {
    async fn new(nats: &Nats) -> Self {
        let client = client(nats).await;
        let reports = client.subscribe("_INBOX.>").await.unwrap();
        client.flush().await.unwrap();
        Self { _client: client, reports }
    }

    /// What each of a run's first processes has said as a result, once all have ended.
    async fn said(mut self) -> Vec<Vec<Value>> {
        let mut texts = vec![Vec::new(); AGENTS as usize];
        let mut running = AGENTS;
        while running > 0 {
            let message = next(&mut self.reports).await;
            // Answers come to inboxes, too.
            let Ok((report, body)) = wire::read::<Report>(&message.payload) else { continue };
            texts[report.child as usize].extend_from_slice(&body);
            running -= u32::from(report.ended.is_some());
        }
        let results = |text: Vec<u8>| {
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let lines = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
            lines.filter_map(|mut line| Some(line.get_mut("Said")?.take())).collect()
        };
        texts.into_iter().map(results).collect()
    }
}

/// Has a run shared by three agents. Returns its document, and what the agents' processes said.
fn shared(nats: &Nats, arguments: &[&str]) -> (Value, Vec<Vec<Value>>) {
    let _agents = ["a", "b", "c"].map(|name| agent(nats, name));
    block_on(async {
        let tap = Tap::new(nats).await;
        let run = run(nats, AGENTS, arguments);
        let finished = tokio::task::spawn_blocking(move || run.wait(LIMIT));
        let said = tap.said().await;
        (document_of(&finished.await.unwrap()).1, said)
    })
}

/// The results of this kind in what processes said.
fn of_kind<'a>(said: &'a [Vec<Value>], kind: &'a str) -> impl Iterator<Item = Value> + 'a {
    said.iter().flatten().filter_map(move |word| word.get(kind)).cloned()
}

/// A result as readers of a document have it.
fn written(result: &impl Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(result).unwrap()).unwrap()
}

#[test]
fn requests_of_agents_have_the_percentiles_of_their_samples() {
    let (nats, server) = (Nats::start(), origin());
    server.put("file", &[7; 5000]);
    let load = ["http", &server.url("/vod/file"), "--rate", "1000", "--requests", "3000"];
    let rest = ["--connections", "6", "--threads", "3"];
    let (document, said) = shared(&nats, &[&load[..], &rest].concat());
    let mut direct = Tally::default();
    for end in of_kind(&said, "End") {
        let total: Tally = serde_json::from_value(end["total"].clone()).unwrap();
        assert_eq!(total.last_byte.len(), 1000, "each process has a third");
        direct.add(&total);
    }
    for (path, histogram) in [
        ("/first_byte", &direct.first_byte),
        ("/last_byte", &direct.last_byte),
        ("/connect", &direct.connect),
        ("/generator/lag", &direct.lag),
    ] {
        let expected = written(&Distribution::of(histogram).unwrap());
        assert_eq!(document.pointer(path), Some(&expected), "{path}");
    }
    for quantile in [0.5, 0.9, 0.99, 0.999] {
        let name = format!("p{}", quantile * 100.0).replace('.', "_");
        let of = |histogram: &hdrhistogram::Histogram<u64>| histogram.value_at_quantile(quantile);
        let (all, prompt) = (of(&direct.last_byte), of(&direct.prompt));
        let expected = all.saturating_sub(prompt) as f64 / all as f64;
        let found = document["generator"]["lag_share"][&name].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-9, "{name}: {found}, not {expected}");
    }
    assert_eq!(document["counters"], written(&direct.counters));
    assert_eq!(document["statuses"], written(&direct.statuses));
    for (name, count) in [("queued", direct.queued), ("unfinished", 0), ("not_begun", 0)] {
        assert_eq!(document[name], count, "{name}");
    }
    assert_eq!(document["counters"]["body_bytes"], 3000 * 5000);
}

#[test]
fn viewers_of_agents_have_the_percentiles_of_their_samples() {
    let (nats, server) = (Nats::start(), origin());
    let url = server.url("/live/demo/index.m3u8");
    let viewers = ["viewers", &url, "--batch-size", "6", "--duration", "10s", "--loops", "3"];
    let (mut document, said) = shared(&nats, &viewers);
    let mut direct = Sum::new(document["wanted"].as_f64().unwrap(), 6);
    for report in of_kind(&said, "Report") {
        let report: viewer::Report = serde_json::from_value(report).unwrap();
        direct.add(&report, report.joined);
    }
    for times in of_kind(&said, "Requests") {
        direct.requests(&serde_json::from_value(times).unwrap());
    }
    let (mut expected, found) = (written(&direct.finish()), &mut document["viewers"]);
    assert_eq!(found["reported"], 6, "{found:#}");
    assert!(found["requests_by_kind"]["playlist"]["count"].as_u64() >= Some(6), "{found:#}");
    // Reports of several processes come in any order: other errors may be the first ones.
    let [one, other] = [&mut *found, &mut expected]
        .map(|viewers| viewers["examples"].take().as_array().unwrap().len());
    assert_eq!((one, &*found), (other, &expected));
}
