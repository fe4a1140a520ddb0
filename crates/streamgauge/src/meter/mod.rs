//! What the machine does during a measurement: the six metrics of the system once a second, the
//! resources of single processes, and the network counters of the kernel.
//!
//! A [`Meter`] takes a [`Sample`] on request. A [`Recording`] takes samples on its own thread until
//! it is stopped. Intervals are the real ones, not the intended ones: each sample has the time when
//! it was taken.

pub mod args;
pub mod kernel;
mod process;
mod sending;
pub mod summary;
mod system;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use kernel::{Kernel, Sockets};
pub use process::Usage;
pub use system::{HEADER, System};

/// Why measuring fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// /proc cannot be read.
    #[error("reading /proc: {0}")]
    Proc(#[from] procfs::ProcError),
    /// There is no thread.
    #[error("starting a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The receiver of the samples failed.
    #[error("{0:#}")]
    Sink(anyhow::Error),
}

/// What to measure besides the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Ids of the processes.
    pub pids: Vec<i32>,
    /// Whether to measure the processes that they start, too.
    pub with_children: bool,
    /// A process in the network namespace to measure. `None` for that of this program.
    pub network_of: Option<i32>,
}

/// The folder with the network counters of this program's namespace.
const NET: &str = "/proc/net";

impl Options {
    /// The folder with the network counters to measure.
    fn net(&self) -> PathBuf {
        self.network_of.map_or_else(|| NET.into(), |pid| format!("/proc/{pid}/net").into())
    }
}

/// All figures at one time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Sample {
    /// Seconds since the start of the measurement.
    pub at: f64,
    /// Seconds since the sample before.
    pub interval: f64,
    /// The six metrics of the system.
    pub system: System,
    /// The processes that still run.
    pub processes: Vec<Usage>,
    /// Counts of the kernel since the start of the measurement.
    pub kernel: Kernel,
    /// Sockets and their memory.
    pub sockets: Sockets,
    /// Memory of the kernel's own objects (slabs) of the whole machine, in bytes: sockets,
    /// descriptors, inodes.
    pub slab: u64,
}

/// Takes samples on request.
#[derive(Debug)]
pub struct Meter {
    began: Instant,
    last: Instant,
    system: system::Reader,
    watched: process::Watched,
    initial: Vec<Usage>,
    kernel: Kernel,
    net: PathBuf,
}

impl Meter {
    /// Starts measuring. Counts begin at 0.
    ///
    /// # Errors
    /// [`Error::Proc`]: a process does not exist, or /proc cannot be read.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let now = Instant::now();
        let watched = process::Watched::new(&options.pids, options.with_children)?;
        Ok(Self {
            began: now,
            last: now,
            system: system::Reader::start(options.net())?,
            initial: watched.read(),
            watched,
            kernel: Kernel::read_in(&options.net()),
            net: options.net(),
        })
    }

    /// What the processes had used at the start of the measurement.
    pub fn initial(&self) -> &[Usage] {
        &self.initial
    }

    /// The start of the measurement.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Takes a sample.
    ///
    /// # Errors
    /// [`Error::Proc`].
    pub fn sample(&mut self) -> Result<Sample, Error> {
        let now = Instant::now();
        let interval = now - std::mem::replace(&mut self.last, now);
        let at = now - self.began;
        Ok(Sample {
            at: at.as_secs_f64(),
            interval: interval.as_secs_f64(),
            system: self.system.read(at.as_secs())?,
            processes: self.watched.read(),
            kernel: Kernel::read_in(&self.net).since(&self.kernel),
            sockets: Sockets::read_in(&self.net),
            slab: system::slab()?,
        })
    }
}

/// Receives samples.
pub type Sink = Box<dyn FnMut(&Sample) -> anyhow::Result<()> + Send>;

/// A meter that takes samples on its own thread.
#[derive(Debug)]
pub struct Recording {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Error>>,
}

impl Recording {
    /// Takes a sample every `interval` and passes it to `sink`. A delayed sample is taken late, and
    /// the samples that it overlaps are left out.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn start(mut meter: Meter, interval: Duration, mut sink: Sink) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let interval = interval.max(Duration::from_millis(1));
        let thread = thread::Builder::new().name("meter".to_owned()).spawn(move || {
            let (mut turn, mut taken) = (1, false);
            loop {
                let next = meter.began() + interval.saturating_mul(turn);
                thread::park_timeout(next.saturating_duration_since(Instant::now()));
                let is_over = stopped.load(Relaxed);
                // A sample that is due is taken even after a stop. A measurement shorter than the interval has one, too.
                if Instant::now() >= next || is_over && !taken {
                    sink(&meter.sample()?).map_err(Error::Sink)?;
                    taken = true;
                    turn = following_turn(meter.began().elapsed(), interval);
                }
                if is_over {
                    return Ok(());
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Whether the thread has ended by itself, which means that it has failed.
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// The error that ended the recording.
    ///
    /// # Panics
    /// The sink has panicked.
    pub fn stop(self) -> Result<(), Error> {
        self.stop.store(true, Relaxed);
        self.thread.thread().unpark();
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Number of the next interval.
fn following_turn(elapsed: Duration, interval: Duration) -> u32 {
    let past = elapsed.as_nanos() / interval.as_nanos().max(1);
    u32::try_from(past).unwrap_or(u32::MAX - 1).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_samples_are_not_made_up_for() {
        let second = Duration::from_secs(1);
        let turn = |millis| following_turn(Duration::from_millis(millis), second);
        assert_eq!((turn(0), turn(1001), turn(1999), turn(5300)), (1, 2, 2, 6));
    }
}
