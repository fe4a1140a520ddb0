//! Scenarios: studies repeated against any number of servers, on one machine, one after the other.
//!
//! ```text
//! scenario.toml ─▶ scenario ─▶ plan: cases × peers × repetitions ─▶ runner ─▶ trial, for each
//! peers/*.toml ──▶ peer ───────────────────────────────────────────┘           │
//!     stage: server (process) + publisher + meter (observe, origin) + load ◀───┘
//!     metrics, tool: figures out of what they printed ─▶ record: the folder of a run ─▶ report
//! ```
//!
//! - What there is to do: `scenario` and `peer` (with `job`) are the files, read by `source`;
//!   `template` and `arguments` fill in their variables; `plan` lists the trials; `known` is what a
//!   trial knows before it runs.
//! - The verbs: `run` and `request` are `streamgauge run`, `install` is `streamgauge peers`.
//! - Preparation: `runner` prepares a run and repeats `trial`; `media` makes files, `needed` looks
//!   for programs, `version` asks peers for theirs (a `number`), `machine` chooses processors,
//!   `folders` and `binaries` know where everything is; `bench` is what the trials share; `course`
//!   tells how far a run is.
//! - A trial: `process` starts a server, `ready` tells when it can be used, `program` starts
//!   anything else, both in a `group` that cannot outlive this program. `stage` starts publisher
//!   and load while the server runs; `link` limits the rate between the two, `profile` is perf(1),
//!   `signals` interrupts.
//! - Results: `observe` and `origin` measure, `metrics` and `tool` compute figures, `record` is
//!   what is kept; `study_b` writes the files of study B; `log` quotes logs in errors.

pub mod arguments;
mod bench;
pub mod binaries;
mod course;
pub mod folders;
mod group;
pub mod install;
pub mod job;
mod known;
pub mod link;
mod log;
pub mod machine;
pub mod media;
pub mod metrics;
mod needed;
pub mod number;
mod observe;
pub mod origin;
pub mod peer;
pub mod plan;
pub mod process;
mod profile;
mod program;
mod ready;
pub mod record;
mod request;
pub mod run;
mod runner;
pub mod scenario;
pub mod signals;
pub mod source;
mod stage;
mod study_b;
pub mod template;
pub mod tool;
mod trial;
pub mod version;
