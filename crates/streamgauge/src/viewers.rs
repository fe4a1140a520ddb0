//! `streamgauge viewers`: batches of viewers join one after the other, and all watch to the end. It
//! is the pattern of the media server measurement initiative: X batches of Y viewers, with a second
//! between batches.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Exit;
use crate::agents::{Agent, Crew};
use crate::fleet::{self, Plan, Recorder};
use crate::record::Folder;
use crate::selfwatch::Generator;
use crate::summary::Viewers;

/// The run, and the criterion for the server.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// The URL, as given.
    pub url: String,
    /// The run.
    pub plan: Plan,
    /// Share of the duration that a viewer must receive media for, 0 to 1.
    pub share: f64,
    /// How many viewers may receive less.
    pub allowed: u32,
    /// Folder for records.
    pub folder: Option<PathBuf>,
    /// Whether to keep the terminal quiet.
    pub quiet: bool,
}

/// What `viewers` prints with `--json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Document {
    /// `viewers`.
    pub verb: String,
    /// What the viewers watched.
    pub url: String,
    /// The delivery: `rtmp`, `hls`, `dash`, `mp4`, `flv`, `push` or `whep`.
    pub protocol: String,
    /// Number of batches.
    pub batches: u32,
    /// Viewers in a batch.
    pub batch_size: u32,
    /// Seconds between batches.
    pub interval: f64,
    /// How long viewers watch, counted from when the last batch has joined, in seconds.
    pub duration: f64,
    /// Duration of the run in seconds.
    pub elapsed: f64,
    /// Whether the run was interrupted. The figures are then of the time before.
    pub interrupted: bool,
    /// How many processes the viewers were spread over.
    pub processes: u32,
    /// Viewers whose result is unknown.
    pub lost: u32,
    /// The criterion: seconds of media that a viewer must receive.
    pub wanted: f64,
    /// How many viewers may receive less.
    pub allowed: u32,
    /// Whether the criterion was met. After an interruption, only viewers that failed or are lost have not met it.
    pub passed: bool,
    /// Results of the viewers.
    pub viewers: Viewers,
    /// Whether the figures can be trusted.
    pub generator: Generator,
    /// The machines that shared the run; none if it was this one alone.
    pub agents: Vec<Agent>,
}

impl Document {
    /// Returns how the program ends.
    pub fn exit(&self) -> Exit {
        match (self.generator.saturated, self.passed) {
            (true, _) => Exit::Saturated,
            (false, true) => Exit::Success,
            (false, false) => Exit::Failed,
        }
    }
}

/// Runs the viewers, on this machine or on those of a crew.
///
/// # Errors
/// The run cannot start, or its results cannot be recorded.
pub fn run(arguments: &Arguments, crew: Option<&Crew>) -> anyhow::Result<Document> {
    let plan = &arguments.plan;
    let wanted = plan.duration.as_secs_f64() * arguments.share;
    let folder = arguments.folder.as_deref().map(Folder::create).transpose()?;
    let mut recorder = Recorder::new(folder, plan, wanted, arguments.quiet);
    let outcome = fleet::run(plan, crew, Duration::from_secs(1), &mut recorder)?;
    let (folder, sum) = recorder.finish();
    let viewers = sum.finish();
    let unsatisfied = if outcome.interrupted {
        // Nobody could get all media: only those count that failed before.
        viewers.errors.values().sum::<u64>() + u64::from(outcome.lost)
    } else {
        u64::from(plan.viewers()) - viewers.satisfied.min(plan.viewers().into())
    };
    let document = Document {
        verb: "viewers".to_owned(),
        url: arguments.url.clone(),
        protocol: plan.target.protocol().to_owned(),
        batches: plan.batches,
        batch_size: plan.batch_size,
        interval: plan.interval.as_secs_f64(),
        duration: plan.duration.as_secs_f64(),
        elapsed: outcome.elapsed,
        interrupted: outcome.interrupted,
        processes: outcome.processes,
        lost: outcome.lost,
        wanted,
        allowed: arguments.allowed,
        passed: unsatisfied <= arguments.allowed.into(),
        viewers,
        generator: outcome.generator,
        agents: outcome.agents,
    };
    if let Some(folder) = folder {
        for (name, values, unit) in sum.histograms() {
            folder.histogram(&name, values.histogram(), unit)?;
        }
        folder.summary(&document)?;
    }
    Ok(document)
}
