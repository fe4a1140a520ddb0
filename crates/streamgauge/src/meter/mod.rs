//! What the machine does while something is measured: the six metrics of the system once a
//! second, what single processes use, and what the kernel counts of the network.
//!
//! A [`Meter`] is asked for a [`Sample`] when one is wanted; a [`Recording`] takes them by itself,
//! on a thread of its own, until it is stopped. Intervals are as they were, not as they should
//! have been: each sample says when it was taken.

pub mod args;
pub mod kernel;
mod process;
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

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// /proc does not say.
    #[error("reading /proc: {0}")]
    Proc(#[from] procfs::ProcError),
    /// No thread.
    #[error("starting a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// What samples are handed to failed.
    #[error("{0:#}")]
    Sink(anyhow::Error),
}

/// What is measured besides the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Processes.
    pub pids: Vec<i32>,
    /// Whether what they start is measured as well.
    pub with_children: bool,
    /// Whose network is measured: that of the namespace that this process is in. None: this
    /// program's.
    pub network_of: Option<i32>,
}

/// What the kernel says of this program's network.
const NET: &str = "/proc/net";

impl Options {
    /// Where the kernel speaks of the network that is measured.
    fn net(&self) -> PathBuf {
        self.network_of.map_or_else(|| NET.into(), |pid| format!("/proc/{pid}/net").into())
    }
}

/// Everything at one time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Sample {
    /// Seconds since the measurement began.
    pub at: f64,
    /// Seconds since the sample before.
    pub interval: f64,
    /// The system's six metrics.
    pub system: System,
    /// Those of the processes that still run.
    pub processes: Vec<Usage>,
    /// What the kernel has counted since the measurement began.
    pub kernel: Kernel,
    /// What sockets hold.
    pub sockets: Sockets,
    /// Bytes of the kernel's own objects (slabs), of the whole machine: sockets, descriptors, inodes.
    pub slab: u64,
}

/// Measures when asked to.
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
    /// Begins: what is counted is counted from here.
    ///
    /// # Errors
    /// [`Error::Proc`]: a process is not there, or /proc is not as it should be.
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

    /// What the processes had used when the measurement began.
    pub fn initial(&self) -> &[Usage] {
        &self.initial
    }

    /// When the measurement began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Measures.
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

/// Where samples go.
pub type Sink = Box<dyn FnMut(&Sample) -> anyhow::Result<()> + Send>;

/// A meter that asks itself, on a thread of its own.
#[derive(Debug)]
pub struct Recording {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Error>>,
}

impl Recording {
    /// Measures every `interval`, and hands each sample to `sink`. A sample that could not be
    /// taken in time is taken late; those that it ran into are left out.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn start(mut meter: Meter, interval: Duration, mut sink: Sink) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let interval = interval.max(Duration::from_millis(1));
        let thread = thread::Builder::new().name("meter".to_owned()).spawn(move || {
            let mut turn = 1;
            loop {
                let next = meter.began() + interval.saturating_mul(turn);
                thread::park_timeout(next.saturating_duration_since(Instant::now()));
                // What is due is taken even if it was told to stop meanwhile.
                if Instant::now() >= next {
                    sink(&meter.sample()?).map_err(Error::Sink)?;
                    turn = following_turn(meter.began().elapsed(), interval);
                }
                if stopped.load(Relaxed) {
                    return Ok(());
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Whether it has ended by itself, which it does only when it fails.
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it.
    ///
    /// # Errors
    /// What it failed of.
    ///
    /// # Panics
    /// The sink has.
    pub fn stop(self) -> Result<(), Error> {
        self.stop.store(true, Relaxed);
        self.thread.thread().unpark();
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The turn of an interval that comes next.
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
