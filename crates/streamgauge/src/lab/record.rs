//! What is kept of a scenario's run: a folder that tables and figures are made of, now or later.
//!
//! ```text
//! DIR/run.json                              Run: which scenario, on what machine, of which programs
//! DIR/scenario.toml                         the scenario as it was
//! DIR/trials/LOAD/CASE/PEER/REPETITION/     one trial
//!     trial.json                            Trial, written last: a trial that has it, and has not
//!                                           failed, is not run again
//!     load.json                             what the verb that made the load printed with --json
//!     load/                                 what else it kept (-o): viewers.jsonl, ticks.jsonl
//!     *.hlog                                histograms: latency.hlog, part.hlog, … (HDR interval logs)
//!     meter.csv, meter.jsonl                the system and the server, once a second
//!     server.log, load.log                  what the programs said
//!     profile.txt                           where the server spent its time, where perf is there
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The form of these files; one that is read must have it.
pub const FORM: u32 = 1;

/// A parameter of a case: `clients = 400`, `file = "4KiB"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Anything else, as it is written.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// The parameters of a case, by name.
pub type Parameters = BTreeMap<String, Value>;

/// `run.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// [`FORM`].
    pub form: u32,
    /// The scenario's name, `study-b`.
    pub scenario: String,
    /// As headings have it.
    pub title: String,
    /// By how much times were shortened; 1 is as the study has it.
    pub scale: f64,
    /// When it began, RFC 3339 in UTC.
    pub began: String,
    /// When its last trial ended, likewise.
    pub ended: Option<String>,
    /// The command that runs it.
    pub command: Vec<String>,
    /// Where.
    pub machine: Machine,
    /// The peers that took part, by name.
    pub peers: BTreeMap<String, PeerVersion>,
    /// What is in the scenario's media, by name: SHA-256 in hexadecimal digits.
    #[serde(default)]
    pub media: BTreeMap<String, String>,
    /// Peers that were asked for and could not take part, and why.
    pub absent: BTreeMap<String, String>,
    /// What should be known when reading the figures.
    pub warnings: Vec<String>,
}

/// The machine of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Logical processors.
    pub processors: u32,
    /// Bytes.
    pub memory: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// TCP's congestion control and the default queueing discipline, on which what a connection
    /// costs depends: `bbr, fq`. Empty in older records.
    #[serde(default)]
    pub tcp: String,
    /// Processors that servers ran on, as taskset has them (`0`, `0-3`); empty: any.
    pub server_cpus: String,
    /// Processors that loads ran on.
    pub load_cpus: String,
}

impl Machine {
    /// Whether what was measured on another may be read as further repetitions: nothing differs but
    /// what the kernel kept of the memory for itself.
    pub fn is_like(&self, other: &Self) -> bool {
        let same = Self { memory: other.memory, ..self.clone() };
        same == *other && self.memory.abs_diff(other.memory) <= self.memory / 64
    }
}

/// A peer as it took part.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PeerVersion {
    /// As headings have it: `nginx`, `Node.js`.
    pub title: String,
    /// As the program says; a line.
    pub version: String,
}

/// `trial.json`: one peer under one load.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// [`FORM`].
    pub form: u32,
    /// The load's name in the scenario.
    pub load: String,
    /// What distinguishes it from the load's other cases, as the scenario has it.
    pub parameters: Parameters,
    /// Those of the parameters that were smaller than that, since the run was scaled.
    #[serde(default)]
    pub scaled: Parameters,
    /// The peer's name.
    pub peer: String,
    /// From 1; 0 is an extra one under a profiler, in the folder `profile`, without metrics.
    pub repetition: u32,
    /// When it began, RFC 3339 in UTC.
    pub began: String,
    /// Seconds it took, with the start and stop of the server.
    pub elapsed: f64,
    /// Every program that was started, in order.
    pub commands: Vec<Command>,
    /// What was measured, by name; names end in their unit (`latency_p99_ms`, `clients`).
    pub metrics: BTreeMap<String, f64>,
    /// Whether the generator was the limit, so that the figures are not to be trusted.
    pub saturated: bool,
    /// What should be known when reading the figures.
    pub warnings: Vec<String>,
    /// Why there are no figures: the server did not start, or died.
    pub failed: Option<String>,
}

impl Trial {
    /// Reads the trial that is kept in a folder; none, if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join("trial.json");
        let shown = || path.display().to_string();
        match std::fs::read(&path) {
            Ok(text) => {
                let trial: Self = serde_json::from_slice(&text).with_context(shown)?;
                ensure!(trial.form == FORM, "{}: form {}, not {FORM}", shown(), trial.form);
                Ok(Some(trial))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(shown),
        }
    }
}

/// A program that was started.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// `origin`, `server`, `publisher`, `background`, `profile`, `load`.
    pub role: String,
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// Exit status; absent where it was ended.
    pub status: Option<i32>,
}
