//! The verb `compare` on runs with known differences.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use streamgauge::lab::record::{INTERRUPTED, PeerVersion, Run};
use tempfile::TempDir;

use crate::common::assert_published;
use crate::fixture::{Folder, trial};
use crate::usage::SMALL;

/// Repetitions that differ by some per cent.
const STEADY: [f64; 5] = [10.0, 10.1, 10.2, 9.9, 9.8];

/// Two runs of one server and one case.
struct Runs {
    _place: TempDir,
    before: PathBuf,
    after: PathBuf,
}

impl Runs {
    /// Makes runs in which each metric has these values, one in each repetition.
    fn new(before: &[(&str, &[f64])], after: &[(&str, &[f64])]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let runs = Self {
            before: place.path().join("before"),
            after: place.path().join("after"),
            _place: place,
        };
        for (path, metrics, version) in [(&runs.before, before, "1"), (&runs.after, after, "2")] {
            let folder = Folder::new(path, SMALL, 1.0, &[("a", "A", version)]);
            for (number, repetition) in (1..=metrics[0].1.len()).enumerate() {
                let here: Vec<(&str, f64)> =
                    metrics.iter().map(|(name, values)| (*name, values[number])).collect();
                folder.keep(&trial("one", &[("clients", 1.0)], "a", repetition as u32, &here));
            }
        }
        runs
    }

    fn compare(&self, options: &[&str]) -> Output {
        compare(&self.before, &self.after, options)
    }

    /// Runs the verb; returns its exit status and its document.
    fn document(&self, options: &[&str]) -> (Option<i32>, Value) {
        let output = self.compare(&[options, &["--json"]].concat());
        let document = serde_json::from_slice(&output.stdout);
        let error = || String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), document.unwrap_or_else(|_| panic!("{}", error())))
    }

    fn change_run(&self, change: impl FnOnce(&mut Run)) {
        let folder = Folder { path: self.after.clone() };
        let mut run = folder.read_run();
        change(&mut run);
        folder.run(&run);
    }
}

fn compare(before: &Path, after: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.arg("compare").args([before, after]).args(options).output().unwrap()
}

fn times(factor: f64) -> [f64; 5] {
    STEADY.map(|value| value * factor)
}

/// The verdict on a metric.
fn verdict<'a>(document: &'a Value, metric: &str) -> &'a str {
    change(document, metric)["verdict"].as_str().unwrap()
}

fn change<'a>(document: &'a Value, metric: &str) -> &'a Value {
    let changes = document["changes"].as_array().unwrap();
    changes.iter().find(|change| change["metric"] == metric).unwrap()
}

#[test]
fn a_known_change_is_found_with_its_interval() {
    let (slower, cheaper, as_fast) = (times(1.2), times(0.5), times(1.01));
    let runs = Runs::new(
        &[
            ("latency_p50_ms", &STEADY),
            ("server_us_per_request", &STEADY),
            ("requests_per_second", &STEADY),
            ("load_seconds", &STEADY),
        ],
        &[
            ("latency_p50_ms", &slower),
            ("server_us_per_request", &cheaper),
            ("requests_per_second", &as_fast),
            ("load_seconds", &slower),
        ],
    );
    let (status, document) = runs.document(&[]);
    assert_eq!(status, Some(1));
    let slower = change(&document, "latency_p50_ms");
    assert_eq!((&slower["verdict"], &slower["better"]), (&"worse".into(), &"less".into()));
    assert!((slower["change"].as_f64().unwrap() - 0.2).abs() < 1e-9, "{slower}");
    let ends = slower["interval"].as_array().unwrap();
    let (low, high) = (ends[0].as_f64().unwrap(), ends[1].as_f64().unwrap());
    assert!(0.15 < low && low < 0.2 && 0.2 < high && high < 0.25, "{low} to {high}");
    assert_eq!(verdict(&document, "server_us_per_request"), "better");
    assert_eq!(verdict(&document, "requests_per_second"), "same");
    // How long the load took says nothing about the server.
    assert_eq!(document["changes"].as_array().unwrap().len(), 3);
    assert_eq!(document["counts"]["worse"], 1);
    // The same command gives the same document.
    assert_eq!(runs.document(&[]).1, document);

    let text = String::from_utf8(runs.compare(&[]).stdout).unwrap();
    for said in ["a: 1 before, 2 after", "+20.0 %", "−50.0 %", "WORSE by more than 5 %"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("requests_per_second"), "{text}");
    let text = String::from_utf8(runs.compare(&["--all"]).stdout).unwrap();
    assert!(text.contains("requests_per_second"), "{text}");

    // In the other direction, what was worse is better.
    let back = compare(&runs.after, &runs.before, &["--metric", "latency_p50_ms"]);
    assert_eq!(back.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&back.stdout).contains("1 better"));
}

