//! A run that several processes share. It needs more files than one process may open, or more ports
//! than one address has. Its results are those of one run.
//!
//! Requests belong to lanes, and each process has some of the lanes, so the processes need not
//! agree on anything. The parent finds hosts and lengths, sends the plan, and adds up the results.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::check::Reference;
use super::clock::Clock;
use super::tally::{Counters, Tally};
use super::trust::{self, Worker};
use super::url::Origin;
use super::{Error, Outcome, Part, Plan, Tick, here};
use crate::Exit;
use crate::agents::clock::Offset;
use crate::agents::{Crew, Doubts, Spread};
use crate::meter::kernel::Kernel;
use crate::shard::{self, Heard, Parent, Shards};

/// Pause between two checks whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// How many checks there are from one tick to the next.
const LOOKS_A_TICK: u32 = 10;
/// How long after the end of its schedule a run may still take. The processes themselves end within
/// [`super::LONGEST_WAIT`].
const GRACE: Duration = Duration::from_secs(10);
/// How long stopped processes may take to send their results.
const STOPPING: Duration = Duration::from_secs(10);
/// How long all processes may be silent in a run without an end. Each sends a message every second.
const SILENCE: Duration = Duration::from_secs(30);

/// The job of a child.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    plan: Plan,
    addresses: Vec<(Origin, SocketAddr)>,
    part: Part,
}

/// A message from a child.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    Tick(Counters),
    /// The last message.
    End(Box<End>),
}

#[derive(Debug, Serialize, Deserialize)]
struct End {
    total: Tally,
    workers: Vec<Worker>,
    kernel: Kernel,
    interrupted: bool,
}

/// The state of a child, as far as the parent knows it.
#[derive(Debug, Default)]
struct Known {
    counters: Counters,
    end: Option<End>,
    /// That it started late.
    late: Option<String>,
    /// Why it failed.
    failed: Option<String>,
}

/// How a plan is spread over processes. A process of this machine may open `allowed` files.
///
/// # Errors
/// Too few processes are asked for, or they cannot be shared equally.
pub(super) fn spread<'a>(
    plan: &Plan,
    allowed: u64,
    crew: Option<&'a Crew>,
) -> anyhow::Result<Spread<'a>> {
    let url = plan.targets.first().map_or_else(String::new, |target| target.url.to_string());
    let asked = (plan.processes > 0).then_some(plan.processes);
    Spread::new((plan.connections, &url), asked, allowed, crew)
}

/// Runs a plan in several processes, like [`super::run`].
pub(super) fn run(
    plan: &Plan,
    spread: &Spread<'_>,
    addresses: &HashMap<Origin, SocketAddr>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Tick),
) -> Result<Outcome, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lost = |error: anyhow::Error| Error::Process(format!("{error:#}"));
    runtime.block_on(share(plan, spread, addresses, stop, observe)).map_err(lost)
}

async fn share(
    plan: &Plan,
    spread: &Spread<'_>,
    addresses: &HashMap<Origin, SocketAddr>,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Tick),
) -> anyhow::Result<Outcome> {
    let each = plan.threads / plan.processes as usize;
    let job = |number: u32| Job {
        plan: plan.clone(),
        addresses: addresses.iter().map(|(origin, address)| (origin.clone(), *address)).collect(),
        part: Part {
            first: u64::from(number) * each as u64,
            threads: each,
            source: spread.source(number),
        },
    };
    let jobs: Vec<_> = (0..plan.processes).map(job).collect();
    let mut shards = Shards::<Word>::start(spread.carrier(), shard::HTTP, &jobs).await?;
    drop(jobs);
    let before = Kernel::read();
    let offsets = spread.offsets();
    shards.begin().await?;
    let clock = Clock::start();
    let began = Instant::now();
    let mut hard_end = plan.length().and_then(|length| began.checked_add(length + GRACE));
    let mut heard_at = began;
    let mut known: Vec<Known> = (0..plan.processes).map(|_| Known::default()).collect();
    let mut outcome = Outcome::default();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut number_of_looks, mut told) = (0, false);
    loop {
        tokio::select! {
            heard = shards.hear() => {
                let Some((number, heard)) = heard else { break };
                heard_at = Instant::now();
                let known = &mut known[number];
                match heard {
                    Heard::Said(Word::Tick(counters)) => known.counters = counters,
                    Heard::Said(Word::End(end)) => {
                        known.counters = end.total.counters;
                        known.end = Some(*end);
                    }
                    Heard::Late(why) => known.late = Some(why),
                    Heard::Ended => {}
                    Heard::Failed(why) => {
                        let after = began.elapsed().as_secs_f64();
                        known.failed = Some(format!("{why} ({after:.1} s after the start)"));
                    }
                }
            }
            // A process hangs. Dropping `shards` kills it.
            () = sleep_until(hard_end.unwrap_or(heard_at + SILENCE)) => break,
            _ = looks.tick() => {
                number_of_looks += 1;
                if number_of_looks % LOOKS_A_TICK == 0 {
                    let tick = sum(clock, &known);
                    observe(&tick);
                    outcome.ticks.push(tick);
                }
                if stop.load(Relaxed) && !told {
                    told = true;
                    hard_end = Some(Instant::now() + STOPPING);
                    shards.stop()?;
                }
            }
        }
    }
    outcome.ticks.push(sum(clock, &known));
    outcome.kernel = Kernel::read().since(&before);
    outcome.interrupted = stop.load(Relaxed);
    put_together(known, spread, (began.into_std(), &offsets), &mut outcome)?;
    Ok(outcome)
}

