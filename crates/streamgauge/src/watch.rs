//! `streamgauge watch`: one viewer that verifies everything.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use viewer::{End, Report, RequestTimes};

use crate::Exit;
use crate::fleet::{self, Observer, Plan};
use crate::progress::Progress;
use crate::record::Tick;
use crate::selfwatch::Generator;

/// Time between two updates of the progress.
const REFRESH: Duration = Duration::from_millis(250);

/// What `watch` prints with `--json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Document {
    /// `watch`.
    pub verb: String,
    /// What the viewer watched.
    pub url: String,
    /// The delivery: `rtmp`, `hls`, `dash`, `mp4`, `flv`, `push` or `whep`.
    pub protocol: String,
    /// Whether access units were compared with a file.
    pub compared: bool,
    /// Whether the run was interrupted. The figures are then of the time before.
    pub interrupted: bool,
    /// Whether the viewer played, and nothing was broken or missing.
    pub passed: bool,
    /// Result of the viewer; absent if it did not end in time.
    pub viewer: Option<Report>,
    /// Whether the figures can be trusted.
    pub generator: Generator,
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

struct One {
    progress: Progress,
    report: Option<Report>,
}

impl Observer for One {
    fn tick(&mut self, tick: &Tick) {
        self.progress.tick(tick);
    }

    fn report(&mut self, report: Report) -> anyhow::Result<()> {
        self.report = Some(report);
        Ok(())
    }

    fn requests(&mut self, _times: &RequestTimes) {}
}

/// Runs a plan of one viewer.
///
/// # Errors
/// The run cannot start.
pub fn run(url: &str, plan: &Plan, quiet: bool) -> anyhow::Result<Document> {
    let mut one = One { progress: Progress::new(plan.end(), quiet), report: None };
    let outcome = fleet::run(plan, None, REFRESH, &mut one)?;
    one.progress.finish();
    Ok(Document {
        verb: "watch".to_owned(),
        url: url.to_owned(),
        protocol: plan.target.protocol().to_owned(),
        compared: plan.reference.is_some(),
        interrupted: outcome.interrupted,
        passed: one.report.as_ref().is_some_and(is_whole),
        viewer: one.report,
        generator: outcome.generator,
    })
}

fn is_whole(report: &Report) -> bool {
    let verified = report.verified.unwrap_or_default();
    report.end != End::Error
        && report.startup.is_some()
        && report.holes == 0
        && verified.holes == 0
        && verified.missing == 0
}