#[test]
fn threshold_metric_and_peer_choose_what_counts() {
    let slower = times(1.2);
    let runs = Runs::new(&[("latency_p50_ms", &STEADY)], &[("latency_p50_ms", &slower)]);
    for (options, status) in [
        (["--threshold", "15%"], 1),
        (["--threshold", "0.15"], 1),
        (["--threshold", "30%"], 0),
        (["--threshold", "30"], 2),
        (["--metric", "latency_p50_ms"], 1),
        (["--metric", "latency_p99_ms"], 2),
        (["--metric", "clients"], 2),
        (["--peer", "a"], 1),
        (["--peer", "b"], 2),
    ] {
        let output = runs.compare(&options);
        assert_eq!(output.status.code(), Some(status), "{options:?}");
        assert!(status != 2 || !output.stderr.is_empty(), "{options:?}");
    }
}

#[test]
fn a_single_repetition_is_judged_only_where_asked() {
    let runs = Runs::new(&[("latency_p50_ms", &[10.0])], &[("latency_p50_ms", &[15.0])]);
    let (status, document) = runs.document(&[]);
    assert_eq!((status, verdict(&document, "latency_p50_ms")), (Some(0), "single"));
    assert!(change(&document, "latency_p50_ms")["interval"].is_null());
    let text = String::from_utf8(runs.compare(&[]).stdout).unwrap();
    assert!(text.contains("nothing can be told from single repetitions"), "{text}");
    let (status, document) = runs.document(&["--single"]);
    assert_eq!((status, verdict(&document, "latency_p50_ms")), (Some(1), "worse"));
}

#[test]
fn doubtful_figures_do_not_count() {
    // The repetitions are far apart, but those after are all larger.
    let noisy = Runs::new(
        &[("latency_p50_ms", &[10.0, 12.0, 14.0]), ("errors", &[0.0; 3])],
        &[("latency_p50_ms", &[20.0, 24.0, 28.0]), ("errors", &[0.0; 3])],
    );
    let (status, document) = noisy.document(&[]);
    let change = change(&document, "latency_p50_ms");
    assert_eq!(
        (status, &change["verdict"], &change["marks"]),
        (Some(0), &"worse".into(), &"‡".into())
    );
    assert_eq!(
        (&document["counts"]["worse"], &document["counts"]["doubtful"]),
        (&0.into(), &1.into())
    );

    let slower = times(1.5);
    let saturated = Runs::new(&[("latency_p50_ms", &STEADY)], &[("latency_p50_ms", &slower)]);
    let folder = Folder { path: saturated.after.clone() };
    let metrics = [("latency_p50_ms", 15.0)];
    let mut kept = trial("one", &[("clients", 1.0)], "a", 1, &metrics);
    kept.saturated = true;
    folder.keep(&kept);
    let (status, document) = saturated.document(&[]);
    assert_eq!((status, &document["counts"]["doubtful"]), (Some(3), &1.into()));

    // A server that refuses work is fast. The refusals themselves are worse.
    let faster = times(0.5);
    let refused = Runs::new(
        &[("latency_p50_ms", &STEADY), ("errors", &[0.0; 5]), ("requests", &[100.0; 5])],
        &[
            ("latency_p50_ms", &faster),
            ("errors", &[7.0, 9.0, 30.0, 12.0, 8.0]),
            ("requests", &[100.0; 5]),
        ],
    );
    let (status, document) = refused.document(&[]);
    assert_eq!(status, Some(1));
    assert_eq!(verdict(&document, "errors_percent"), "worse");
    assert_eq!(
        (&document["counts"]["better"], &document["counts"]["worse"]),
        (&0.into(), &1.into())
    );
}

/// A server that answers more requests may fail as much more of them. Viewers over RTMP make no requests that count.
#[test]
fn errors_are_a_share_of_what_was_asked() {
    let runs = Runs::new(
        &[("errors", &[100.0; 5]), ("requests", &[10_000.0; 5]), ("clients", &[50.0; 5])],
        &[("errors", &[130.0; 5]), ("requests", &[13_000.0; 5]), ("clients", &[50.0; 5])],
    );
    let (status, document) = runs.document(&[]);
    assert_eq!((status, verdict(&document, "errors_percent")), (Some(0), "same"));
    let runs = Runs::new(
        &[("errors", &[0.0; 5]), ("requests", &[0.0; 5]), ("clients", &[50.0; 5])],
        &[("errors", &[10.0; 5]), ("requests", &[0.0; 5]), ("clients", &[50.0; 5])],
    );
    let (status, document) = runs.document(&[]);
    assert_eq!((status, verdict(&document, "errors_percent")), (Some(1), "worse"));
    assert_eq!(change(&document, "errors_percent")["after"]["median"], 20.0);
}

