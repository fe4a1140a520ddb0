//! `streamgauge compare-nodes` as users run it: against nodes of a cluster, and against a relay that
//! alters what it passes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod differences;
mod relay;

use common::{LIMIT, document_of, start};
use serde_json::Value;
use testkit::{Finished, Program};

fn spawn(arguments: &[&str]) -> Program {
    start(["compare-nodes"].iter().chain(arguments))
}

fn compare(arguments: &[&str]) -> Finished {
    spawn(arguments).wait(LIMIT)
}

/// Compares, and reads the document.
#[track_caller]
fn document(arguments: &[&str]) -> (i32, Value) {
    document_of(&compare(&[arguments, &["--json"]].concat()))
}

/// A count of a document.
#[track_caller]
fn count(document: &Value, name: &str) -> u64 {
    document["counts"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {document:#}"))
}
