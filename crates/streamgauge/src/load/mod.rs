//! Requests over HTTP, by a schedule or by clients that wait for their answers, and the results.
//!
//! [`run`] runs a [`Plan`] and returns an [`Outcome`]. There are two clients. HTTP/1.1 without TLS
//! has a client of its own (`worker`, one event loop for each thread), which must not be the
//! bottleneck of the measurement. HTTP/2 and TLS go through hyper (`general`), which costs
//! several times as much. Both take an `assignment` and judge answers in the same way (`check`,
//! `redirect`).
//!
//! ```text
//! args ─▶ Plan ─▶ run ─▶ Assignment ─┬▶ worker ─▶ connection ─▶ response ─┬▶ Tally ─▶ Outcome
//!                                    └▶ general ─▶ hyper, rustls ─────────┘             │
//!                                                          report, criterion ◀──────────┘
//! ```
//!
//! - What to ask: [`target`] and [`url`] are the targets, [`pacer`] and [`demand`] say when
//!   requests start, [`slow`] how slow clients are, `bare` is the protocol without HTTP.
//! - Before a run: `probe` finds addresses, `before` limits the time. [`several`] splits a run
//!   among processes.
//! - Results: [`tally`] and [`distribution`] count, [`criterion`] judges the server and [`trust`]
//!   the generator itself, `record` and [`report`] write.

mod alarm;
pub mod args;
mod assignment;
mod bare;
mod before;
mod check;
pub mod clock;
mod connection;
pub mod criterion;
pub mod demand;
pub mod distribution;
mod exchange;
mod general;
pub mod pacer;
mod plan;
mod probe;
mod progress;
mod record;
mod redirect;
pub mod report;
pub mod response;
pub mod several;
pub mod slow;
pub mod tally;
pub mod target;
mod trouble;
pub mod trust;
pub mod url;
mod wire;
mod worker;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::agents::{Agent, Crew};
use crate::meter::kernel::Kernel;
use crate::shard::raise_descriptor_limit;
use assignment::Assignment;
use before::Before;
use check::Reference;
use clock::{Clock, nanoseconds};
use demand::Demand;
use pacer::Schedule;
use serde::{Deserialize, Serialize};
use tally::{Counters, Shared, Tally};
use trust::Worker as Times;
use url::Origin;
use worker::Worker;

pub use plan::{Pace, Plan};

/// How long a run waits for answers after the end of its schedule at most. It must not outlast its
/// duration by more than 10 s.
const LONGEST_WAIT: Duration = Duration::from_secs(9);
/// Files that a process has open besides connections.
const OTHER_FILES: u64 = 80;