/// Other figures are of the last step, which is harder with more viewers.
#[test]
fn last_steps_of_other_sizes_are_compared_by_their_capacity() {
    let runs = Runs::new(
        &[("capacity", &[400.0; 5]), ("clients", &[500.0; 5]), ("served_percent", &[95.0; 5])],
        &[("capacity", &[600.0; 5]), ("clients", &[700.0; 5]), ("served_percent", &[80.0; 5])],
    );
    let (status, document) = runs.document(&[]);
    assert_eq!((status, verdict(&document, "capacity")), (Some(0), "better"));
    assert_eq!(document["changes"].as_array().unwrap().len(), 1);
    assert!(document["warnings"][0].as_str().unwrap().contains("500 to 700 viewers"));
}

#[test]
fn repetitions_that_fail_are_worse() {
    // Two of five may fail by chance.
    for (failed, status, judged, changes) in
        [(2, 0, "unclear", 2), (3, 1, "worse", 2), (5, 1, "worse", 1)]
    {
        let runs = Runs::new(&[("latency_p50_ms", &STEADY)], &[("latency_p50_ms", &STEADY)]);
        let folder = Folder { path: runs.after.clone() };
        for repetition in 1..=failed {
            let mut kept = trial("one", &[("clients", 1.0)], "a", repetition, &[]);
            kept.failed = Some("it died".to_owned());
            folder.keep(&kept);
        }
        let (ended, document) = runs.document(&[]);
        assert_eq!((ended, verdict(&document, "failed")), (Some(status), judged), "{failed}");
        assert_eq!(document["changes"].as_array().unwrap().len(), changes, "{failed}");
    }
    // An interruption tells nothing of the server.
    let runs = Runs::new(&[("latency_p50_ms", &STEADY)], &[("latency_p50_ms", &STEADY)]);
    let mut kept = trial("one", &[("clients", 1.0)], "a", 1, &[]);
    kept.failed = Some(INTERRUPTED.to_owned());
    Folder { path: runs.after.clone() }.keep(&kept);
    let (status, document) = runs.document(&[]);
    assert_eq!((status, document["changes"].as_array().unwrap().len()), (Some(0), 1));
}

#[test]
fn what_else_differs_is_said() {
    let runs = Runs::new(&[("latency_p50_ms", &STEADY)], &[("latency_p50_ms", &STEADY)]);
    let after = Folder { path: runs.after.clone() };
    after.keep(&trial("one", &[("clients", 2.0)], "a", 1, &[("latency_p50_ms", 1.0)]));
    runs.change_run(|run| run.machine.processors = 9);
    let (status, document) = runs.document(&[]);
    assert_eq!((status, &document["counts"]["same"]), (Some(0), &1.into()));
    assert_eq!(document["only_after"], serde_json::json!(["one, 2 clients, a"]));
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("logical processors 8 before, 9 after"), "{warnings}");
    for (path, build) in [(&runs.before, "1a2b"), (&runs.after, "3c4d")] {
        let folder = Folder { path: path.clone() };
        let mut run = folder.read_run();
        let [title, version, build] = ["streamgauge", "0.1.0", build].map(str::to_owned);
        run.instrument = PeerVersion { title, version, build };
        folder.run(&run);
    }
    let warnings = runs.document(&[]).1["warnings"].to_string();
    let builds = "streamgauge was 0.1.0 (build 1a2b) before and 0.1.0 (build 3c4d) after";
    assert!(warnings.contains(builds), "{warnings}");

    // A load that asks for something else is not compared, and there is no other.
    fs::write(runs.after.join("scenario.toml"), SMALL.replace("\"x\"", "\"y\"")).unwrap();
    let output = runs.compare(&[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("load one is another one in the later scenario"), "{error}");
}

#[test]
fn runs_that_do_not_compare_are_refused() {
    let runs = Runs::new(&[("latency_p50_ms", &STEADY)], &[("latency_p50_ms", &STEADY)]);
    runs.change_run(|run| run.scenario = "study-y".to_owned());
    let output = runs.compare(&[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("study-x and study-y are different scenarios"), "{error}");
    fs::write(runs.after.join("run.json"), "{").unwrap();
    let output = runs.compare(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("run.json"));
}

#[test]
fn the_published_schema_is_that_of_the_document() {
    assert_published("compare", &schemars::schema_for!(streamgauge::compare::document::Document));
}
