//! Latencies are told by the clock of the machine on which the verb was started.

use std::time::Duration;

use streamgauge::agents::wire::Answer;
use testkit::Nats;

use crate::common::{document_of, lines, origin};
use crate::support::{LIMIT, agent, block_on, client, hellos, run, stand_in};

/// How far behind the clock of the second agent seems to be.
const BEHIND: Duration = Duration::from_secs(100);

fn behind(answer: Answer) -> Answer {
    match answer {
        Answer::Clocks { monotonic, unix } => Answer::Clocks { monotonic, unix: unix - BEHIND },
        other => other,
    }
}

#[test]
fn a_clock_that_is_behind_is_corrected() {
    let (nats, server) = (Nats::start(), origin());
    let _agent = agent(&nats, "real");
    let folder = tempfile::tempdir().unwrap();
    let url = server.url("/live/demo/v0/media.m3u8");
    let output = folder.path().to_str().unwrap();
    let viewers = ["viewers", &url, "--batch-size", "4", "--duration", "15s", "--loops", "2"];
    let (_, document) = block_on(async {
        let client = client(&nats).await;
        let real = hellos(&client, 1).await["real"].clone();
        let pretends = tokio::spawn(stand_in(client.clone(), real, "behind", |_| true, behind));
        hellos(&client, 2).await;
        let run = run(&nats, 2, &[&viewers[..], &["-o", output]].concat());
        let finished = tokio::task::spawn_blocking(move || run.wait(LIMIT)).await.unwrap();
        pretends.abort();
        document_of(&finished)
    });
    let [behind, real] = [0, 1].map(|at| &document["agents"][at]);
    assert_eq!((&behind["name"], &real["name"]), (&"behind".into(), &"real".into()));
    for (agent, seconds) in [(behind, -100.0), (real, 0.0)] {
        let ahead = agent["clock"]["ahead"].as_f64().unwrap();
        let most = agent["clock"]["uncertainty"].as_f64().unwrap() + 0.005;
        assert!((ahead - seconds).abs() <= most, "{document:#}");
    }
    // Both look at the same clock. So the one whose clock seems to be behind tells a time that is
    // later by that. On a busy machine the first frame may be late, and all after it are dated by the first: these then
    // seem to come before their time.
    let reports = lines(&folder.path().join("viewers.jsonl"));
    assert_eq!(reports.len(), 4, "{document:#}");
    for report in reports {
        let is_behind = report["id"].as_u64().unwrap() % 2 == 0;
        let later = if is_behind { 100.0 } else { 0.0 };
        let delivery = report["delivery"]["mean"].as_f64().unwrap() - later;
        assert!((-1.0..30.0).contains(&delivery), "{report:#}");
    }
}
