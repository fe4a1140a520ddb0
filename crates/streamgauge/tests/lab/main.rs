//! `streamgauge run`: the trials of scenarios, and trials against real servers.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../common/mod.rs"]
mod common;
mod machines;
mod metrics;
mod plan;
mod runs;
mod scenario;
mod support;

use common::assert_published;

#[test]
fn the_published_schemas_are_those_of_the_documents() {
    assert_published("run", &schemars::schema_for!(streamgauge::lab::run::Document));
    assert_published("trial", &schemars::schema_for!(streamgauge::lab::record::Trial));
}
