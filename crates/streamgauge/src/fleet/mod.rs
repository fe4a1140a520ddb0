//! Many viewers at once: when each joins, its process and event loop, and how each ended.

mod here;
mod interrupt;
mod observer;
mod several;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use viewer::Options;
use viewer::player::Target;
use viewer::verify::{Reference, ReferenceError};

pub use observer::{Observer, Recorder};
pub use several::serve;

use crate::agents::{Agent, Crew, Spread};
use crate::selfwatch::Generator;
pub use crate::shard::raise_descriptor_limit;

/// How long a run may still take after its end.
const GRACE: Duration = Duration::from_secs(8);

/// Which viewers are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verify {
    /// Every viewer.
    Full,
    /// One viewer in this many.
    Sample(u32),
    /// No viewer.
    None,
}

impl Verify {
    fn concerns(self, id: u32) -> bool {
        match self {
            Self::Full => true,
            Self::Sample(each) => id.is_multiple_of(each.max(1)),
            Self::None => false,
        }
    }
}

/// A file with the access units that a stream must consist of. Another process gets its path and
/// reads it again.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "PathBuf", into = "PathBuf")]
pub struct Original {
    path: PathBuf,
    units: Arc<Reference>,
}

impl Original {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or has nothing to compare with.
    pub fn open(path: &Path) -> Result<Self, ReferenceError> {
        Ok(Self { path: path.to_owned(), units: Arc::new(Reference::open(path)?) })
    }
}

impl TryFrom<PathBuf> for Original {
    type Error = ReferenceError;

    fn try_from(path: PathBuf) -> Result<Self, ReferenceError> {
        Self::open(&path)
    }
}

impl From<Original> for PathBuf {
    fn from(original: Original) -> Self {
        original.path
    }
}

/// A run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// What is watched.
    #[serde(with = "wire::target")]
    pub target: Target,
    /// How each viewer behaves.
    #[serde(with = "wire::OptionsOnWire")]
    pub options: Options,
    /// How many batches join, one after the other.
    pub batches: u32,
    /// How many viewers a batch has.
    pub batch_size: u32,
    /// Time from one batch to the next.
    pub interval: Duration,
    /// How long viewers watch, counted from when the last batch has joined.
    pub duration: Duration,
    /// Whether viewers ask for media only when all viewers are connected, or have failed to
    /// connect. For plans of one batch.
    pub together: bool,
    /// Which viewers are verified.
    pub verify: Verify,
    /// The file whose access units the stream must have.
    pub reference: Option<Original>,
    /// Event loops of all processes together, one thread each. Each process has at least one.
    pub loops: usize,
    /// How many processes; `None` for as few as can open all files.
    pub processes: Option<u32>,
}

impl Plan {
    /// How many viewers the run has.
    pub fn viewers(&self) -> u32 {
        self.batches.saturating_mul(self.batch_size)
    }

    /// When all viewers leave, counted from the start.
    pub fn end(&self) -> Duration {
        self.interval * self.batches.saturating_sub(1) + self.duration
    }

    /// How long it may take until all viewers leave. Viewers that start together wait for each other: for each, to find
    /// the address, to connect and to agree on TLS has a limit of its own.
    fn longest(&self) -> Duration {
        self.end() + if self.together { 3 * self.options.patience } else { Duration::ZERO }
    }

    /// How many connections are open at once.
    fn connections(&self) -> u64 {
        u64::from(self.viewers()) * self.target.connections()
    }

    /// How many event loops each of this many processes has.
    fn loops_of_each(&self, processes: u32) -> usize {
        self.loops.div_ceil(processes as usize).max(1)
    }
}

/// The outcome of a run, without the viewers' reports, which went to the observer as they came.
#[derive(Debug)]
pub struct Outcome {
    /// Duration in seconds.
    pub elapsed: f64,
    /// How many processes the run used; 1 is this one alone.
    pub processes: u32,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Viewers without a report, because their loop or process did not end in time.
    pub lost: u32,
    /// Whether the figures can be trusted.
    pub generator: Generator,
    /// The machines, if several shared the run.
    pub agents: Vec<Agent>,
}

/// Runs a plan, on this machine or on those of a crew, to its end, until an interruption (SIGINT, SIGTERM), or until no more results can
/// come. Calls the observer's `tick` every `period`.
///
/// # Errors
/// The run cannot start, or the observer fails.
pub fn run(
    plan: &Plan,
    crew: Option<&Crew>,
    period: Duration,
    observer: &mut dyn Observer,
) -> anyhow::Result<Outcome> {
    let stop = interrupt::heard(interrupt::listen()?);
    let connections = (plan.connections(), &*plan.target.to_string());
    let spread = Spread::new(connections, plan.processes, raise_descriptor_limit(), crew)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if spread.processes() == 1 && crew.is_none() {
            let share = here::Share { number: 0, of: 1, source: None, ahead: 0 };
            let began = tokio::time::Instant::now();
            let released = std::future::ready(());
            let part = here::run(plan, &share, period, observer, stop, released).await?;
            let generator = Generator::judge(part.loops, part.local).doubted(part.reasons);
            Ok(Outcome {
                elapsed: began.elapsed().as_secs_f64(),
                processes: 1,
                interrupted: part.interrupted,
                lost: part.lost,
                generator,
                agents: Vec::new(),
            })
        } else {
            several::run(plan, &spread, period, observer, stop).await
        }
    })
}

/// Waits between two runs; returns whether this pause or anything before it was interrupted.
///
/// # Errors
/// The process cannot listen for signals, or has no timer.
pub fn pause(length: Duration) -> anyhow::Result<bool> {
    let stop = interrupt::heard(interrupt::listen()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        tokio::select! {
            biased;
            () = stop => true,
            () = tokio::time::sleep(length) => false,
        }
    }))
}
