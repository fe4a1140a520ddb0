//! Files of scenarios: errors that are refused, and the scenarios of this repository.

use std::path::Path;
use std::process::Command;

use testkit::Program;

use crate::support::{LIMIT, scenario};

const WHOLE: &str = r#"title = "x"
[media.film]
path = "film.mp4"
make = ["ffmpeg", "{out}"]
[[load]]
name = "runs"
peers = ["a"]
job = "file"
path = "film.mp4"
with = "http"
arguments = ["{url}", "--rate", "{rate}"]
[load.cases]
rate = [1]
[[table]]
title = "t"
load = "runs"
rows = ["peer"]
values = [{ metric = "errors" }]
published = "peer,errors\nStudy,1"
[[figure]]
title = "f"
kind = "against"
load = "runs"
x = "rate"
y = "errors"
"#;

#[test]
fn errors_name_file_line_and_key() {
    scenario(WHOLE).unwrap();
    for (from, to, reason) in [
        ("title = \"x\"", "titel = \"x\"", "mine.toml:1: titel: unknown key"),
        ("with = \"http\"", "with = \"curl\"", "mine.toml:10: load[0].with: unknown word `curl`"),
        ("rate = [1]", "rate = []", "load \"runs\": cases: rate has no values"),
        (
            "path = \"film.mp4\"\nmake",
            "path = \"../film.mp4\"\nmake",
            "media \"film\": path is not",
        ),
        ("\"{out}\"", "\"out\"", "make does not write {out}"),
        ("path = \"film.mp4\"\nwith", "with", "one of path (a file) and stream"),
        ("name = \"runs\"", "name = \"../runs\"", "not fit for a folder"),
        (
            "load = \"runs\"\nrows",
            "load = \"walks\"\nrows",
            "table \"t\": there is no load \"walks\"",
        ),
        ("Study,1", "Study,1,2", "has not 2 fields"),
        ("x = \"rate\"\n", "", "figure \"f\": a figure of this kind needs x"),
        (
            "[load.cases]",
            "link_changes = [{ at = 0.5, rate = \"1mbit\" }]\n[load.cases]",
            "link_changes: there is no link",
        ),
        (
            "[load.cases]",
            "link = \"8mbit\"\nlink_changes = [{ at = 1, rate = \"1mbit\" }]\n[load.cases]",
            "at is a share of the load's time",
        ),
        (
            "[load.cases]",
            "link = \"8mbit\"\nlink_changes = [{ at = 0.5, rate = \"1MB\" }]\n[load.cases]",
            "link_changes: \"1MB\" is no rate",
        ),
        (
            "load = \"runs\"\nrows",
            "load = \"runs\"\naverage = \"speed\"\nrows",
            "table \"t\": average: \"speed\" is no parameter",
        ),
        ("[load.cases]", "settle = \"soon\"\n[load.cases]", "not a time"),
        (
            "[load.cases]",
            "scale = { speed = { least = 1 } }\n[load.cases]",
            "no parameter \"speed\"",
        ),
        (
            "[load.cases]\nrate = [1]\n",
            "link = \"8mbit\"\nlink_changes = [{ at = 0.5, rate = \"1mbit\" }]\n[load.cases]\nrate = [1]\n\
             [[table]]\ntitle = \"l\"\nload = \"runs\"\nrows = [\"rate\"]\nvalues = []\nlimits = true\n",
            "table \"l\": limits: the link of its load changes",
        ),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let error = format!("{:#}", scenario(&WHOLE.replacen(from, to, 1)).unwrap_err());
        assert!(error.contains("mine.toml") && error.contains(reason), "{error}");
    }
}

fn list(scenario: &Path) -> testkit::Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    Program::spawn(command.arg("run").arg(scenario).arg("--list")).wait(LIMIT)
}

#[test]
fn a_parameter_that_is_not_known_is_named_with_its_load() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let text = WHOLE.replace("{rate}", "{speed}").replace("[\"a\"]", "[\"nginx\"]");
    std::fs::write(&path, text).unwrap();
    let listed = list(&path);
    assert_eq!(listed.status.code(), Some(2));
    for part in ["mine.toml", "load \"runs\"", "arguments", "{speed}"] {
        assert!(listed.stderr.contains(part), "{}", listed.stderr);
    }
}

#[test]
fn the_scenarios_of_this_repository_can_be_planned() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let listed = list(&entry.unwrap().path());
        let text = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.status.success(), "{}", listed.stderr);
        assert!(text.contains(" trials, about "), "{text}");
        count += 1;
    }
    assert!(count > 0);
}
