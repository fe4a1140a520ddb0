//! Many viewers at once: when they join, on which event loop of which process, and what became of
//! them.

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

use crate::selfwatch::Generator;
use crate::shard::Needs;
pub use crate::shard::raise_descriptor_limit;

/// What a child is called that runs a share of the viewers.
pub const ROLE: &str = "viewers";

/// How long after its end a run may still take.
const GRACE: Duration = Duration::from_secs(8);

/// Which viewers are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verify {
    /// Each.
    Full,
    /// One of so many.
    Sample(u32),
    /// None.
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

/// A file whose access units those of a stream must be. It is handed to another process by its
/// path, and read again there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "PathBuf", into = "PathBuf")]
pub struct Original {
    path: PathBuf,
    units: Arc<Reference>,
}

impl Original {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or is none that can be compared with.
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
    /// Batches that join one after the other.
    pub batches: u32,
    /// Viewers in a batch.
    pub batch_size: u32,
    /// From one batch to the next.
    pub interval: Duration,
    /// How long all watch, from when the last batch has joined.
    pub duration: Duration,
    /// Which viewers are verified.
    pub verify: Verify,
    /// What the access units must be.
    pub reference: Option<Original>,
    /// Event loops, one thread each, of all processes; each process has one at least.
    pub loops: usize,
    /// Processes; `None`: as few as may open enough files.
    pub processes: Option<u32>,
}

impl Plan {
    /// How many viewers.
    pub fn viewers(&self) -> u32 {
        self.batches.saturating_mul(self.batch_size)
    }

    /// When all leave, after the start.
    pub fn end(&self) -> Duration {
        self.interval * self.batches.saturating_sub(1) + self.duration
    }

    /// Connections at once.
    fn connections(&self) -> u64 {
        u64::from(self.viewers()) * self.target.connections()
    }

    /// Event loops of each of so many processes.
    fn loops_of_each(&self, processes: u32) -> usize {
        self.loops.div_ceil(processes as usize).max(1)
    }
}

/// What came of a run, but for the viewers' reports, which were handed on as they came.
#[derive(Debug)]
pub struct Outcome {
    /// How long it took, in seconds.
    pub elapsed: f64,
    /// Processes that it took; 1: this one.
    pub processes: u32,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Viewers whose report is missing, since their loop or process did not come to an end.
    pub lost: u32,
    /// Whether the figures can be trusted.
    pub generator: Generator,
}

/// Runs a plan to its end, until it is interrupted (SIGINT, SIGTERM), or until nothing more can
/// come of it. `period` is how often the observer is told.
///
/// # Errors
/// The run cannot begin, or the observer fails.
pub fn run(plan: &Plan, period: Duration, observer: &mut dyn Observer) -> anyhow::Result<Outcome> {
    let stop = interrupt::heard(interrupt::listen()?);
    let needs = Needs::new(plan.connections(), &plan.target.to_string());
    let processes = needs.processes(plan.processes, raise_descriptor_limit())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if processes == 1 {
            let share = here::Share { number: 0, of: 1, source: None };
            let began = tokio::time::Instant::now();
            let part = here::run(plan, &share, period, observer, stop).await?;
            let generator = Generator::judge(part.loops, part.local).doubted(part.reasons);
            Ok(Outcome {
                elapsed: began.elapsed().as_secs_f64(),
                processes,
                interrupted: part.interrupted,
                lost: part.lost,
                generator,
            })
        } else {
            several::run(plan, processes, needs, period, observer, stop).await
        }
    })
}

/// Waits between two runs; whether that, or anything before, was interrupted.
///
/// # Errors
/// No timer can be had.
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
