//! `streamgauge run`: the trials of scenarios, and trials against real servers.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod machines;
mod metrics;
mod plan;
mod runs;
mod scenario;
mod support;

/// Checks that the published schema of a document is that of its type.
#[track_caller]
fn assert_published(name: &str, schema: &schemars::Schema) {
    let schema = serde_json::to_string_pretty(schema).unwrap() + "\n";
    let path = format!("{}/../../docs/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == schema, "{name}: run the tests once with UPDATE_SCHEMAS=1");
}

#[test]
fn the_published_schemas_are_those_of_the_documents() {
    assert_published("run", &schemars::schema_for!(streamgauge::lab::run::Document));
    assert_published("trial", &schemars::schema_for!(streamgauge::lab::record::Trial));
}
