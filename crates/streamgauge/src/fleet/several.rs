//! A run that several processes share, of this machine or of several. Its results are those of one run.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use viewer::{Report, RequestTimes};

use super::here::{self, Part, Share};
use super::{GRACE, Observer, Outcome, Plan, interrupt};
use crate::Exit;
use crate::agents::{Doubts, Spread};
use crate::record::Tick;
use crate::selfwatch::{Generator, LoopReport};
use crate::shard::{self, Heard, Parent, Shards};

/// How much longer than the child itself the parent waits for the child's end.
const LONGER: Duration = Duration::from_secs(1);

/// The job of a child.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    plan: Plan,
    share: Share,
    period: Duration,
}

/// A message from a child.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    Tick(Tick),
    Report(Box<Report>),
    Requests(Box<RequestTimes>),
    /// All viewers of the child are connected, or have failed to connect.
    Connected,
    /// The last message.
    End(Part),
}

/// The state of a child, as far as the parent knows it.
#[derive(Debug, Default)]
struct Known {
    tick: Tick,
    reported: u32,
    /// Whether its viewers are connected, or it is gone: nobody waits for it.
    is_connected: bool,
    part: Option<Part>,
}

/// What the processes of one machine say of it.
#[derive(Debug, Default)]
struct Machine {
    loops: Vec<LoopReport>,
    local: u64,
    reasons: Vec<String>,
    /// What was lost with its processes, and which started late.
    losses: Vec<String>,
}

