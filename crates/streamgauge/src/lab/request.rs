//! Arguments and document of the verb `run`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::binaries::PeerBin;
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
    /// The program NAME of a peer is at PATH; may be repeated
    #[arg(long = "peer-bin", value_name = "NAME=PATH")]
    pub(super) peer_bins: Vec<PeerBin>,
    /// Only these loads; may be repeated
    #[arg(long = "load", value_name = "NAME")]
    pub(super) loads: Vec<String>,
    /// Factor on durations and repetitions; below 0.1 also on the size of loads, ramps and waits
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub(super) scale: f64,
    /// Repetitions of every case, instead of what the scenario says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) repeat: Option<u32>,
    /// Processors for servers, written as for taskset: 0, 0-3, 0,2; or any (the lower half)
    #[arg(long, value_name = "LIST")]
    pub(super) server_cpus: Option<String>,
    /// Processors for loads, written likewise; or any (the upper half)
    #[arg(long, value_name = "LIST")]
    pub(super) load_cpus: Option<String>,
    /// Folder for all records; a run that is there already is continued (lab/runs/DATE-SCENARIO)
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// List the trials and how long they take, without running them
    #[arg(long, conflicts_with = "json")]
    pub(super) list: bool,
    /// One document on standard output, docs/schema/run.schema.json
    #[arg(long)]
    pub(super) json: bool,
}

/// What `run` prints with `--json`. The trials themselves are in the folder.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// Folder of the records.
    pub folder: String,
    /// Content of run.json.
    pub run: Run,
    /// How many trials were to be run.
    pub trials: u64,
    /// How many trials were in the folder from before.
    pub kept: u64,
    /// How many trials were left out because their sweep had ended.
    pub left_out: u64,
    /// Trials without figures, by folder, with the reason.
    pub failed: BTreeMap<String, String>,
    /// Trials whose figures cannot be trusted because the generator was the limit, by folder.
    pub saturated: Vec<String>,
    /// Whether the run was interrupted. The same command continues it.
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
