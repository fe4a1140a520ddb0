//! The work of one event loop, for both clients, and how the loop ends.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::Plan;
use super::check::Reference;
use super::clock::{Clock, ThreadTime};
use super::demand::Demand;
use super::tally::{Fault, Shared, Tally};
use super::url::Origin;

/// Time between two checks of the processor's clock and of time-outs, in nanoseconds.
pub(super) const TICK: u64 = 100_000_000;
/// How long a client of a closed loop rests after nobody has answered its connection.
pub(super) const REST: Duration = Duration::from_millis(100);
/// How often a request is sent again at most.
pub(super) const MOST_SENT_AGAIN: u8 = 8;

pub(super) struct Assignment<'a> {
    pub(super) plan: &'a Plan,
    pub(super) demand: Demand,
    /// Address of each origin, found before the run.
    pub(super) addresses: &'a HashMap<Origin, SocketAddr>,
    pub(super) reference: Option<&'a Reference>,
    /// The most connections at a time.
    pub(super) connections: usize,
    /// Local address of connections; `None` if the system picks it.
    pub(super) source: Option<IpAddr>,
    /// When the clients of a closed loop start; empty if all start at once.
    pub(super) starts: Vec<u64>,
    pub(super) clock: Clock,
    pub(super) shared: &'a Shared,
    pub(super) stop: &'a AtomicBool,
}

/// The start of a loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    at: u64,
    thread: ThreadTime,
}

impl Start {
    pub(super) fn now(clock: Clock) -> Self {
        Self { thread: ThreadTime::read(), at: clock.now() }
    }

    /// How many nanoseconds the calling thread has been on a processor since the start.
    pub(super) fn on_cpu(&self) -> u64 {
        ThreadTime::cpu().saturating_sub(self.thread.on_cpu)
    }
}

impl Assignment<'_> {
    /// Whether the loop ends now, even with requests under way.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.stop.load(Relaxed) || self.demand.is_over(now)
    }

    /// Completes the tally of a loop that began at `start` and ended at `end`.
    pub(super) fn finish(&self, tally: &mut Tally, start: &Start, end: u64) {
        let thread = ThreadTime::read();
        let unanswered = tally.counters.in_flight();
        if self.demand.waits_for_answers() && !self.stop.load(Relaxed) {
            // The run has waited for them as long as it may. To leave them out would flatter the
            // server.
            for _ in 0..unanswered {
                tally.failed(Fault::Timeout, || "unanswered when the run ended".to_owned());
            }
        } else {
            tally.unfinished = unanswered;
        }
        tally.not_begun = self.demand.left();
        tally.settle();
        tally.counters.cpu_ns = thread.on_cpu.saturating_sub(start.thread.on_cpu);
        tally.ended = end as f64 / 1e9;
        tally.wall_seconds = end.saturating_sub(start.at) as f64 / 1e9;
        tally.starved_seconds = thread.waiting.saturating_sub(start.thread.waiting) as f64 / 1e9;
        self.shared.publish(&tally.counters);
    }
}
