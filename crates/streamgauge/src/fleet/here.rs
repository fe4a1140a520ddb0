//! Runs a share of the viewers in this process, on its own event loops.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinSet, LocalSet, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};
use viewer::player::{part, play};
use viewer::{Barrier, Clock, Lane, Micros, Report, Totals, Viewer};

use super::{GRACE, Observer, Plan};
use crate::record::Tick;
use crate::selfwatch::{LoopReport, LoopWatch};

/// How many viewers of a loop join before the loop serves the viewers that have joined. Without
/// this, a large batch would delay the answers to its first viewers.
const JOINS: usize = 16;

/// The share of the viewers that one process runs: those of its loops. The viewers of a run go to
/// all loops of all processes in turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Share {
    /// The process's number, from 0.
    pub(super) number: u32,
    /// How many processes the run has.
    pub(super) of: u32,
    /// Local address of its viewers; `None` if the system picks it.
    pub(super) source: Option<IpAddr>,
    /// How far the time of day of the process's machine is ahead of that of the machine on which the
    /// run was started.
    pub(super) ahead: Micros,
}

impl Share {
    /// How many viewers the share has.
    pub(super) fn viewers(&self, plan: &Plan) -> u32 {
        let loops = u32::try_from(plan.loops_of_each(self.of)).unwrap_or(u32::MAX);
        let all = loops.saturating_mul(self.of);
        let of_loop = |number: u32| plan.viewers().saturating_sub(number).div_ceil(all);
        (self.number * loops..(self.number + 1) * loops).map(of_loop).sum()
    }
}

/// The outcome of a share.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) interrupted: bool,
    /// How many viewers joined but did not report.
    pub(super) lost: u32,
    pub(super) loops: Vec<LoopReport>,
    /// Troubles whose cause is this machine.
    pub(super) local: u64,
    /// Reasons not to trust the figures, besides those of the loops.
    pub(super) reasons: Vec<String>,
}

enum Said {
    Report(Box<Report>),
    Loop(LoopReport),
}

/// Runs a share of a plan to its end, or until `stop` completes. If viewers start together, they
/// wait until all of this share are connected, and then until `released` completes.
///
/// # Errors
/// It cannot start, or the observer fails.
pub(super) async fn run(
    plan: &Plan,
    share: &Share,
    period: Duration,
    observer: &mut dyn Observer,
    stop: impl Future<Output = ()>,
    released: impl Future<Output = ()>,
) -> anyhow::Result<Part> {
    let clock = Clock::start_ahead(share.ahead);
    let (stopping, stopped) = watch::channel(false);
    let (said, mut hear) = mpsc::unbounded_channel();
    let mut totals = Vec::new();
    let barrier = plan.together.then(|| Arc::new(Barrier::new(share.viewers(plan))));
    let loops = plan.loops_of_each(share.of);
    for place in 0..loops {
        let of_loop = Arc::new(Totals::default());
        totals.push(of_loop.clone());
        let seat = Seat {
            number: share.number as usize * loops + place,
            of: share.of as usize * loops,
            source: share.source,
            plan: plan.clone(),
            clock,
            barrier: barrier.clone(),
            totals: of_loop,
            said: said.clone(),
            stopped: stopped.clone(),
        };
        thread::Builder::new()
            .name(format!("loop-{place}"))
            .spawn(move || seat.run())
            .context("starting an event loop")?;
    }
    drop(said);
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = pin!(stop);
    let all_arrived = async {
        match &barrier {
            Some(barrier) => barrier.all_arrived().await,
            None => std::future::pending().await,
        }
    };
    let (mut all_arrived, mut released) = (pin!(all_arrived), pin!(released));
    let (mut are_here, mut may_go) = (false, false);
    let mut hard_end = Instant::now() + plan.longest() + GRACE;
    let (mut interrupted, mut reported, mut ended) = (false, 0u64, Vec::new());
    loop {
        tokio::select! {
            heard = timeout_at(hard_end, hear.recv()) => match heard {
                Ok(Some(Said::Report(report))) => {
                    reported += 1;
                    observer.report(*report)?;
                }
                Ok(Some(Said::Loop(report))) => ended.push(report),
                // All loops have ended, or one hangs.
                Ok(None) | Err(_) => break,
            },
            _ = ticks.tick() => observer.tick(&Tick::read(clock.now(), &totals)),
            () = &mut all_arrived, if !are_here => {
                are_here = true;
                observer.connected();
            }
            () = &mut released, if are_here && !may_go => {
                may_go = true;
                hard_end = Instant::now() + plan.end() + GRACE;
                barrier.iter().for_each(|barrier| barrier.open(clock.now()));
            }
            () = &mut stop, if !interrupted => {
                interrupted = true;
                hard_end = Instant::now() + GRACE;
                // Loops that have ended need no notice.
                let _ = stopping.send(true);
            }
        }
    }
    observer.tick(&Tick::read(clock.now(), &totals));
    totals.iter().for_each(|totals| observer.requests(&totals.request_times()));
    let local = totals.iter().map(|totals| totals.local.load(Relaxed)).sum();
    let joined: u64 = totals.iter().map(|totals| totals.joined.load(Relaxed)).sum();
    let lost = joined.saturating_sub(reported);
    let mut reasons = Vec::new();
    if lost > 0 || ended.len() < loops {
        reasons.push("an event loop did not come to its end in time".to_owned());
    }
    let lost = u32::try_from(lost).unwrap_or(u32::MAX);
    Ok(Part { interrupted, lost, loops: ended, local, reasons })
}

