//! Runs that agents share have the results of one run.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::{Nats, Server, headwater, http};

use crate::common::{document_of, lines, origin, silent, start};
use crate::support::{LIMIT, agent, all_idle, block_on, client_of, hellos, run};

fn names(document: &Value) -> Vec<&str> {
    let agents = document["agents"].as_array().unwrap();
    agents.iter().map(|agent| agent["name"].as_str().unwrap()).collect()
}

#[test]
fn viewers_of_two_agents_are_one_run() {
    let (nats, server) = (Nats::start(), origin());
    let _agents = [agent(&nats, "b"), agent(&nats, "a")];
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run");
    let url = server.url("/live/demo/index.m3u8");
    let reference = testkit::demo_clip();
    let arguments = ["viewers", &url, "--batch-size", "5", "--duration", "15s", "--loops", "2"];
    let checks = ["--verify", "full", "--reference", reference.to_str().unwrap()];
    let kept = ["--at-least", "0.2", "-o", output.to_str().unwrap()];
    let program = run(&nats, 2, &[&arguments[..], &checks, &kept].concat());
    let (_, document) = document_of(&program.wait(LIMIT));
    assert_eq!((&document["processes"], &document["lost"]), (&2.into(), &0.into()));
    assert_eq!(names(&document), ["a", "b"]);
    let viewers = &document["viewers"];
    assert_eq!(viewers["reported"], 5, "{document:#}");
    assert!(viewers["errors"].as_object().unwrap().is_empty(), "{document:#}");
    assert!(viewers["matched"].as_u64().unwrap() > 0, "{document:#}");
    assert_eq!(viewers["matched"], viewers["verified_samples"]);

    let reports = lines(&output.join("viewers.jsonl"));
    let ids: BTreeSet<u64> = reports.iter().map(|line| line["id"].as_u64().unwrap()).collect();
    assert_eq!((reports.len(), ids), (5, (0..5).collect()));
    let sum = |name: &str| -> u64 { reports.iter().map(|of| of[name].as_u64().unwrap()).sum() };
    for name in ["media_bytes", "overhead_bytes", "sent_bytes", "requests"] {
        assert_eq!(viewers[name], sum(name), "{name}");
    }
    // Each viewer's requests are in the distributions of all.
    let kinds = viewers["requests_by_kind"].as_object().unwrap();
    for (kind, all) in kinds {
        let counts = reports.iter().filter_map(|of| of["requests_by_kind"][kind]["count"].as_u64());
        assert_eq!(all["count"], counts.sum::<u64>(), "{kind}");
    }
    assert_eq!(lines(&output.join("ticks.jsonl")).last().unwrap()["left"], 5);
    // Both clocks are the same one. They are compared as exactly as is said, or a little less where
    // the reader of a clock is held up.
    for agent in document["agents"].as_array().unwrap() {
        let clock = |name: &str| agent["clock"][name].as_f64().unwrap();
        assert!(clock("ahead").abs() <= clock("uncertainty") + 0.005, "{agent:#}");
        assert!((clock("uncertainty") - clock("round_trip") / 2.0).abs() < 1e-6, "{agent:#}");
        assert_eq!(agent["lost"], Value::Null);
    }
}

#[test]
fn steps_of_capacity_keep_their_agents() {
    let (nats, server) = (Nats::start(), origin());
    let _agents = [agent(&nats, "a"), agent(&nats, "b")];
    let url = server.url("/live/demo/v0/media.m3u8");
    let steps = ["--start", "2", "--step", "2", "--max", "4", "--pause", "10ms"];
    // Viewers get something also where the machine stands still for some seconds.
    let criterion = ["--min-bitrate", "1k", "--duration", "12s", "--processes", "4"];
    let program = run(&nats, 2, &[&["capacity", &url], &steps[..], &criterion].concat());
    let (_, document) = document_of(&program.wait(LIMIT));
    assert_eq!(document["capacity"], 4, "{document:#}");
    for step in document["steps"].as_array().unwrap() {
        assert_eq!(
            (&step["processes"], &step["results"]["reported"]),
            (&4.into(), &step["viewers"])
        );
        assert_eq!(names(step), ["a", "b"]);
    }
    all_idle(&nats, 2);
}

#[test]
fn requests_are_shared_as_by_processes_of_one_machine() {
    let (nats, server) = (Nats::start(), origin());
    let _agents = ["a", "b", "c"].map(|name| agent(&nats, name));
    let file = server.put("file", &[7; 5000]);
    let url = server.url("/vod/file");
    assert_eq!(http::get(server.http, "/vod/file").body.len(), 5000);
    let load = ["http", &url, "--rate", "100", "--requests", "120", "--connections", "6"];
    let rest = ["--processes", "3", "--check", file.to_str().unwrap()];
    let arguments = [&load[..], &rest].concat();
    let (_, apart) = document_of(&run(&nats, 3, &arguments).wait(LIMIT));
    let (_, here) = document_of(&start([&arguments[..], &["--json"]].concat()).wait(LIMIT));
    for (path, expected) in [
        ("/processes", 3),
        ("/counters/requests", 120),
        ("/counters/responses", 120),
        ("/counters/errors", 0),
        ("/counters/body_bytes", 600_000),
        ("/statuses/200", 120),
        ("/first_byte/count", 120),
        ("/last_byte/count", 120),
        ("/generator/lag/count", 120),
    ] {
        for document in [&apart, &here] {
            assert_eq!(document.pointer(path), Some(&expected.into()), "{path} in {document:#}");
        }
    }
    assert_eq!((names(&apart), names(&here).len()), (vec!["a", "b", "c"], 0));
    let of = |worker: &Value| worker["agent"].as_str().map(str::to_owned);
    let workers = apart["generator"]["workers"].as_array().unwrap();
    let of_agents: BTreeSet<_> = workers.iter().map(of).collect();
    assert_eq!(of_agents, ["a", "b", "c"].map(|name| Some(name.to_owned())).into());
    assert!(here["generator"]["workers"].as_array().unwrap().iter().all(|w| of(w).is_none()));
    // The kernel counted on the agents' machines.
    assert!(apart["kernel"]["TcpInSegs"].as_u64().unwrap() > 0, "{apart:#}");
}

