//! Many viewers at once: when they join, on which event loop, and what became of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};
use viewer::player::{Target, play};
use viewer::verify::Reference;
use viewer::{Clock, Lane, Options, Report, RequestTimes, Totals, Viewer};

use crate::progress::Progress;
use crate::record::{Folder, Tick};
use crate::selfwatch::{Generator, LoopReport, LoopWatch};
use crate::summary::Sum;

/// How long after its end a run may still take.
const GRACE: Duration = Duration::from_secs(8);

/// Which viewers are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is watched.
    pub target: Target,
    /// How each viewer behaves.
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
    pub reference: Option<Arc<Reference>>,
    /// Event loops, one thread each.
    pub loops: usize,
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
}

/// What came of a run, but for the viewers' reports, which were handed on as they came.
#[derive(Debug)]
pub struct Outcome {
    /// How long it took, in seconds.
    pub elapsed: f64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Viewers whose report is missing, since their loop did not come to an end.
    pub lost: u32,
    /// Whether the figures can be trusted.
    pub generator: Generator,
}

/// What a run tells while it goes on.
pub trait Observer {
    /// A second has gone by.
    fn tick(&mut self, tick: &Tick);
    /// A viewer has left.
    ///
    /// # Errors
    /// It cannot be recorded; the run ends.
    fn report(&mut self, report: Report) -> anyhow::Result<()>;
    /// How long the requests of an event loop's viewers took, once the run is over.
    fn requests(&mut self, times: &RequestTimes);
}

/// An observer that adds reports up, shows progress and keeps records.
#[derive(Debug)]
pub struct Recorder {
    folder: Option<Folder>,
    progress: Progress,
    sum: Sum,
    /// Why the records are not whole.
    failed: Option<anyhow::Error>,
}

impl Recorder {
    /// Of a run of that length, whose viewers should get `wanted` seconds of media.
    pub fn new(folder: Option<Folder>, length: Duration, wanted: f64, quiet: bool) -> Self {
        let progress = Progress::new(length, quiet);
        Self { folder, progress, sum: Sum::new(wanted), failed: None }
    }

    /// Ends the progress; what was kept and added up.
    pub fn finish(self) -> (Option<Folder>, Sum) {
        self.progress.finish();
        (self.folder, self.sum)
    }
}

impl Observer for Recorder {
    fn tick(&mut self, tick: &Tick) {
        self.progress.tick(tick);
        if let Some(folder) = &mut self.folder
            && let Err(error) = folder.tick(tick)
        {
            self.failed.get_or_insert(error);
        }
    }

    fn report(&mut self, report: Report) -> anyhow::Result<()> {
        self.sum.add(&report);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.folder.as_mut().map_or(Ok(()), |folder| folder.viewer(&report))
    }

    fn requests(&mut self, times: &RequestTimes) {
        self.sum.requests(times);
    }
}

enum Said {
    Report(Box<Report>),
    Loop(LoopReport),
}