/// Why a run cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of a host is unknown.
    #[error("{host}: {source}")]
    Host {
        /// Its name.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// The length of a target is needed, but cannot be found.
    #[error("{url}: its length is not known ({reason}), so --range-size cannot divide it")]
    Length {
        /// The target.
        url: String,
        /// Why.
        reason: String,
    },
    /// A `limit://` server sends a wrong number of bytes, or nothing.
    #[error("{url}: {reason}")]
    Bare {
        /// The target.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The run was told to stop before it started.
    #[error("interrupted before the run began")]
    Interrupted,
    /// There are more connections than files that may be open, or fewer than processes.
    #[error("{0}")]
    Processes(String),
    /// A process that shares the run is lost.
    #[error("{0}")]
    Process(String),
    /// A file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(String),
    /// The system provides no threads or event loops.
    #[error("starting an event loop: {0}")]
    Loop(#[from] std::io::Error),
}

/// The counters of a run at one time.
#[derive(Debug, Clone, Copy, serde::Serialize, schemars::JsonSchema)]
pub struct Tick {
    /// Seconds since the run began.
    pub at: f64,
    /// All counts since then.
    #[serde(flatten)]
    pub counters: Counters,
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The results of all workers together.
    pub total: Tally,
    /// The times of each worker.
    pub workers: Vec<Times>,
    /// Seconds from the first request to the end.
    pub elapsed: f64,
    /// Whether it was told to stop.
    pub interrupted: bool,
    /// Lost processes, whose results are missing, and why.
    pub lost: Vec<String>,
    /// Processes that started late, and by how much.
    pub late: Vec<String>,
    /// The counters, once a second and at the end.
    pub ticks: Vec<Tick>,
    /// What the kernel counted during the run, for the whole network of this machine, or of those
    /// that shared the run.
    pub kernel: Kernel,
    /// The machines that shared the run; none if it was this one alone.
    pub agents: Vec<Agent>,
}

/// Prepares a plan: finds the addresses of hosts and, if a rule needs them, the lengths of targets.
/// All of it together may take as long as one answer, and at most as long as a run waits for its
/// last answers. `stop` ends it earlier.
///
/// # Errors
/// [`Error`]: the run cannot start.
pub fn prepare(
    plan: &mut Plan,
    crew: Option<&Crew>,
    stop: &AtomicBool,
) -> Result<HashMap<Origin, SocketAddr>, Error> {
    let allowed = crew.map_or_else(raise_descriptor_limit, Crew::files);
    if !plan.connections_given {
        let each = allowed.saturating_sub(OTHER_FILES).max(1);
        let processes = plan.processes.max(crew.map_or(1, Crew::count));
        plan.connections = plan.connections.min(each.saturating_mul(processes.into()));
    }
    let few = |reason: String| Error::Processes(reason);
    let spread = several::spread(plan, allowed, crew).map_err(|error| {
        few(format!("{error:#}; a process may open {allowed} files (ulimit -n)"))
    })?;
    let processes = spread.processes();
    if u64::from(processes) > plan.connections {
        let connections = plan.connections;
        return Err(few(format!("{processes} processes for {connections} connections")));
    }
    plan.processes = processes;
    let each = (plan.connections / u64::from(processes)).max(1);
    let threads = plan.threads.div_ceil(processes as usize);
    plan.threads = threads.clamp(1, each as usize) * processes as usize;
    let before = Before::new(plan.timeout.min(LONGEST_WAIT), stop);
    let addresses = probe::addresses(&plan.targets, &before)?;
    if plan.is_bare() {
        bare::find_lengths(plan, &addresses, &before)?;
    } else if plan.rule.is_some() {
        general::find_lengths(plan, &addresses, &before)?;
    }
    Ok(addresses)
}

/// Runs a plan, on this machine or on those of a crew, to its end or until `stop` is set. Calls `observe` with the counters every second.
///
/// # Errors
/// [`Error`]: the run cannot start.
pub fn run(
    plan: &Plan,
    crew: Option<&Crew>,
    addresses: &HashMap<Origin, SocketAddr>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Tick),
) -> Result<Outcome, Error> {
    if plan.processes > 1 || crew.is_some() {
        let spread = several::spread(plan, raise_descriptor_limit(), crew)
            .map_err(|error| Error::Processes(format!("{error:#}")))?;
        several::run(plan, &spread, addresses, stop, observe)
    } else {
        let all = Part { first: 0, threads: plan.threads, source: None };
        here(plan, addresses, &all, stop, observe)
    }
}

/// The part of a plan for one process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Part {
    /// Number of its first event loop, among all loops.
    first: u64,
    /// How many event loops it has.
    threads: usize,
    /// Local address of its connections; `None` if the system picks it.
    source: Option<IpAddr>,
}