/// The share of one event loop.
struct Seat {
    /// Its number among all loops of the run.
    number: usize,
    /// How many loops the run has.
    of: usize,
    source: Option<IpAddr>,
    plan: Plan,
    clock: Clock,
    barrier: Option<Arc<Barrier>>,
    totals: Arc<Totals>,
    said: mpsc::UnboundedSender<Said>,
    stopped: watch::Receiver<bool>,
}

impl Seat {
    fn run(self) {
        // Without a runtime this loop sends no report, and the caller notices that.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let mut watch = LoopWatch::start();
        let watched = LocalSet::new().block_on(&runtime, async {
            let (done, over) = oneshot::channel::<()>();
            let end = self.end();
            let mut stopped = self.stopped.clone();
            // A task like those of the viewers: it waits for its turn as they do. It stops at the
            // end of the run, when all viewers leave at once: that is no delay to measure.
            let watching = tokio::task::spawn_local(async move {
                tokio::select! {
                    biased;
                    () = end => {}
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    _ = over => {}
                    () = watch.run() => {}
                }
                watch
            });
            self.viewers().await;
            drop(done);
            watching.await
        });
        if let Ok(watch) = watched {
            // The receiver is gone only if the whole run is gone.
            let _ = self.said.send(Said::Loop(watch.finish()));
        }
    }

