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

fn spawn(arguments: &[&str]) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    Program::spawn(command.arg("compare-nodes").args(arguments))
}

fn compare(arguments: &[&str]) -> Finished {
    spawn(arguments).wait(LIMIT)
}

/// Compares, and reads the document.
#[track_caller]
fn document(arguments: &[&str]) -> (i32, Value) {
    document_of(&compare(&[arguments, &["--json"]].concat()))
}

/// The exit status and the document of a comparison that has ended.
#[track_caller]
fn document_of(finished: &Finished) -> (i32, Value) {
    let document = serde_json::from_slice(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", finished.stderr));
    (finished.status.code().unwrap(), document)
}

/// A count of a document.
#[track_caller]
fn count(document: &Value, name: &str) -> u64 {
    document["counts"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {document:#}"))
}