/// What the processes of one machine say of it.
#[derive(Debug, Default)]
struct Machine {
    total: Tally,
    workers: Vec<Worker>,
    late: Vec<String>,
    losses: Vec<String>,
}

/// Adds up the results of the processes. If one is lost, the rest is not the load that was asked
/// for, but it is still worth having.
///
/// # Errors
/// No process of this machine has results. The error says why.
fn put_together(
    known: Vec<Known>,
    spread: &Spread<'_>,
    (began, offsets): (std::time::Instant, &[Option<Offset>]),
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let (mut found, processes) = (false, known.len());
    let mut machines: Vec<_> = (0..spread.machines()).map(|_| Machine::default()).collect();
    if spread.crew().is_some() {
        // What this machine's network did is of no interest.
        outcome.kernel = Kernel::default();
    }
    for (number, Known { end, late, failed, .. }) in (0..).zip(known) {
        let place = spread.machine_of(number);
        let machine = &mut machines[place];
        machine.late.extend(late);
        let Some(End { total, workers, kernel, interrupted }) = end else {
            let name = spread.name_of(number);
            let hangs = || format!("{name} of {processes} did not end in time");
            machine.losses.push(failed.unwrap_or_else(hangs));
            continue;
        };
        found = true;
        // All processes of a machine see the same kernel.
        if spread.crew().is_some() && machine.workers.is_empty() {
            outcome.kernel.add(&kernel);
        }
        machine.total.add(&total);
        machine.workers.extend(workers);
        outcome.interrupted |= interrupted;
    }
    let mut doubts = Vec::new();
    for (place, mut machine) in machines.into_iter().enumerate() {
        if let Some(crew) = spread.crew() {
            let name = crew.name(place);
            let mut reasons = trust::of_agent(name, &mut machine.total, &machine.workers);
            machine.workers.iter_mut().for_each(|worker| worker.agent = Some(name.to_owned()));
            reasons.extend(machine.losses.iter().chain(&machine.late).cloned());
            doubts.push(Doubts { reasons, is_missing: !machine.losses.is_empty() });
        }
        outcome.total.add(&machine.total);
        outcome.workers.extend(machine.workers);
        outcome.lost.extend(machine.losses);
        outcome.late.extend(machine.late);
    }
    // Agents that are lost are named in the result.
    if !found && spread.crew().is_none() {
        anyhow::bail!(std::mem::take(&mut outcome.lost).join("; "));
    }
    if let Some(crew) = spread.crew() {
        outcome.agents = crew.report(began, spread.each(), offsets, &doubts);
    }
    outcome.elapsed = outcome.total.ended;
    Ok(())
}

fn sum(clock: Clock, known: &[Known]) -> Tick {
    let mut counters = Counters::default();
    for each in known {
        counters.add(&each.counters);
    }
    Tick { at: clock.now() as f64 / 1e9, counters }
}

/// Runs the job that the parent gives to this child.
///
/// # Errors
/// No parent gives it a job.
pub fn serve() -> anyhow::Result<Exit> {
    Parent::serve(|job: Job, parent| {
        shard::raise_descriptor_limit();
        let stop = crate::signals::stop()?;
        stop_when_told(parent, stop.clone())?;
        let addresses = job.addresses.into_iter().collect();
        if let Some(path) = &job.plan.check {
            // A file that this machine does not have is told before the run.
            Reference::open(path).with_context(|| path.display().to_string())?;
        }
        parent.ready()?;
        let mut silent = None;
        let mut observe = |tick: &Tick| {
            if let Err(error) = parent.say(&Word::Tick(tick.counters)) {
                // There is nobody to send results to.
                silent.get_or_insert(error);
                stop.store(true, Relaxed);
            }
        };
        let outcome = here(&job.plan, &addresses, &job.part, &stop, &mut observe)?;
        silent.map_or(Ok(()), Err)?;
        let Outcome { total, workers, kernel, interrupted, .. } = outcome;
        let end = End { total, workers, kernel, interrupted };
        parent.say(&Word::End(Box::new(end))).context("saying how it ended")
    })
}

fn stop_when_told(parent: &Parent, stop: Arc<AtomicBool>) -> anyhow::Result<()> {
    let mut told = parent.stopped();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    std::thread::Builder::new().name("told".to_owned()).spawn(move || {
        if runtime.block_on(told.wait_for(|told| *told)).is_ok() {
            stop.store(true, Relaxed);
        }
    })?;
    Ok(())
}

/// Local address of connections to `address`: one of the process's own, if `address` is on the
/// loopback. A loopback address reaches nothing else.
pub(super) fn source_for(source: Option<IpAddr>, address: SocketAddr) -> Option<SocketAddr> {
    let source = source.filter(|source| source.is_ipv4() == address.is_ipv4())?;
    address.ip().is_loopback().then(|| (source, 0).into())
}