    /// Waits until all viewers leave.
    fn end(&self) -> impl Future<Output = ()> + 'static {
        end(self.clock, self.barrier.clone(), self.plan.end())
    }

    async fn viewers(&self) {
        let plan = &self.plan;
        let lane = Lane::from(self.clock, plan.options.clone(), self.totals.clone(), self.source);
        self.barrier.iter().for_each(|barrier| lane.hold_at(barrier.clone()));
        let start = self.clock.instant(0);
        let mut tasks = JoinSet::new();
        let mut stopped = self.stopped.clone();
        let target = Rc::new(plan.target.clone());
        for batch in 0..plan.batches {
            tokio::select! {
                () = sleep_until(start + plan.interval * batch) => {}
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            let own = (0..plan.batch_size)
                .map(|place| batch * plan.batch_size + place)
                .filter(|id| *id as usize % self.of == self.number);
            for (place, id) in own.enumerate() {
                if place > 0 && place.is_multiple_of(JOINS) {
                    yield_now().await;
                }
                tasks.spawn_local(self.viewer(&lane, &target, id, batch));
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Runs one viewer, from joining to leaving.
    fn viewer(
        &self,
        lane: &Rc<Lane>,
        target: &Rc<viewer::player::Target>,
        id: u32,
        batch: u32,
    ) -> impl Future<Output = ()> + 'static {
        let end = self.end();
        let verify = self.plan.verify.concerns(id);
        let reference = self.plan.reference.as_ref().map(|original| original.units.clone());
        let (lane, target) = (lane.clone(), target.clone());
        let (said, mut stopped) = (self.said.clone(), self.stopped.clone());
        async move {
            // The viewer joins on its first turn: the time that others take to join does not count
            // as its own.
            let viewer = Viewer::join(&lane, (id, batch), verify, reference);
            let outcome = tokio::select! {
                biased;
                () = end => None,
                _ = stopped.wait_for(|stopped| *stopped) => None,
                outcome = play(&viewer, &target) => Some(outcome),
            };
            part(&viewer).await;
            let report = Box::new(viewer.leave(outcome).report());
            let _ = said.send(Said::Report(report));
        }
    }
}

/// Waits until a run of this duration ends. It begins when the clock starts, or when the barrier opens.
async fn end(clock: Clock, barrier: Option<Arc<Barrier>>, duration: Duration) {
    let begun = match barrier {
        Some(barrier) => barrier.opened().await,
        None => 0,
    };
    sleep_until(clock.instant(begun) + duration).await;
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::{advance, timeout};
    use viewer::RequestTimes;

    use super::*;
    use crate::fleet::Verify;

    #[tokio::test(start_paused = true)]
    async fn the_time_that_viewers_wait_for_each_other_is_no_part_of_the_duration() {
        let (clock, barrier) = (Clock::start(), Arc::new(Barrier::new(2)));
        let (second, nothing) = (Duration::from_secs(1), Duration::ZERO);
        let mut held = pin!(end(clock, Some(Arc::clone(&barrier)), 10 * second));
        let mut free = pin!(end(clock, None, 10 * second));
        // The last viewer needs 12 s to connect.
        assert!(timeout(9 * second, &mut free).await.is_err());
        assert!(timeout(2 * second, &mut free).await.is_ok());
        assert!(timeout(second, &mut held).await.is_err());
        barrier.open(clock.now());
        assert!(timeout(9 * second, &mut held).await.is_err());
        advance(2 * second).await;
        assert!(timeout(nothing, &mut held).await.is_ok());
    }

    /// Tells when all viewers are connected.
    struct Watcher(Option<oneshot::Sender<()>>);

    impl Observer for Watcher {
        fn tick(&mut self, _: &Tick) {}

        fn report(&mut self, _: Report) -> anyhow::Result<()> {
            Ok(())
        }

        fn connected(&mut self) {
            self.0.take().expect("it is told once").send(()).expect("it is waited for");
        }

        fn requests(&mut self, _: &RequestTimes) {}
    }

    /// The others are those of other processes.
    #[tokio::test]
    async fn viewers_that_are_connected_ask_for_nothing_before_the_others_are() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x.mp4", listener.local_addr().unwrap());
        let plan = Plan {
            batches: 1,
            duration: Duration::from_mins(10),
            together: true,
            loops: 2,
            ..plan(&url, 3)
        };
        let share = Share { number: 0, of: 1, source: None, ahead: 0 };
        let (connected, are_connected) = oneshot::channel();
        let (release, released) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut watcher = Watcher(Some(connected));
        let wait = async |told: oneshot::Receiver<()>| told.await.expect("it is told");
        let period = Duration::from_secs(1);
        let run = run(&plan, &share, period, &mut watcher, wait(ended), wait(released));
        let driven = async {
            are_connected.await.expect("they connect");
            let mut sockets = Vec::new();
            for _ in 0..3 {
                sockets.push(listener.accept().await.unwrap().0);
            }
            for socket in &sockets {
                let early = socket.try_read(&mut [0]).map_err(|error| error.kind());
                assert_eq!(early, Err(ErrorKind::WouldBlock));
            }
            release.send(()).expect("they wait");
            for socket in &mut sockets {
                let mut begin = [0; 4];
                socket.read_exact(&mut begin).await.unwrap();
                assert_eq!(&begin, b"GET ");
            }
            end.send(()).expect("they watch");
        };
        let (part, ()) = tokio::join!(run, driven);
        let part = part.unwrap();
        assert!(part.interrupted && part.lost == 0, "{part:?}");
    }

    fn plan(url: &str, viewers: u32) -> Plan {
        Plan {
            target: url.parse().unwrap(),
            options: viewer::Options::default(),
            batches: 1,
            batch_size: viewers,
            interval: Duration::ZERO,
            duration: Duration::ZERO,
            together: false,
            verify: Verify::None,
            reference: None,
            loops: 1,
            processes: None,
        }
    }

    #[test]
    fn shares_make_a_whole() {
        for (viewers, loops, processes) in [(1, 2, 3), (300, 2, 5), (7, 8, 3), (1000, 1, 1)] {
            let plan = Plan { loops, ..plan("rtmp://h/live/x", viewers) };
            let each = plan.loops_of_each(processes);
            let all = each * processes as usize;
            for number in 0..processes {
                let share = Share { number, of: processes, source: None, ahead: 0 };
                let own = number as usize * each..(number as usize + 1) * each;
                let counted = (0..viewers as usize).filter(|id| own.contains(&(id % all))).count();
                assert_eq!(share.viewers(&plan) as usize, counted, "{number} of {processes}");
            }
        }
    }
}
