//! Requests over HTTP, by a schedule or by clients that wait for their answers, and what they got.
//!
//! [`run`] carries a [`Plan`] out and gives an [`Outcome`] back. HTTP/1.1 without TLS has a client
//! of its own ([`worker`], one event loop a thread), which is not to be the bottleneck of what it
//! measures; HTTP/2 and TLS go through hyper ([`general`]), which costs several times as much. Both
//! take an [`assignment`], and judge answers alike ([`check`], [`redirect`]).
//! [`several`] shares a run between processes, [`slow`] is how clients behave besides asking, [`bare`]
//! what is asked without HTTP, and [`trust`] judges the generator itself.
//!
//! ```text
//! args ─▶ Plan ─▶ run ─▶ Assignment ─┬▶ worker ─▶ connection ─▶ response ─┬▶ Tally ─▶ Outcome
//!                                    └▶ general ─▶ hyper, rustls ─────────┘             │
//!                                                          report, criterion ◀──────────┘
//! ```

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

use crate::meter::kernel::Kernel;
use assignment::Assignment;
use before::Before;
use check::Reference;
use clock::{Clock, nanoseconds};
use demand::Demand;
use pacer::Schedule;
use serde::{Deserialize, Serialize};
use tally::{Counters, Shared, Tally};
use url::Origin;
use worker::Worker;

pub use plan::{Pace, Plan};

/// How long after the end of its schedule a run waits for answers, at most: it must not outlast
/// its duration by more than 10 s.
const LONGEST_WAIT: Duration = Duration::from_secs(9);
/// Files that a process has open besides its connections.
const OTHER_FILES: u64 = 80;

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A host that is not known.
    #[error("{host}: {source}")]
    Host {
        /// Its name.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// The length of a target is needed and cannot be found out.
    #[error("{url}: its length is not known ({reason}), so --range-size cannot divide it")]
    Length {
        /// Of which target.
        url: String,
        /// Why.
        reason: String,
    },
    /// What a `limit://` server sends is not what it should, or nothing.
    #[error("{url}: {reason}")]
    Bare {
        /// Which.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// It was told to stop before it began.
    #[error("interrupted before the run began")]
    Interrupted,
    /// More connections than files that may be open, or fewer than processes.
    #[error("{0}")]
    Processes(String),
    /// A process that shares the run is lost.
    #[error("{0}")]
    Process(String),
    /// A file that cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(String),
    /// The machine gives no threads or event loops.
    #[error("starting an event loop: {0}")]
    Loop(#[from] std::io::Error),
}

/// The counters of a run at a time.
#[derive(Debug, Clone, Copy, serde::Serialize, schemars::JsonSchema)]
pub struct Tick {
    /// Seconds since the run began.
    pub at: f64,
    /// All counts since then.
    #[serde(flatten)]
    pub counters: Counters,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What all workers found.
    pub total: Tally,
    /// What each used of a processor: seconds on it, seconds waiting for it, seconds in all.
    pub workers: Vec<(f64, f64, f64)>,
    /// Seconds from the first request to the end.
    pub elapsed: f64,
    /// Whether it was told to stop.
    pub interrupted: bool,
    /// Processes that shared it and are not in it: which, and why.
    pub lost: Vec<String>,
    /// The counters, once a second and at the end.
    pub ticks: Vec<Tick>,
    /// What the kernel counted meanwhile, of this machine's whole network.
    pub kernel: Kernel,
}

/// Prepares a plan: finds hosts and, where a rule needs them, lengths. All of it takes as long as an
/// answer may, and as a run may wait for its last answers, at most; it ends when `stop` is set.
///
/// # Errors
/// [`Error`]: the run cannot begin.
pub fn prepare(plan: &mut Plan, stop: &AtomicBool) -> Result<HashMap<Origin, SocketAddr>, Error> {
    let allowed = crate::fleet::raise_descriptor_limit();
    if !plan.connections_given {
        let each = allowed.saturating_sub(OTHER_FILES).max(1);
        plan.connections = plan.connections.min(each.saturating_mul(plan.processes.max(1).into()));
    }
    let asked = (plan.processes > 0).then_some(plan.processes);
    let few = |reason: String| Error::Processes(reason);
    let processes = several::needs(plan).processes(asked, allowed).map_err(|error| {
        few(format!("{error:#}; a process may open {allowed} files (ulimit -n)"))
    })?;
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

/// Carries a plan out, to its end or until `stop` is set. `observe` is told the counters once a
/// second.
///
/// # Errors
/// [`Error`]: the run cannot begin.
pub fn run(
    plan: &Plan,
    addresses: &HashMap<Origin, SocketAddr>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Tick),
) -> Result<Outcome, Error> {
    if plan.processes > 1 {
        several::run(plan, addresses, stop, observe)
    } else {
        let all = Part { first: 0, threads: plan.threads, source: None };
        here(plan, addresses, &all, stop, observe)
    }
}

/// The share of a plan that is one process's.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Part {
    /// The first of its event loops, among all.
    first: u64,
    /// How many they are.
    threads: usize,
    /// The address its connections come from, if that matters.
    source: Option<IpAddr>,
}

/// Carries out this process's part of a plan.
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
                    // The others need not go on for a run that has no result.
                    let tally = tally.inspect_err(|_| stop.store(true, Relaxed))?;
                    let on_cpu = tally.counters.cpu_ns as f64 / 1e9;
                    outcome.workers.push((on_cpu, tally.starved_seconds, tally.wall_seconds));
                    outcome.total.add(&tally);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let tick = read(clock, &shared);
                    observe(&tick);
                    outcome.ticks.push(tick);
                    // A second that was missed is not made up for: the counts are cumulative.
                    second = clock.now() / 1_000_000_000 + 1;
                }
                // A worker that panicked takes the run with it.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Without the time it took to close what was open.
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

/// What `lane` of `lanes` gets of `whole`: the parts add up to it.
fn share(whole: u64, lane: u64, lanes: u64) -> u64 {
    whole / lanes + u64::from(lane < whole % lanes)
}

/// When the clients of a lane begin, if not all at once.
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
            // Those that begin later rest until then.
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
