//! A scenario whose load several machines share.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use testkit::{Nats, Program};

use crate::support::{LIMIT, Lab, clip, json, origin};

#[test]
fn a_load_that_agents_share_is_one_load_and_names_them() {
    let nats = Nats::start();
    let _agents = ["a", "b"].map(|name| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
        let agent = Program::spawn(command.args(["agent", "--nats", &nats.url(0), "--name", name]));
        agent.stdout_line(LIMIT, |line| line.starts_with("ready agent="));
        agent
    });
    let scenario = format!(
        r#"
title = "mine"
{}
[[load]]
name = "players"
peers = []
job = "rtmp-vod"
path = "clip.mp4"
with = "viewers"
arguments = ["{{url}}", "--batch-size", "4", "--duration", "8s", "--agents", "2", "--nats", "{}"]
"#,
        clip("clip.mp4"),
        nats.url(0)
    );
    let lab = Lab::new(&[("mine.toml", &scenario), ("origin.toml", &origin())]);
    let (code, _, told) = lab.run(&["--peer", lab.path("origin.toml").to_str().unwrap()]);
    // While other tests run, the generator may be the limit.
    assert!(code == 0 || code == 3, "{code} {told}");
    let trial = lab.trial("players/case/origin/1");
    assert_eq!(trial["failed"], Value::Null, "{trial:#}");
    for (name, expected) in [("clients", 4.0), ("errors", 0.0)] {
        assert_eq!(trial["metrics"][name], expected, "{name} in {trial:#}");
    }
    let load = json(&lab.path("out/trials/players/case/origin/1/load.json"));
    assert_eq!((&load["viewers"]["reported"], &load["lost"]), (&4.into(), &0.into()));
    let agents = load["agents"].as_array().unwrap();
    let of: Vec<_> = agents.iter().map(|agent| (&agent["name"], &agent["processes"])).collect();
    assert_eq!(of, [(&"a".into(), &1.into()), (&"b".into(), &1.into())]);
    // One agent has the viewers with even numbers, the other those with odd ones.
    let kept = lab.path("out/trials/players/case/origin/1/load/viewers.jsonl");
    let kept = std::fs::read_to_string(kept).unwrap();
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap();
    assert_eq!(kept.lines().map(id).collect::<BTreeSet<_>>(), (0..4).collect());
}