#[test]
fn many_results_and_long_jobs_come_whole() {
    let (nats, server) = (Nats::start(), origin());
    let _agents = [agent(&nats, "a"), agent(&nats, "b")];
    let folder = tempfile::tempdir().unwrap();
    // Each process sends more reports than may wait to be taken.
    let output = folder.path().join("run");
    let (_listener, url) = silent();
    let viewers = ["viewers", &url, "--batch-size", "200", "--duration", "1s", "--loops", "2"];
    let kept = ["--timeout", "50s", "-o", output.to_str().unwrap()];
    let (_, document) = document_of(&run(&nats, 2, &[&viewers[..], &kept].concat()).wait(LIMIT));
    assert_eq!((&document["viewers"]["reported"], &document["lost"]), (&200.into(), &0.into()));
    let reports = lines(&output.join("viewers.jsonl"));
    let ids: BTreeSet<u64> = reports.iter().map(|line| line["id"].as_u64().unwrap()).collect();
    assert_eq!((reports.len(), ids), (200, (0..200).collect()));
    // A plan of more than a megabyte.
    server.put("file", b"x");
    let targets = folder.path().join("targets");
    let line = |n: u32| format!("{}?{n:020}\n", server.url("/vod/file"));
    std::fs::write(&targets, (0..20_000).map(line).collect::<String>()).unwrap();
    let load = ["http", "--targets", targets.to_str().unwrap(), "--requests", "40"];
    let (_, loaded) = document_of(&run(&nats, 2, &load).wait(LIMIT));
    assert_eq!((&loaded["target_count"], &loaded["statuses"]["200"]), (&20_000.into(), &40.into()));
}

#[test]
fn viewers_of_all_agents_begin_when_the_last_has_connected() {
    let nats = Nats::start();
    let server = Server::start(headwater(), ["--vod", testkit::media_dir().to_str().unwrap()]);
    let _agents = [agent(&nats, "a"), agent(&nats, "b")];
    let folder = tempfile::tempdir().unwrap();
    let url = server.url("/vod/mp4/fragmented.mp4");
    let step = ["--start", "6", "--max", "6", "--min-bitrate", "1k", "--duration", "60s", "--fast"];
    let kept = ["--start-barrier", "--loops", "2", "-o", folder.path().to_str().unwrap()];
    let program = run(&nats, 2, &[&["capacity", &*url][..], &step, &kept].concat());
    let (_, document) = document_of(&program.wait(LIMIT));
    assert_eq!(document["steps"][0]["served"], 6, "{document:#}");
    assert_eq!(document["steps"][0]["processes"], 2, "{document:#}");
    // One moment for each agent.
    let reports = lines(&folder.path().join("000006/viewers.jsonl"));
    let moments: BTreeSet<String> = reports.iter().map(|of| of["joined"].to_string()).collect();
    assert!(reports.len() == 6 && moments.len() <= 2, "{moments:?}");
}

#[test]
fn a_file_that_agents_do_not_have_is_told_before_the_run() {
    let nats = Nats::start();
    let _agent = agent(&nats, "a");
    let arguments = ["http", "http://127.0.0.1:9/", "--requests", "1", "--check", "/no/such/file"];
    let finished = run(&nats, 1, &arguments).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2));
    assert!(finished.stderr.contains("agent a: /no/such/file"), "{}", finished.stderr);
    all_idle(&nats, 1);
}

#[test]
fn a_crew_and_its_agents_may_use_different_servers_of_nats() {
    let (nats, server) = (Nats::start_cluster(2), origin());
    let [first, second] = [nats.url(0), nats.url(1)];
    let agent = start(["agent", "--nats", &first, "--name", "far"]);
    agent.stdout_line(LIMIT, |line| line.starts_with("ready agent=far "));
    let load = ["http", &server.url("/healthz"), "--requests", "20", "--json"];
    let machines = ["--agents", "1", "--nats", &second];
    // The two servers may not know each other yet.
    block_on(async { hellos(&client_of(&second).await, 1).await });
    let finished = start([&load[..], &machines].concat()).wait(LIMIT);
    let (_, document) = document_of(&finished);
    assert_eq!((names(&document), &document["statuses"]["200"]), (vec!["far"], &20.into()));
}