/// Raises the soft limit of open descriptors to the hard one, and says what it is.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, what it is counts.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Runs a plan to its end, until it is interrupted (SIGINT, SIGTERM), or until nothing more can
/// come of it. `period` is how often the observer is told.
///
/// # Errors
/// The run cannot begin, or the observer fails.
pub fn run(plan: &Plan, period: Duration, observer: &mut dyn Observer) -> anyhow::Result<Outcome> {
    let wanted = u64::from(plan.viewers()) * plan.target.connections() + 64;
    let allowed = raise_descriptor_limit();
    ensure!(
        wanted <= allowed,
        "{} viewers need {wanted} open files and {allowed} are allowed: use several processes",
        plan.viewers()
    );
    let clock = Clock::start();
    let (stop, stopped) = watch::channel(false);
    let (said, mut hear) = mpsc::unbounded_channel();
    let mut totals = Vec::new();
    for number in 0..plan.loops {
        let of_loop = Arc::new(Totals::default());
        totals.push(of_loop.clone());
        let seat = Seat {
            number,
            plan: plan.clone(),
            clock,
            totals: of_loop,
            said: said.clone(),
            stopped: stopped.clone(),
        };
        thread::Builder::new()
            .name(format!("loop-{number}"))
            .spawn(move || seat.run())
            .context("starting an event loop")?;
    }
    drop(said);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut interrupt = std::pin::pin!(interrupted());
        let deadline = Instant::now() + plan.end() + GRACE;
        let (mut was_interrupted, mut reported, mut loops) = (false, 0u64, Vec::new());
        let mut hard_end = deadline;
        loop {
            tokio::select! {
                heard = timeout_at(hard_end, hear.recv()) => match heard {
                    Ok(Some(Said::Report(report))) => {
                        reported += 1;
                        observer.report(*report)?;
                    }
                    Ok(Some(Said::Loop(report))) => loops.push(report),
                    // All loops have ended, or one hangs.
                    Ok(None) | Err(_) => break,
                },
                _ = ticks.tick() => observer.tick(&Tick::read(clock.now(), &totals)),
                () = &mut interrupt, if !was_interrupted => {
                    was_interrupted = true;
                    hard_end = Instant::now() + GRACE;
                    // Loops that are gone need not be told.
                    let _ = stop.send(true);
                }
            }
        }
        observer.tick(&Tick::read(clock.now(), &totals));
        totals.iter().for_each(|totals| observer.requests(&totals.request_times()));
        let local = totals.iter().map(|totals| totals.local.load(Relaxed)).sum();
        let joined: u64 = totals.iter().map(|totals| totals.joined.load(Relaxed)).sum();
        let lost = joined.saturating_sub(reported);
        let mut generator = Generator::judge(loops, local);
        if lost > 0 || generator.loops.len() < plan.loops {
            generator.saturated = true;
            generator.reasons.push("an event loop did not come to its end in time".to_owned());
        }
        Ok(Outcome {
            elapsed: viewer::seconds(clock.now()),
            interrupted: was_interrupted,
            lost: u32::try_from(lost).unwrap_or(u32::MAX),
            generator,
        })
    })
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without handlers the signal ends the program as ever.
        _ => std::future::pending().await,
    }
}

/// One event loop's share of a run.
struct Seat {
    number: usize,
    plan: Plan,
    clock: Clock,
    totals: Arc<Totals>,
    said: mpsc::UnboundedSender<Said>,
    stopped: watch::Receiver<bool>,
}

impl Seat {
    fn run(self) {
        // Without a runtime there are no reports, which is what the caller sees.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let mut watch = LoopWatch::start();
        LocalSet::new().block_on(&runtime, async {
            tokio::select! {
                () = watch.run() => {}
                () = self.viewers() => {}
            }
        });
        // The receiver is gone only if the whole run is.
        let _ = self.said.send(Said::Loop(watch.finish()));
    }

    async fn viewers(&self) {
        let plan = &self.plan;
        let lane = Lane::new(self.clock, plan.options.clone(), self.totals.clone());
        let target = std::rc::Rc::new(plan.target.clone());
        let start = self.clock.instant(0);
        let end = start + plan.end();
        let mut tasks = JoinSet::new();
        let mut stopped = self.stopped.clone();
        for batch in 0..plan.batches {
            tokio::select! {
                () = sleep_until(start + plan.interval * batch) => {}
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            for place in 0..plan.batch_size {
                let id = batch * plan.batch_size + place;
                if id as usize % plan.loops != self.number {
                    continue;
                }
                let verify = plan.verify.concerns(id);
                let viewer = Viewer::join(&lane, (id, batch), verify, plan.reference.clone());
                let (target, mut stopped) = (target.clone(), self.stopped.clone());
                let said = self.said.clone();
                tasks.spawn_local(async move {
                    let outcome = tokio::select! {
                        biased;
                        () = sleep_until(end) => None,
                        _ = stopped.wait_for(|stopped| *stopped) => None,
                        outcome = play(&viewer, &target) => Some(outcome),
                    };
                    let report = Box::new(viewer.leave(outcome).report());
                    let _ = said.send(Said::Report(report));
                });
            }
        }
        while tasks.join_next().await.is_some() {}
    }
}