/// Runs a plan in several processes.
///
/// # Errors
/// A process cannot start, or the observer fails.
pub(super) async fn run(
    plan: &Plan,
    spread: &Spread<'_>,
    period: Duration,
    observer: &mut dyn Observer,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Outcome> {
    let processes = spread.processes();
    let offsets = spread.offsets();
    let job = |number| {
        let offset = offsets.get(spread.machine_of(number)).copied().flatten();
        let ahead = offset.map_or(0, |offset| offset.ahead());
        let share = Share { number, of: processes, source: spread.source(number), ahead };
        Job { plan: plan.clone(), share, period }
    };
    let jobs: Vec<Job> = (0..processes).map(job).collect();
    let mut shards = Shards::<Word>::start(spread.carrier(), shard::VIEWERS, &jobs).await?;
    let mut known: Vec<Known> = jobs.iter().map(|_| Known::default()).collect();
    let mut machines: Vec<_> = offsets.iter().map(|_| Machine::default()).collect();
    shards.begin().await?;
    let began = Instant::now();
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = pin!(stop);
    let mut was_interrupted = false;
    let mut is_released = !plan.together;
    let mut hard_end = began + plan.longest() + GRACE + LONGER;
    let sum = |known: &[Known]| {
        Tick::sum(began.elapsed().as_secs_f64(), known.iter().map(|known| &known.tick))
    };
    loop {
        tokio::select! {
            heard = timeout_at(hard_end, shards.hear()) => {
                // All processes have ended, or one hangs.
                let Ok(Some((number, heard))) = heard else { break };
                match heard {
                    Heard::Said(Word::Tick(tick)) => known[number].tick = tick,
                    Heard::Said(Word::Report(report)) => {
                        known[number].reported += 1;
                        observer.report(*report)?;
                    }
                    Heard::Said(Word::Requests(times)) => observer.requests(&times),
                    Heard::Said(Word::Connected) => known[number].is_connected = true,
                    Heard::Said(Word::End(part)) => known[number].part = Some(part),
                    Heard::Late(why) => {
                        machines[spread.machine_of(number as u32)].losses.push(why);
                    }
                    Heard::Ended => known[number].is_connected = true,
                    Heard::Failed(why) => {
                        known[number].is_connected = true;
                        let after = began.elapsed().as_secs_f64();
                        let loss = format!("{why} ({after:.1} s after the start)");
                        machines[spread.machine_of(number as u32)].losses.push(loss);
                    }
                }
                if !is_released && known.iter().all(|known| known.is_connected) {
                    is_released = true;
                    hard_end = Instant::now() + plan.end() + GRACE + LONGER;
                    shards.release()?;
                }
            }
            _ = ticks.tick() => observer.tick(&sum(&known)),
            () = &mut stop, if !was_interrupted => {
                was_interrupted = true;
                hard_end = Instant::now() + GRACE + LONGER;
                shards.stop()?;
            }
        }
    }
    observer.tick(&sum(&known));
    let elapsed = began.elapsed().as_secs_f64();
    let mut outcome = Outcome {
        elapsed,
        processes,
        interrupted: was_interrupted,
        lost: 0,
        generator: Generator::judge(Vec::new(), 0),
        agents: Vec::new(),
    };
    for (known, job) in known.into_iter().zip(&jobs) {
        let share = &job.share;
        let machine = &mut machines[spread.machine_of(share.number)];
        let lost = match known.part {
            Some(part) => {
                outcome.interrupted |= part.interrupted;
                machine.loops.extend(part.loops);
                machine.local += part.local;
                machine.reasons.extend(part.reasons);
                part.lost
            }
            None => {
                let lost = share.viewers(plan).saturating_sub(known.reported);
                let name = spread.name_of(share.number);
                machine.losses.push(format!("{lost} viewers of {name} are lost"));
                lost
            }
        };
        outcome.lost += lost;
    }
    let missing: Vec<_> = machines.iter().map(|machine| !machine.losses.is_empty()).collect();
    let judge = |(place, machine): (usize, Machine)| {
        let judged = Generator::judge(machine.loops, machine.local).doubted(machine.reasons);
        let name = spread.crew().map(|crew| crew.name(place));
        name.into_iter().fold(judged, Generator::of_agent).doubted(machine.losses)
    };
    let judged: Vec<_> = machines.into_iter().enumerate().map(judge).collect();
    if let Some(crew) = spread.crew() {
        let doubts = judged.iter().zip(missing).map(|(machine, is_missing)| {
            let reasons = machine.reasons.clone();
            Doubts { reasons, is_missing }
        });
        let doubts: Vec<_> = doubts.collect();
        outcome.agents = crew.report(began.into_std(), spread.each(), &offsets, &doubts);
    }
    outcome.generator = judged.into_iter().fold(outcome.generator, Generator::and);
    Ok(outcome)
}

/// Runs the job that the parent gives to this child.
///
/// # Errors
/// No parent gives it a job.
pub fn serve() -> anyhow::Result<Exit> {
    Parent::serve(|job: Job, parent| {
        shard::raise_descriptor_limit();
        let interrupted = interrupt::heard(interrupt::listen()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        parent.ready()?;
        let mut stopped = parent.stopped();
        let stop = async {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = interrupted => {}
            }
        };
        let mut may_go = parent.released();
        let released = async {
            // If the parent is gone, this process ends.
            let _ = may_go.wait_for(|may_go| *may_go).await;
        };
        let mut speaker = Speaker { parent, failed: None };
        let part = runtime.block_on(here::run(
            &job.plan,
            &job.share,
            job.period,
            &mut speaker,
            stop,
            released,
        ))?;
        speaker.failed.map_or(Ok(()), Err)?;
        parent.say(&Word::End(part)).context("saying how it ended")
    })
}

/// An observer that sends everything to the parent.
struct Speaker<'a> {
    parent: &'a Parent,
    failed: Option<anyhow::Error>,
}

impl Speaker<'_> {
    /// A failure to send is reported at the end.
    fn say(&mut self, word: &Word) {
        if let Err(error) = self.parent.say(word) {
            self.failed.get_or_insert(error);
        }
    }
}

impl Observer for Speaker<'_> {
    fn tick(&mut self, tick: &Tick) {
        self.say(&Word::Tick(*tick));
    }

    fn connected(&mut self) {
        self.say(&Word::Connected);
    }

    fn requests(&mut self, times: &RequestTimes) {
        self.say(&Word::Requests(Box::new(times.clone())));
    }

    fn report(&mut self, report: Report) -> anyhow::Result<()> {
        self.parent.say(&Word::Report(Box::new(report)))
    }
}
