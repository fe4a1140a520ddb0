//! The records of a scenario's run: a folder that tables and figures are made from, at once or
//! later.
//!
//! ```text
//! DIR/run.json                              Run: which scenario, machine and programs
//! DIR/scenario.toml                         the scenario as it was
//! DIR/trials/LOAD/CASE/PEER/REPETITION/     one trial
//!     trial.json                            Trial, written last: a trial that has it, and has not
//!                                           failed, is not run again
//!     load.json                             what the verb that made the load printed with --json
//!     load/                                 its further records (-o): viewers.jsonl, ticks.jsonl
//!     *.hlog                                histograms: latency.hlog, part.hlog, … (HDR logs)
//!     meter.csv, meter.jsonl                the system and the server, once a second
//!     server.log, load.log                  output of the programs
//!     profile.txt                           where the server spent its time, if perf can be used
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the form of these files. A file with another version is refused.
pub const FORM: u32 = 1;
/// The reason in the record of a trial that was interrupted.
pub const INTERRUPTED: &str = "interrupted";

/// A parameter of a case: `clients = 400`, `file = "4KiB"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Any other value, as written.
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
    /// Version of the form of the file, [`FORM`].
    pub form: u32,
    /// The scenario's name, `study-b`.
    pub scenario: String,
    /// Title in headings.
    pub title: String,
    /// Factor on times; 1 is the time of the study.
    pub scale: f64,
    /// When the run began, RFC 3339 in UTC.
    pub began: String,
    /// When its last trial ended, RFC 3339 in UTC.
    pub ended: Option<String>,
    /// The command that repeats the run.
    pub command: Vec<String>,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The program that measured. Without title in older records.
    #[serde(default)]
    pub instrument: PeerVersion,
    /// The peers that took part, by name.
    pub peers: BTreeMap<String, PeerVersion>,
    /// SHA-256 of the scenario's media in hexadecimal digits, by name.
    #[serde(default)]
    pub media: BTreeMap<String, String>,
    /// Peers that could not take part, and why.
    pub absent: BTreeMap<String, String>,
    /// Warnings for readers of the figures.
    pub warnings: Vec<String>,
}

/// The machine of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Logical processors.
    pub processors: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// TCP's congestion control and the default queueing discipline: `bbr, fq`. The cost of a
    /// connection depends on them. Empty in older records.
    #[serde(default)]
    pub tcp: String,
    /// Processors of servers, written as for taskset (`0`, `0-3`); empty for any.
    pub server_cpus: String,
    /// Processors of loads.
    pub load_cpus: String,
}

impl Machine {
    /// Whether results of both machines may count as repetitions of each other: they differ at most
    /// in the memory that the kernel kept for itself.
    pub fn is_like(&self, other: &Self) -> bool {
        let same = Self { memory: other.memory, ..self.clone() };
        same == *other && self.memory.abs_diff(other.memory) <= self.memory / 64
    }

    /// What differs between two machines: the name of each property, its value here, and its value
    /// there.
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let properties = |machine: &Self| {
            let cpus = |list: &str| if list.is_empty() { "any" } else { list }.to_owned();
            [
                ("processor", machine.processor.clone()),
                ("logical processors", machine.processors.to_string()),
                ("memory in MiB", (machine.memory >> 20).to_string()),
                ("kernel", machine.kernel.clone()),
                ("system", machine.system.clone()),
                ("TCP", machine.tcp.clone()),
                ("processors of servers", cpus(&machine.server_cpus)),
                ("processors of loads", cpus(&machine.load_cpus)),
            ]
        };
        let both = properties(self).into_iter().zip(properties(other));
        both.filter(|((_, here), (_, there))| here != there)
            .map(|((name, here), (_, there))| (name, here, there))
            .collect()
    }
}

/// A peer, as it took part.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct PeerVersion {
    /// Name in headings: `nginx`, `Node.js`.
    pub title: String,
    /// The version that the program prints, one line.
    pub version: String,
    /// The first 12 hexadecimal digits of the SHA-256 of the program that printed it: two builds may print the same.
    /// Empty in older records.
    #[serde(default)]
    pub build: String,
}

impl PeerVersion {
    /// The version with the build, as far as that is known: `headwater 0.1.0 (build 1a2b3c4d5e6f)`.
    pub fn named(&self) -> String {
        if self.build.is_empty() {
            return self.version.clone();
        }
        format!("{} (build {})", self.version, self.build)
    }

    /// Whether another record may be of the same program, as far as both tell.
    pub fn may_be(&self, other: &Self) -> bool {
        let builds = [&self.build, &other.build];
        self.version == other.version
            && (self.build == other.build || builds.iter().any(|build| build.is_empty()))
    }
}

/// `trial.json`: one peer under one load.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Version of the form of the file, [`FORM`].
    pub form: u32,
    /// The load's name in the scenario.
    pub load: String,
    /// The parameters that distinguish this case from others of the load, as in the scenario.
    pub parameters: Parameters,
    /// The parameters that were smaller in this run because of its scale.
    #[serde(default)]
    pub scaled: Parameters,
    /// The peer's name.
    pub peer: String,
    /// Number of the repetition from 1. 0 is an extra one under a profiler, in the folder
    /// `profile`, without metrics.
    pub repetition: u32,
    /// When the trial began, RFC 3339 in UTC.
    pub began: String,
    /// Duration in seconds, including start and stop of the server.
    pub elapsed: f64,
    /// Every program that was started, in order.
    pub commands: Vec<Command>,
    /// The metrics by name. Names end in their unit (`latency_p99_ms`, `clients`).
    pub metrics: BTreeMap<String, f64>,
    /// Whether the generator was the limit, so that the figures cannot be trusted.
    pub saturated: bool,
    /// Warnings for readers of the figures.
    pub warnings: Vec<String>,
    /// Why there are no figures, for example because the server did not start, or died.
    pub failed: Option<String>,
}

impl Trial {
    /// Reads the trial in a folder; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is not a trial.
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
    /// Exit status; absent if a signal ended it.
    pub status: Option<i32>,
}
