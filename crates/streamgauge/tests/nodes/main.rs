//! `streamgauge compare-nodes` as users run it: against nodes of a cluster, and against a relay that
//! alters what it passes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod differences;
mod relay;

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::{Finished, Program};

/// Longest wait, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(90);

fn compare(arguments: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    Program::spawn(command.arg("compare-nodes").args(arguments)).wait(LIMIT)
}

/// Compares, and reads the document.
#[track_caller]
fn document(arguments: &[&str]) -> (i32, Value) {
    let finished = compare(&[arguments, &["--json"]].concat());
    let document = serde_json::from_slice(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", finished.stderr));
    (finished.status.code().unwrap(), document)
}

/// A count of a document.
#[track_caller]
fn count(document: &Value, name: &str) -> u64 {
    document["counts"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {document:#}"))
}
