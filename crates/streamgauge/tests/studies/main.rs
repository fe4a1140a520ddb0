//! The scenarios of this repository at their smallest scale. Each runs against real servers, no
//! trial fails, and the report has the scenario's own tables and figures with values in them.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use streamgauge::lab::folders::Folders;
use streamgauge::lab::install;
use streamgauge::lab::scenario::Scenario;
use streamgauge::lab::version::version;
use testkit::{Program, built, headwater};

/// Longest duration including media and trials, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(240);

/// The folder for media, installed peers and work folders of a scenario. They are made once and
/// kept, as in Cargo's own target folder.
fn target(scenario: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(scenario)
}

/// Copies a scenario, and makes its media a minute long at most: the trials end before.
fn with_short_media(repository: &Path, study: &str, into: &Path) -> PathBuf {
    let name = format!("{study}.toml");
    let text = std::fs::read_to_string(repository.join("lab/scenarios").join(&name)).unwrap();
    let copy = into.join(name);
    // These two are ten minutes long. Two studies have them.
    let short =
        text.replace(":duration=596", ":duration=60").replace(":duration=600", ":duration=60");
    assert_eq!(short != text, matches!(study, "study-b" | "study-c"), "{study}");
    std::fs::write(&copy, short).unwrap();
    copy
}

/// Runs a scenario against peers that tests can have, and makes its report.
fn repeat(study: &str, peers: &[&str]) {
    // Peers start these programs from the folder of this one.
    headwater();
    built("baselines", "baseline");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let file = with_short_media(&repository, study, folder.path());
    let scenario = Scenario::read(&file).unwrap();
    let out = folder.path().join("out");

    let mut run = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    run.arg("run").arg(&file).args(["--scale", "0.005", "--json", "-o"]).arg(&out);
    run.args(peers.iter().flat_map(|peer| ["--peer", peer]));
    run.env("CARGO_TARGET_DIR", target(study)).current_dir(&repository);
    let finished = Program::spawn(&mut run).wait(LIMIT);
    let document: Value = serde_json::from_slice(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", finished.stderr));
    assert_eq!(document["failed"], serde_json::json!({}), "{}", finished.stderr);
    // On a machine this busy, a saturated generator is no failure of the study.
    assert!(matches!(finished.status.code(), Some(0 | 3)), "{}", finished.stderr);
    let saturated = finished.status.code() == Some(3);
    assert!(document["trials"].as_u64() >= Some(scenario.loads.len() as u64), "{document}");

    let mut report = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    report.arg("report").arg(&out).current_dir(&repository);
    let finished = Program::spawn(&mut report).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
    let page = std::fs::read_to_string(out.join("report/index.html")).unwrap();
    let text = std::fs::read_to_string(out.join("report/report.md")).unwrap();
    let titles = scenario.tables.iter().map(|table| &table.title);
    for title in titles.chain(scenario.figures.iter().map(|figure| &figure.title)) {
        // The report has its own numbers instead of "Table 1. …".
        let title = title.split_once(". ").map_or(&**title, |(_, title)| title);
        assert!(text.contains(title), "{title:?} is not in report.md");
    }
    assert!(page.contains("<svg"), "no figure");
    let trials = trials(&out);
    // At this scale, some loads end before the kernel's clock has ticked, and a saturated generator
    // may not reach all that a load measures. Few requests have no high percentile.
    let measured = |name: &str| trials.iter().any(|trial| trial["metrics"].get(name).is_some());
    let has_few = |load: &str, name: &str| {
        let most = [("_p99_99", 1e4), ("_p99_9", 1e3), ("_p99", 1e2)];
        let Some((_, most)) = most.into_iter().find(|(part, _)| name.contains(part)) else {
            return false;
        };
        // Other percentiles are over viewers.
        let is_of_requests = ["latency_", "first_byte_"].iter().any(|kind| name.starts_with(kind));
        let of = if is_of_requests { "responses" } else { "clients" };
        let of_load = trials.iter().filter(|trial| trial["load"] == load);
        let mut counts = of_load.map(|trial| trial["metrics"][of].as_f64());
        counts.all(|count| count.is_none_or(|count| count < most))
    };
    for table in &scenario.tables {
        for shown in &table.values {
            assert!(
                saturated || measured(&shown.metric) || has_few(&table.load, &shown.metric),
                "{:?} is of nothing that is measured",
                shown.title
            );
        }
    }
    for trial in trials {
        let metrics = trial["metrics"].as_object().unwrap();
        assert!(!metrics.is_empty(), "{trial}");
        let number = |name: &str| metrics.get(name).and_then(Value::as_f64);
        let cost = number("server_us_per_client_second");
        let watched = number("watched_s").filter(|watched| *watched > 0.0);
        assert_eq!(cost.is_some(), watched.is_some(), "{trial}");
        if let (Some(cost), Some(watched)) = (cost, watched) {
            let cpu = number("server_cpu_s").unwrap();
            assert!((cost * watched - cpu * 1e6).abs() < 1.0, "{trial}");
        }
        let told = trial["commands"].to_string();
        let here = repository.canonicalize().unwrap();
        assert!(!told.contains(&*here.to_string_lossy()), "{told}");
    }
}

/// Reads every trial.json below a run.
fn trials(out: &Path) -> Vec<Value> {
    let mut found = Vec::new();
    let mut folders = vec![out.join("trials")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == "trial.json" {
                found.push(serde_json::from_slice(&std::fs::read(entry.path()).unwrap()).unwrap());
            }
        }
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn study_a() {
    repeat("study-a", &["baseline-threadpool", "baseline-hyper", "nginx", "headwater"]);
}

#[test]
fn study_b() {
    repeat("study-b", &["nginx-rtmp", "headwater"]);
}

#[test]
fn study_c() {
    // The only peer here that is neither in Debian nor in this repository.
    let peers = target("study-c").join("peers");
    let folders = Folders { peers, ..Folders::find().unwrap() };
    let push = install::find("python-push", &folders).unwrap();
    if version(&push, &folders).is_err() {
        let mut install = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
        install.args(["peers", "--install", "python-push"]);
        install.env("CARGO_TARGET_DIR", target("study-c")).current_dir(&folders.repository);
        let finished = Program::spawn(&mut install).wait(LIMIT);
        assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
    }
    repeat(
        "study-c",
        &["python", "python-push-threads", "python-push", "headwater", "headwater-three-state"],
    );
}

#[test]
fn study_d() {
    repeat("study-d", &["nginx-rtmp", "headwater-6s"]);
}

#[test]
fn study_e() {
    repeat("study-e", &["baseline-persistent", "nginx", "headwater"]);
}

#[test]
fn delivery() {
    repeat("delivery", &["headwater", "nginx-cache", "varnish"]);
}

#[test]
fn media_plane() {
    repeat("media-plane", &["nginx", "baseline-limit", "headwater"]);
}
