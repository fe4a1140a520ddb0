//! The verdict at the head of a report.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixture::{Folder, trial};
use crate::usage::{made, report};

const SCENARIO: &str = r#"
title = "Verdicts"
[[load]]
name = "small"
title = "Small files"
peers = ["a", "b", "c"]
job = "file"
path = "x"
with = "http"
arguments = ["{url}"]
[load.cases]
connections = [1, 10]
[[load]]
name = "live"
peers = ["a", "b"]
job = "llhls-live"
stream = "x"
with = "viewers"
arguments = ["{url}"]
"#;

const PEERS: [(&str, &str, &str); 3] = [("a", "A", "1"), ("b", "B", "1"), ("c", "C", "1")];

/// Writes repetitions of a server in a case.
fn keep(folder: &Folder, load: &str, of: &[(&str, f64)], peer: &str, metrics: &[(&str, [f64; 3])]) {
    for repetition in 0..3 {
        let here: Vec<(&str, f64)> =
            metrics.iter().map(|(name, values)| (*name, values[repetition])).collect();
        folder.keep(&trial(load, of, peer, repetition as u32 + 1, &here));
    }
}

fn write(path: &Path) -> Folder {
    let folder = Folder::new(path, SCENARIO, 1.0, &PEERS);
    const COST: &str = "server_us_per_request";
    let (one, ten) = ([("connections", 1.0)], [("connections", 10.0)]);
    keep(&folder, "small", &one, "a", &[(COST, [30.0, 31.0, 32.0])]);
    keep(&folder, "small", &one, "b", &[(COST, [20.0, 21.0, 22.0])]);
    keep(&folder, "small", &one, "c", &[(COST, [90.0, 91.0, 92.0])]);
    let memory = "server_memory_mib";
    keep(&folder, "small", &ten, "a", &[(COST, [10.0, 10.0, 10.0]), (memory, [5.0, 6.0, 7.0])]);
    keep(&folder, "small", &ten, "b", &[(COST, [12.0, 12.5, 13.0]), (memory, [5.0, 6.5, 7.0])]);
    // It would be the first, but refuses some.
    keep(&folder, "small", &ten, "c", &[(COST, [1.0, 1.0, 1.0]), ("errors", [9.0, 9.0, 9.0])]);
    const VIEWER: &str = "server_us_per_client_second";
    keep(&folder, "live", &[], "a", &[(VIEWER, [60.0, 61.0, 62.0])]);
    keep(&folder, "live", &[], "b", &[(VIEWER, [30.0, 30.5, 31.0])]);
    // It would be the first, but leaves most viewers without the media that was asked for.
    let few = ("satisfied_percent", [40.0, 40.0, 40.0]);
    keep(&folder, "live", &[], "c", &[(VIEWER, [1.0, 1.0, 1.0]), few]);
    folder
}

#[test]
fn the_verdict_says_who_wins_where_and_by_how_much() {
    let place = tempfile::tempdir().unwrap();
    write(place.path());
    let output = report(&[place.path(), Path::new("--json")]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rulings = document["verdict"]["rulings"].as_array().unwrap();
    assert_eq!(rulings.len(), 2, "{rulings:?}");
    // The case of one connection has more servers that may win.
    assert_eq!(rulings[0]["delivery"], "files over HTTP");
    assert_eq!(rulings[0]["case"], "Small files, 1 connection");
    assert_eq!(
        rulings[0]["sentences"],
        serde_json::json!([
            "B needs the least processor time, 21.0 µs for a request; A comes next with 1.48 \
             times as much (1.36 to 1.60). It is first in 1 of 2 cases of this delivery."
        ])
    );
    assert_eq!(rulings[1]["delivery"], "low-latency HLS");
    let sentence = rulings[1]["sentences"][0].as_str().unwrap();
    assert!(sentence.starts_with("B needs the least processor time, 30.5 µs for a second of a"));
    let table = &document["verdict"]["table"];
    assert_eq!(
        table["columns"],
        serde_json::json!([["processor time, µs"], ["viewers satisfied, %"]])
    );
    let best: Vec<&Value> =
        table["rows"].as_array().unwrap().iter().map(|row| &row["cells"][0]["best"]).collect();
    assert_eq!(best, [false, true, false, false, true, false]);
    // The studies' tables and figures come after.
    let page = fs::read_to_string(place.path().join("report/index.html")).unwrap();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    assert!(at("<h2>Verdict</h2>") < at("id=\"study-1\""));
    assert!(place.path().join("report/figures/figure-1-1.svg").exists());
    let text = fs::read_to_string(place.path().join("report/report.md")).unwrap();
    assert!(text.contains("- **low-latency HLS** (live): B needs the least"), "{text}");
}

#[test]
fn servers_that_are_too_close_or_not_sound_do_not_win() {
    let place = tempfile::tempdir().unwrap();
    let folder = write(place.path());
    // Without the first case, the one with ten connections is judged.
    fs::remove_dir_all(place.path().join("trials/small/connections=1")).unwrap();
    let output = report(&[&folder.path, Path::new("--json")]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sentences = &document["verdict"]["rulings"][0]["sentences"];
    assert_eq!(
        *sentences,
        serde_json::json!([
            "A needs the least processor time, 10.0 µs for a request; B comes next with 1.25 \
             times as much (1.20 to 1.30).",
            "Whether A or B uses less memory cannot be told: 6.00 and 6.50 MiB, 1.08 times as \
             much (0.71 to 1.40)."
        ])
    );
    // One repetition may be chance. A case with several is judged before it.
    let (one, lonely) = ([("connections", 1.0)], [("server_us_per_request", 50.0)]);
    for peer in ["a", "b", "c"] {
        folder.keep(&trial("small", &one, peer, 1, &lonely));
    }
    let case = |output: &std::process::Output| -> (String, String) {
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let ruling = &document["verdict"]["rulings"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&ruling["case"]), text(&ruling["sentences"][0]))
    };
    let json = || report(&[&folder.path, Path::new("--json")]);
    assert_eq!(case(&json()).0, "Small files, 10 connections");
    fs::remove_dir_all(place.path().join("trials/small/connections=10")).unwrap();
    let (judged, sentence) = case(&json());
    assert_eq!(judged, "Small files, 1 connection");
    assert!(sentence.starts_with("In one repetition, which may be chance, A needs"), "{sentence}");
    // A server alone is no verdict.
    fs::remove_dir_all(place.path().join("trials")).unwrap();
    keep(&folder, "live", &[], "a", &[("server_us_per_client_second", [60.0, 61.0, 62.0])]);
    let text = fs::read_to_string(made(&[place.path()]).join("report.md")).unwrap();
    assert!(!text.contains("## Verdict\n"), "{text}");
}
