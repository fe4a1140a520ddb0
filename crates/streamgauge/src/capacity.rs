//! `streamgauge capacity`: steps of more and more viewers, each step all at once. It ends at the
//! step in which too few viewers get the bit rate they need. With a share of a half, this is the
//! inflexion point of "Web-native live streaming" (study C): "the majority of them cannot be served
//! anymore at the required minimum bitrate".

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

/// The part of the encoded bit rate that viewers must get if no bit rate is given. It is below 1
/// because a live stream cannot come any faster, and a viewer that joins in the middle of a frame
/// gets less.
const OF_ENCODED: f64 = 0.9;

/// What to run.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// The URL, as given.
    pub url: String,
    /// The run of each step. Its number of viewers is replaced.
    pub plan: Plan,
    /// Viewers of the first step.
    pub start: u32,
    /// How many more viewers each step has.
    pub step: u32,
    /// Viewers of the last step.
    pub max: u32,
    /// Mbit/s that viewers must get. `None`: derived from a viewer alone.
    pub min_bit_rate: Option<f64>,
    /// Share of the viewers that must get it, 0 to 1.
    pub share: f64,
    /// Pause between steps.
    pub pause: Duration,
    /// Folder for records, with a folder for each step.
    pub folder: Option<PathBuf>,
    /// Whether to keep the terminal quiet.
    pub quiet: bool,
}

/// What `capacity` prints with `--json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Document {
    /// `capacity`.
    pub verb: String,
    /// What the viewers watched.
    pub url: String,
    /// The delivery: `rtmp`, `hls`, `dash`, `mp4`, `flv`, `push` or `whep`.
    pub protocol: String,
    /// Mbit/s of media that viewers had to get.
    pub min_bit_rate: f64,
    /// Share of the viewers that had to get it, 0 to 1.
    pub share: f64,
    /// Whether viewers asked for media only when all viewers of their step were connected.
    pub start_barrier: bool,
    /// Mbit/s of the media, measured by a viewer alone; absent if a bit rate was given.
    pub encoded_bit_rate: Option<f64>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Largest number of viewers of which enough got what they needed; 0 if none did.
    pub capacity: u32,
    /// Smallest number of viewers of which too few did; absent if all steps passed.
    pub inflexion: Option<u32>,
    /// Whether the run was interrupted. The steps are then those before the interruption.
    pub interrupted: bool,
    /// The agent without which the run could not go on, and why. The steps are then those before, and
    /// the one in which it was lost.
    pub lost: Option<String>,
}

/// One step: a number of viewers at once.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Step {
    /// How many.
    pub viewers: u32,
    /// How many processes the viewers were spread over.
    pub processes: u32,
    /// Mbit/s that the viewers got on average. Those that got nothing, or whose result is unknown,
    /// count as 0.
    pub bit_rate: f64,
    /// Viewers that got the bit rate they need. Viewers that failed do not count.
    pub served: u32,
    /// Whether these were enough.
    pub passed: bool,
    /// Results of the viewers.
    pub results: Viewers,
    /// Whether the figures can be trusted.
    pub generator: Generator,
    /// The machines that shared the step; none if it was this one alone.
    pub agents: Vec<Agent>,
}

impl Document {
    /// Returns how the program ends.
    pub fn exit(&self) -> Exit {
        if self.lost.is_some() || self.steps.iter().any(|step| step.generator.saturated) {
            Exit::Saturated
        } else if self.capacity == 0 && !self.interrupted {
            Exit::Failed
        } else {
            Exit::Success
        }
    }
}

