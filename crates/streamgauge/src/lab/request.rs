//! What the verb `run` is told, and what it answers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::record::Run;
use crate::Exit;

/// Repeats a study: every peer of a scenario under every load, one after the other
/// (docs/scenarios.md)
#[derive(Debug, Args)]
pub struct Arguments {
    /// A scenario's file, or the name of one in lab/scenarios
    pub(super) scenario: String,
    /// Only these peers: names of those in lab/peers, or files; may be repeated
    #[arg(long = "peer", value_name = "NAME|FILE.toml")]
    pub(super) peers: Vec<String>,
    /// Only these loads; may be repeated
    #[arg(long = "load", value_name = "NAME")]
    pub(super) loads: Vec<String>,
    /// Times and repetitions are so much smaller; below 0.1 loads as well
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub(super) scale: f64,
    /// Repetitions of every case, instead of what the scenario says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) repeat: Option<u32>,
    /// Processors that servers run on, as taskset has them: 0, 0-3, 0,2; any (the lower half)
    #[arg(long, value_name = "LIST")]
    pub(super) server_cpus: Option<String>,
    /// Processors that loads run on; any (the upper half)
    #[arg(long, value_name = "LIST")]
    pub(super) load_cpus: Option<String>,
    /// Where all of it is kept; one that has a part of the same run already is gone on with
    /// (lab/runs/DATE-SCENARIO)
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// List the trials, and how long they take, without running them
    #[arg(long)]
    pub(super) list: bool,
    /// One document on standard output, docs/schema/run.schema.json
    #[arg(long)]
    pub(super) json: bool,
}

/// What `run` prints with `--json`. The trials themselves are in the folder.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// Where it is kept.
    pub folder: String,
    /// What run.json says.
    pub run: Run,
    /// Trials of the scenario that were to be run.
    pub trials: u64,
    /// Those that were there from before.
    pub kept: u64,
    /// Those that were left out, since their sweep had come to its end.
    pub left_out: u64,
    /// Those without figures, by folder, and why.
    pub failed: BTreeMap<String, String>,
    /// Those whose figures are not to be trusted, by folder, since the generator was the limit.
    pub saturated: Vec<String>,
    /// Whether it was interrupted; the same command goes on with it.
    pub interrupted: bool,
}

impl Document {
    pub(super) fn exit(&self) -> Exit {
        if !self.failed.is_empty() {
            Exit::Failed
        } else if self.saturated.is_empty() {
            Exit::Success
        } else {
            Exit::Saturated
        }
    }
}
