//! An agent whose machine cannot keep up is named. Agents whose processes say what a test wants stand for such machines, and
//! for those that can.

use serde_json::{Value, json};
use streamgauge::load::tally::{Fault, Tally};
use testkit::Nats;

use crate::common::document_of;
use crate::support::{LIMIT, block_on, client, hellos, run, scripted};

/// Two agents say how their process has ended; returns the document of a run that they share.
fn shared(arguments: &[&str], calm: &Value, busy: &Value) -> Value {
    let nats = Nats::start();
    block_on(async {
        let last = |end: &Value| json!({ "Said": { "End": end } });
        let agents = [("calm", last(calm)), ("busy", last(busy))];
        let mut working = tokio::task::JoinSet::new();
        for (name, last) in agents {
            working.spawn(scripted(client(&nats).await, name, last));
        }
        hellos(&client(&nats).await, 2).await;
        let run = run(&nats, 2, arguments);
        let finished = tokio::task::spawn_blocking(move || run.wait(LIMIT)).await.unwrap();
        let (code, document) = document_of(&finished);
        assert_eq!(code, 3, "{document:#}");
        document
    })
}

/// Checks that the busy agent was named, and only that one.
#[track_caller]
fn assert_named(document: &Value, reasons: &[&str]) {
    let [busy, calm] = [0, 1].map(|at| &document["agents"][at]);
    assert_eq!((&busy["name"], &calm["name"]), (&"busy".into(), &"calm".into()));
    assert_eq!((&busy["saturated"], &busy["reasons"]), (&true.into(), &json!(reasons)));
    assert_eq!((&calm["saturated"], &calm["reasons"]), (&false.into(), &json!([])));
    assert_eq!((&busy["lost"], &calm["lost"]), (&Value::Null, &Value::Null));
    let generator = &document["generator"];
    assert_eq!((&generator["saturated"], &generator["reasons"]), (&true.into(), &json!(reasons)));
}

#[test]
fn an_agent_that_is_too_slow_for_its_requests_is_named() {
    const MS: u64 = 1_000_000;
    // A thousand requests are answered in 2 ms, and were begun late by this.
    let end = |late: u64, processor: f64, lacked: u64| {
        let mut total = Tally::default();
        for _ in 0..1000 {
            total.counters.requests += 1;
            total.lag.saturating_record(late);
            total.answered(200, 0, Some(late), late + MS, late + 2 * MS);
        }
        for _ in 0..lacked {
            total.failed(Fault::Local, || "no descriptor is left".to_owned());
        }
        total.settle();
        let worker = json!({ "cpu": processor, "starved": 0.1, "wall": 10.0 });
        json!({ "total": total, "workers": [worker], "kernel": {}, "interrupted": false })
    };
    let load = ["http", "http://127.0.0.1:9/", "--rate", "200", "--requests", "2000"];
    let document = shared(&load, &end(0, 4.0, 0), &end(256 * MS, 9.7, 2));
    let overload =
        "agent busy: event loop 0 worked for 97 % of the time and waited for a processor for 1 %";
    let late =
        "agent busy: 10 % of the requests were begun over 256.1 ms late: the rate was not kept";
    let lacked = "the machine lacked something 2 times: agent busy: no descriptor is left";
    assert_named(&document, &[overload, late, lacked]);
    let workers = document["generator"]["workers"].as_array().unwrap();
    let of: Vec<_> = workers.iter().map(|worker| (&worker["agent"], &worker["cpu"])).collect();
    assert_eq!(of, [(&"busy".into(), &9.7.into()), (&"calm".into(), &4.0.into())]);
}

#[test]
fn an_agent_that_is_too_slow_for_its_viewers_is_named() {
    let end = |processor: f64, lag: f64, lacked: u64| {
        let seen = json!({
            "cpu_seconds": 10.0 * processor, "cpu_share": processor, "cpu_share_busiest_second": processor,
            "lag_p50": lag, "lag_p99": lag, "lag_max": lag,
        });
        json!({ "interrupted": false, "lost": 0, "loops": [seen], "local": lacked, "reasons": [] })
    };
    let viewers = ["viewers", "rtmp://127.0.0.1:9/live/x", "--batch-size", "2", "--duration", "1s"];
    let document = shared(&viewers, &end(0.5, 0.001, 0), &end(0.97, 0.25, 3));
    let reasons = [
        "agent busy: event loop 0 used 97 % of a core",
        "agent busy: event loop 0 woke more than 250 ms late in 1 of 100 cases",
        "agent busy: 3 times this machine had no descriptor, port or memory left",
    ];
    assert_named(&document, &reasons);
}
