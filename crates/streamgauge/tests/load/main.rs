//! `streamgauge http` as users run it: a process, against servers with known behaviour.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bare;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod faults;
mod figures;
mod server;
mod several;
mod slow;
mod stalls;
mod tls;
mod usage;

use std::process::Command;
use std::time::Duration;

use common::document_of;
use serde_json::Value;
use testkit::{Finished, Program};

/// Longest duration of a run, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.arg("http").args(arguments);
    command
}

fn finish(arguments: &[&str]) -> Finished {
    Program::spawn(&mut command(arguments)).wait(LIMIT)
}

/// Runs it and reads its document. Checks that its exit status is that of the document.
#[track_caller]
fn run(arguments: &[&str]) -> Value {
    let mut with_json = arguments.to_vec();
    with_json.push("--json");
    document(&finish(&with_json))
}

#[track_caller]
fn document(finished: &Finished) -> Value {
    let (code, document) = document_of(finished);
    assert_eq!(document["exit_status"], code, "{}", finished.stderr);
    document
}

/// A number in a document, by its path.
#[track_caller]
fn number(document: &Value, path: &str) -> f64 {
    let value = document.pointer(path).unwrap_or_else(|| panic!("no {path} in {document:#}"));
    value.as_f64().unwrap_or_else(|| panic!("{path} is {value}"))
}

/// A count in a document, by its path; 0 if there is none.
fn count(document: &Value, path: &str) -> u64 {
    document.pointer(path).and_then(Value::as_u64).unwrap_or_default()
}