/// Runs the steps, on this machine or on those of a crew, until one fails or all are done.
///
/// # Errors
/// A step cannot start, its results cannot be recorded, or a viewer alone gets no media.
pub fn run(arguments: &Arguments, crew: Option<&Crew>) -> anyhow::Result<Document> {
    let mut document = Document {
        verb: "capacity".to_owned(),
        url: arguments.url.clone(),
        protocol: arguments.plan.target.protocol().to_owned(),
        min_bit_rate: arguments.min_bit_rate.unwrap_or_default(),
        share: arguments.share,
        start_barrier: arguments.plan.together,
        encoded_bit_rate: None,
        steps: Vec::new(),
        capacity: 0,
        inflexion: None,
        interrupted: false,
        lost: None,
    };
    if arguments.min_bit_rate.is_none() {
        let (alone, interrupted) = step(arguments, crew, 1, 0.0)?;
        if interrupted {
            document.interrupted = true;
            return finish(arguments, document);
        }
        let received = alone.results.received.map_or(0.0, |received| received.mean);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
        let encoded = alone.results.media_bytes as f64 * 8e-6 / received;
        anyhow::ensure!(
            received > 0.0,
            "a viewer alone got no media: {}",
            alone.results.examples.first().map_or("nothing came", String::as_str)
        );
        document.encoded_bit_rate = Some(encoded);
        document.min_bit_rate = encoded * OF_ENCODED;
    }
    let mut viewers = arguments.start;
    while !document.interrupted && viewers <= arguments.max {
        let lost = || crew.and_then(Crew::lost);
        document.lost = lost();
        if document.lost.is_some() && !document.steps.is_empty() {
            break;
        }
        let (step, interrupted) = match step(arguments, crew, viewers, document.min_bit_rate) {
            Ok(step) => step,
            // The steps before are still worth having.
            Err(_) if lost().is_some() && !document.steps.is_empty() => {
                document.lost = lost();
                break;
            }
            Err(error) => return Err(error),
        };
        document.interrupted = interrupted;
        if interrupted {
            // An interrupted step is too short: it cannot be told from a failed one.
            break;
        }
        let passed = step.passed;
        let lost = step.agents.iter().find(|agent| agent.lost.is_some());
        document.lost = lost.map(|agent| format!("agent {} in this step", agent.name));
        document.steps.push(step);
        if document.lost.is_some() {
            // Who failed is not the server.
            break;
        }
        if !passed {
            document.inflexion = Some(viewers);
            break;
        }
        document.capacity = viewers;
        viewers = viewers.saturating_add(arguments.step);
        if viewers <= arguments.max {
            document.interrupted = fleet::pause(arguments.pause)?;
        }
    }
    finish(arguments, document)
}

/// Writes the document to the folder of records.
fn finish(arguments: &Arguments, document: Document) -> anyhow::Result<Document> {
    if let Some(folder) = &arguments.folder {
        std::fs::create_dir_all(folder)?;
        let text = serde_json::to_string_pretty(&document)?;
        std::fs::write(folder.join("summary.json"), text + "\n")?;
    }
    Ok(document)
}

/// Runs one step; returns also whether it was interrupted.
fn step(
    arguments: &Arguments,
    crew: Option<&Crew>,
    viewers: u32,
    min_bit_rate: f64,
) -> anyhow::Result<(Step, bool)> {
    let plan = Plan { batches: 1, batch_size: viewers, ..arguments.plan.clone() };
    let folder = arguments.folder.as_ref().map(|folder| folder.join(format!("{viewers:06}")));
    let folder = folder.as_deref().map(Folder::create).transpose()?;
    let mut recorder = Recorder::new(folder, &plan, 0.0, arguments.quiet).needing(min_bit_rate);
    let outcome = fleet::run(&plan, crew, Duration::from_secs(1), &mut recorder)?;
    let (folder, sum) = recorder.finish();
    let results = sum.finish();
    let served = sum.served();
    let step = Step {
        viewers,
        processes: outcome.processes,
        bit_rate: results.bit_rate_all_mean,
        served,
        passed: f64::from(served) >= arguments.share * f64::from(viewers),
        results,
        generator: outcome.generator,
        agents: outcome.agents,
    };
    if let Some(folder) = folder {
        for (name, values, unit) in sum.histograms() {
            folder.histogram(&name, values.histogram(), unit)?;
        }
        folder.summary(&step)?;
    }
    Ok((step, outcome.interrupted))
}