/// Runs this process's part of a plan.
fn here(
    plan: &Plan,
    addresses: &HashMap<Origin, SocketAddr>,
    part: &Part,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Tick),
) -> Result<Outcome, Error> {
    let reference = plan
        .check
        .as_ref()
        .map(|path| {
            Reference::open(path)
                .map_err(|source| Error::File { path: path.display().to_string(), source })
        })
        .transpose()?;
    let general = plan.is_general().then(|| general::Client::new(plan, part.source)).transpose()?;
    let shared: Vec<Shared> = (0..part.threads).map(|_| Shared::default()).collect();
    let before = Kernel::read();
    let clock = Clock::start();
    let (done, finished) = channel();
    thread::scope(|scope| {
        for (lane, shared) in (part.first..).zip(&shared) {
            let assignment = Assignment {
                plan,
                demand: demand(plan, lane),
                addresses,
                reference: reference.as_ref(),
                connections: share(plan.connections, lane, plan.threads as u64) as usize,
                source: part.source,
                starts: starts(plan, lane),
                clock,
                shared,
                stop,
            };
            let (done, general) = (done.clone(), general.clone());
            thread::Builder::new().name(format!("load-{lane}")).spawn_scoped(scope, move || {
                let tally = match general {
                    Some(client) => general::run(assignment, client),
                    None => Worker::new(assignment).map(Worker::run),
                };
                // The receiver lives as long as this scope.
                let _ = done.send(tally);
            })?;
        }
        drop(done);
        let mut outcome = Outcome::default();
        let mut second = 1;
        while outcome.workers.len() < part.threads {
            let next = clock.at(second * 1_000_000_000);
            match finished.recv_timeout(next.saturating_duration_since(std::time::Instant::now())) {
                Ok(tally) => {
                    // A run with an error has no result, so the other workers stop.
                    let tally = tally.inspect_err(|_| stop.store(true, Relaxed))?;
                    let on_cpu = tally.counters.cpu_ns as f64 / 1e9;
                    outcome.workers.push(Times {
                        cpu: on_cpu,
                        starved: tally.starved_seconds,
                        wall: tally.wall_seconds,
                        agent: None,
                    });
                    outcome.total.add(&tally);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let tick = read(clock, &shared);
                    observe(&tick);
                    outcome.ticks.push(tick);
                    // A missed second needs no tick of its own: counters are cumulative.
                    second = clock.now() / 1_000_000_000 + 1;
                }
                // A worker that panicked ends the run.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Does not include the time to close connections.
        outcome.elapsed = outcome.total.ended;
        outcome.interrupted = stop.load(Relaxed);
        outcome.ticks.push(read(clock, &shared));
        outcome.kernel = Kernel::read().since(&before);
        Ok(outcome)
    })
}

fn read(clock: Clock, shared: &[Shared]) -> Tick {
    let mut counters = Counters::default();
    for worker in shared {
        counters.add(&worker.read());
    }
    Tick { at: clock.now() as f64 / 1e9, counters }
}

/// The part of `whole` for `lane` of `lanes`. All parts add up to `whole`.
fn share(whole: u64, lane: u64, lanes: u64) -> u64 {
    whole / lanes + u64::from(lane < whole % lanes)
}

/// When the clients of a lane start; empty if all start at once.
fn starts(plan: &Plan, lane: u64) -> Vec<u64> {
    if plan.pace != Pace::Closed || plan.manner.ramp.is_zero() {
        return Vec::new();
    }
    plan.manner.starts(plan.connections, lane, plan.threads as u64).collect()
}

fn demand(plan: &Plan, lane: u64) -> Demand {
    let lanes = plan.threads as u64;
    let length = plan.length();
    match plan.pace {
        Pace::Open { rate } => {
            let in_time = plan.duration.map(|duration| Schedule::requests_in(rate, duration));
            let total = [plan.requests, in_time].into_iter().flatten().min().unwrap_or(u64::MAX);
            let wait = plan.timeout.min(LONGEST_WAIT);
            Demand::Open {
                schedule: Schedule::new(rate, total, lane, lanes),
                last: length.map_or(u64::MAX, |length| nanoseconds(length.saturating_add(wait))),
            }
        }
        Pace::Closed => Demand::Closed {
            // With a ramp, clients rest until their start.
            free: if plan.manner.ramp.is_zero() {
                share(plan.connections, lane, lanes).saturating_mul(plan.pipeline as u64)
            } else {
                0
            },
            next: lane,
            lanes,
            left: plan.requests.map(|requests| share(requests, lane, lanes)),
            end: length.map(nanoseconds),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (whole, lanes) in [(10, 3), (2, 4), (0, 2), (7, 7)] {
            let shares: Vec<_> = (0..lanes).map(|lane| share(whole, lane, lanes)).collect();
            assert_eq!(shares.iter().sum::<u64>(), whole);
            assert!(shares.iter().all(|s| s.abs_diff(whole / lanes) <= 1), "{shares:?}");
        }
    }
}
