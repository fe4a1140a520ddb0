//! One event loop: sends requests when they are due, over its own connections.
//!
//! ```text
//! demand ─▶ ready ─▶ dispatch ─▶ connections ─▶ answers ─▶ tally
//!             ▲         │ ▲           │             │
//!             │         ▼ │           │             │
//!             │       waiting         │             │
//!             └── sent again ─────────┴─ redirected ┘
//! ```
//!
//! [`dispatch`] brings due requests to connections, which [`pool`] keeps. [`traffic`] sends and
//! reads. [`settle`] decides what happens to each request. The loop itself is in this file.
//!
//! A loop shares nothing with other loops but counters that they read. It needs two system calls
//! for an exchange: one to send, one to receive.

mod dispatch;
mod pool;
mod settle;
mod traffic;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::assignment::{Assignment, Start, TICK};
use super::connection::Io;
use super::exchange::{Answer, Asked, Exchange};
use super::redirect::Servers;
use super::tally::Tally;
use super::target::Target;
use super::{Plan, bare};
use pool::{Key, Pool};

/// How many events the kernel returns at once. After each such batch, the loop looks for due
/// requests.
const BATCH: usize = 64;
/// A wake-up that is later than this is a standstill, during which answers wait unread, in
/// nanoseconds.
const STANDSTILL: u64 = 1_000_000;

pub(super) struct Worker<'a> {
    given: Assignment<'a>,
    asked: Vec<Rc<Asked>>,
    pool: Pool,
    /// Requests that need a connection.
    ready: VecDeque<Exchange>,
    /// Requests that found no connection.
    waiting: VecDeque<Exchange>,
    /// When resting clients go on.
    resting: BinaryHeap<Reverse<u64>>,
    /// When slow connections may read again.
    paused: BinaryHeap<Reverse<(u64, Key)>>,
    answers: Vec<Answer>,
    /// Nanoseconds by which the loop woke up late, summed over all standstills.
    standstill: u64,
    /// For a loop that never sleeps: processor time of past rounds without work, in nanoseconds,
    /// and the thread's processor time at the start of the current such rounds.
    idle: u64,
    idle_since: Option<u64>,
    io: Io<'a>,
    tally: Tally,
}

impl<'a> Worker<'a> {
    pub(super) fn new(mut given: Assignment<'a>) -> std::io::Result<Self> {
        let mut pool = Pool::new(given.plan.pipeline, Servers::new(given.addresses.clone()))?;
        let resting = std::mem::take(&mut given.starts).into_iter().map(Reverse).collect();
        let mut asked = Vec::new();
        for target in &given.plan.targets {
            let peer = pool.peer_of(&target.url.origin);
            let peer = peer.map_err(|trouble| std::io::Error::other(trouble.detail))?;
            let head = request_head(target, given.plan);
            let bare = bare::answer(target);
            asked.push(Rc::new(Asked { target: target.clone(), peer, head, bare }));
        }
        Ok(Self {
            asked,
            pool,
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            resting,
            paused: BinaryHeap::new(),
            answers: Vec::new(),
            standstill: 0,
            idle: 0,
            idle_since: None,
            io: Io::new(given.clock, given.reference),
            tally: Tally::default(),
            given,
        })
    }

    /// Runs to the end of the demand, until it is stopped, or until the longest wait after the end
    /// is over.
    pub(super) fn run(mut self) -> Tally {
        let clock = self.given.clock;
        let start = Start::now(clock);
        let mut events = Vec::with_capacity(BATCH);
        let mut next_tick = 0;
        loop {
            let now = clock.now();
            if self.given.is_over(now) {
                break;
            }
            let begun = self.tally.counters.requests;
            self.resume(now);
            self.issue(now);
            if now >= next_tick {
                let cpu = start.on_cpu();
                self.tally.counters.cpu_ns = cpu.saturating_sub(self.waited(cpu));
                self.expire(now);
                next_tick = now + TICK;
            }
            self.given.shared.publish(&self.tally.counters);
            if self.given.demand.is_exhausted() && self.tally.counters.in_flight() == 0 {
                break;
            }
            let now = clock.now();
            let wake = self.wake(next_tick);
            let left = if self.given.plan.busy_poll { 0 } else { wake.saturating_sub(now) };
            self.pool.wait(&mut events, Duration::from_nanos(left));
            let woken = clock.now();
            let late = woken.saturating_sub(wake.max(now));
            let idle = events.is_empty() && self.tally.counters.requests == begun;
            if self.given.plan.busy_poll {
                // Without busy polling it would have slept.
                match (idle && woken < wake, self.idle_since) {
                    (true, None) => self.idle_since = Some(start.on_cpu()),
                    (false, Some(_)) => {
                        self.idle = self.waited(start.on_cpu());
                        self.idle_since = None;
                    }
                    _ => {}
                }
            }
            if late > STANDSTILL {
                self.standstill += late;
            }
            // All answers that have come are read before anything is sent. So requests that follow
            // others do not delay the time of an answer, and the server is woken once for many
            // requests.
            for event in &events {
                self.handle(Pool::key_of(event), event.flags);
            }
        }
        self.given.finish(&mut self.tally, &start, clock.now());
        let waited = self.waited(start.on_cpu());
        let counters = &mut self.tally.counters;
        counters.cpu_ns = counters.cpu_ns.saturating_sub(waited);
        self.given.shared.publish(counters);
        self.tally
    }

    /// Processor time spent waiting, in nanoseconds, if `cpu` is the thread's whole processor time.
    fn waited(&self, cpu: u64) -> u64 {
        self.idle + self.idle_since.map_or(0, |since| cpu.saturating_sub(since))
    }

    /// The time of the next action that does not depend on connections.
    fn wake(&self, next_tick: u64) -> u64 {
        let resting = self.resting.peek().map(|Reverse(until)| *until);
        let paused = self.paused.peek().map(|Reverse((until, _))| *until);
        let all = [self.given.demand.wakes_at(), resting, paused];
        all.into_iter().flatten().fold(next_tick, u64::min)
    }
}

/// Makes a request without its Range field and empty line.
fn request_head(target: &Target, plan: &Plan) -> Vec<u8> {
    if bare::answer(target).is_some() {
        return vec![bare::REQUEST];
    }
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\n",
        target.method,
        target.url.path,
        target.url.origin.host_field()
    );
    for (name, value) in &plan.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.into_bytes()
}
