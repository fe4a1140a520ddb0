//! The verb `report`: its output, and arguments that it refuses.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::assert_published;
use crate::fixture::{Folder, trial};
use crate::rich;

/// Runs the verb.
pub fn report(arguments: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.arg("report").args(arguments).output().unwrap()
}

/// Makes a report beside the runs; returns its folder.
pub fn made(folders: &[&Path]) -> std::path::PathBuf {
    let output = report(folders);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folders[0].join("report")
}

pub const SMALL: &str = r#"
title = "Small"
[[load]]
name = "one"
peers = ["a", "b"]
job = "file"
path = "x"
with = "http"
arguments = ["{url}"]
[load.cases]
clients = [1, 2]
[[table]]
title = "Counts"
load = "one"
rows = ["peer"]
columns = ["clients"]
values = [{ metric = "count", digits = 1, better = "more" }]
headline = true
stand_in = { A = "a" }
published = """
peer,clients,count
A,1,4
A,2,0
C,1,7
"""
"#;

#[test]
fn damaged_folders_are_refused_by_name() {
    let damages: [(&str, &[u8], &str); 7] = [
        ("run.json", b"{", "run.json"),
        ("run.json", br#"{"form": 2}"#, "run.json"),
        ("scenario.toml", b"title = 1", "scenario.toml"),
        ("trials/one/c/a/1/trial.json", b"{}", "trial.json"),
        ("trials/one/c/a/1/trial.json", b"\xff", "trial.json"),
        ("trials/one/clients=1/a/1/meter.jsonl", b"{}\n{}\n", "meter.jsonl, line 1"),
        ("trials/one/clients=1/a/1/latency.hlog", b"not a log\n", "latency.hlog"),
    ];
    let figures = r#"
[[figure]]
title = "T"
kind = "time"
load = "one"
y = "cpu_percent"
[[figure]]
title = "P"
kind = "percentiles"
load = "one"
histogram = "latency"
"#;
    for (file, bytes, named) in damages {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::new(place.path(), &format!("{SMALL}{figures}"), 1.0, &[]);
        folder.keep(&trial("one", &[("clients", 1.0)], "a", 1, &[("count", 1.0)]));
        let path = place.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        let output = report(&[place.path()]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert!(error.contains(named), "{file}: {error}");
    }
    let nothing = tempfile::tempdir().unwrap();
    let output = report(&[nothing.path()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("run.json"));
}

#[test]
fn a_histogram_stays_in_its_folder() {
    let place = tempfile::tempdir().unwrap();
    let figure =
        "[[figure]]\ntitle=\"P\"\nkind=\"percentiles\"\nload=\"one\"\nhistogram=\"../x\"\n";
    let folder = Folder::new(place.path(), &format!("{SMALL}{figure}"), 1.0, &[]);
    folder.keep(&trial("one", &[("clients", 1.0)], "a", 1, &[]));
    let error = report(&[place.path()]).stderr;
    assert!(String::from_utf8_lossy(&error).contains("not a histogram's name"));
}

#[test]
fn runs_are_put_together_unless_they_differ() {
    let place = tempfile::tempdir().unwrap();
    let names = ["one", "two", "short"].map(|name| place.path().join(name));
    for (path, scale, count) in
        [(&names[0], 1.0, 2.0), (&names[1], 1.0, 8.0), (&names[2], 0.1, 9.0)]
    {
        let folder = Folder::new(path, SMALL, scale, &[("a", "A", "1")]);
        folder.keep(&trial("one", &[("clients", 1.0)], "a", 1, &[("count", count)]));
    }
    let folders: Vec<&Path> = names.iter().map(std::path::PathBuf::as_path).collect();
    let output = report(&[&folders[..], &[Path::new("--json")]].concat());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let studies = document["studies"].as_array().unwrap();
    assert_eq!(studies.len(), 2);
    let median = |study: usize| &studies[study]["tables"][0]["rows"][0]["cells"][0]["value"];
    assert_eq!((median(0), median(1)), (&5.0.into(), &9.0.into()));
    assert_eq!(studies[1]["scale"], 0.1);
    let page = fs::read_to_string(names[0].join("report/index.html")).unwrap();
    assert_eq!(page.matches("Scale 0.1").count(), 1);
}

#[test]
fn a_document_gets_the_headline_tables_and_keeps_the_rest() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    rich::write(&run, 1.0);
    let readme = place.path().join("README.md");
    let around = ["# Mine\n<!-- streamgauge:begin -->", "<!-- streamgauge:end -->\nThe end.\n"];
    fs::write(&readme, around.join("\nold\n")).unwrap();
    let into = |readme: &Path| report(&[&run, Path::new("--into"), readme]);
    assert!(into(&readme).status.success());
    let first = fs::read_to_string(&readme).unwrap();
    assert!(first.starts_with(around[0]) && first.ends_with(around[1]), "{first}");
    assert!(first.contains("| Wowza | published | 166 |") && !first.contains("\nold\n"), "{first}");
    assert!(!first.contains("Mean bit rate"), "only headlines: {first}");
    assert!(into(&readme).status.success());
    assert_eq!(fs::read_to_string(&readme).unwrap(), first);
    // Only the document is in the folder afterwards. A document without a place for tables does not
    // change.
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    fs::write(&readme, "nothing").unwrap();
    let output = into(&readme);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("README.md") && error.contains("streamgauge:begin"), "{error}");
    assert_eq!(fs::read_to_string(&readme).unwrap(), "nothing");
}

#[test]
fn the_published_schema_is_that_of_the_document() {
    assert_published("report", &schemars::schema_for!(streamgauge::report::document::Document));
}
