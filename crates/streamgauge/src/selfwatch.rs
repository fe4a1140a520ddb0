//! Judges whether this program, or its machine, was the limit of the measurement.
//!
//! A task on each event loop wakes every [`TICK`], waits for its turn among the loop's other tasks,
//! and records how late it is. A delay of the loop delays its viewers, too, and makes a server seem
//! slow. Once a second the task reads how much of its core the loop has used.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

/// Time between two checks of the clock.
pub const TICK: Duration = Duration::from_millis(10);

/// A loop that is busy for a larger share of the time could not have done more.
pub const BUSY: f64 = 0.9;
/// With fewer seconds of processor time, a share means nothing.
const MOMENT: f64 = 0.5;
/// A loop that wakes later than this in more than one of a hundred cases distorts the results.
pub const LAG: Duration = Duration::from_millis(50);

/// Observes one event loop.
#[derive(Debug)]
pub struct LoopWatch {
    /// How late the task woke, in microseconds.
    lag: Histogram<u64>,
    started: Instant,
    cpu_at_start: Duration,
    second: (Instant, Duration),
    busiest: f64,
}

/// Processor time of the calling thread.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

impl LoopWatch {
    /// Starts to observe the calling thread.
    pub fn start() -> Self {
        let (now, cpu) = (Instant::now(), thread_cpu());
        Self {
            // Up to a minute, exact to a hundredth. Memory does not grow with the run.
            lag: Histogram::new_with_max(60_000_000, 2).expect("a range and precision that exist"),
            started: now,
            cpu_at_start: cpu,
            second: (now, cpu),
            busiest: 0.0,
        }
    }

    /// Observes forever. Drop the future when the loop is done.
    pub async fn run(&mut self) {
        let mut due = Instant::now() + TICK;
        loop {
            sleep_until(due).await;
            due = self.woke(due, Instant::now());
        }
    }

    /// Records that the tick due at `due` came at `now`; returns when the next one is due.
    fn woke(&mut self, due: Instant, now: Instant) -> Instant {
        // Missed ticks count with their own delays, as arrivals for viewers would have had them.
        let mut due = due;
        while due <= now {
            self.record(now - due, now);
            due += TICK;
        }
        due
    }

    fn record(&mut self, late: Duration, now: Instant) {
        self.lag.saturating_record(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
        let elapsed = now - self.second.0;
        if elapsed >= Duration::from_secs(1) {
            let cpu = thread_cpu();
            let share = (cpu - self.second.1).as_secs_f64() / elapsed.as_secs_f64();
            self.busiest = self.busiest.max(share);
            self.second = (now, cpu);
        }
    }

    /// Returns the results.
    pub fn finish(&self) -> LoopReport {
        let elapsed = self.started.elapsed().as_secs_f64();
        let cpu = (thread_cpu() - self.cpu_at_start).as_secs_f64();
        let lag = |quantile| micros_to_seconds(self.lag.value_at_quantile(quantile));
        LoopReport {
            cpu_seconds: cpu,
            cpu_share: if elapsed > 0.0 { cpu / elapsed } else { 0.0 },
            cpu_share_busiest_second: self.busiest,
            lag_p50: lag(0.5),
            lag_p99: lag(0.99),
            lag_max: micros_to_seconds(self.lag.max()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 microseconds")]
fn micros_to_seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// The results of one event loop. Times are in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct LoopReport {
    /// Processor time.
    pub cpu_seconds: f64,
    /// Processor time divided by wall-clock time.
    pub cpu_share: f64,
    /// The same share in the busiest second.
    pub cpu_share_busiest_second: f64,
    /// Delay of wake-ups: median.
    pub lag_p50: f64,
    /// Delay of wake-ups: 99th percentile.
    pub lag_p99: f64,
    /// Delay of wake-ups: largest.
    pub lag_max: f64,
}

/// Whether the figures of a run can be trusted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Generator {
    /// Its event loops.
    pub loops: Vec<LoopReport>,
    /// Whether it was the limit.
    pub saturated: bool,
    /// Why it was the limit.
    pub reasons: Vec<String>,
}

impl Generator {
    /// Judges a run by its loops and by the number of troubles of this machine.
    pub fn judge(loops: Vec<LoopReport>, local: u64) -> Self {
        let mut reasons = Vec::new();
        for (number, each) in loops.iter().enumerate() {
            let LoopReport { cpu_share, cpu_seconds, lag_p99, .. } = each;
            // In a very short run, the share means nothing.
            if *cpu_share > BUSY && *cpu_seconds > MOMENT {
                reasons
                    .push(format!("event loop {number} used {:.0} % of a core", cpu_share * 100.0));
            }
            if *lag_p99 > LAG.as_secs_f64() {
                reasons.push(format!(
                    "event loop {number} woke more than {:.0} ms late in 1 of 100 cases",
                    lag_p99 * 1000.0
                ));
            }
        }
        if local > 0 {
            reasons
                .push(format!("{local} times this machine had no descriptor, port or memory left"));
        }
        Self { loops, saturated: !reasons.is_empty(), reasons }
    }

    /// Names the agent in all reasons.
    #[must_use]
    pub fn of_agent(mut self, name: &str) -> Self {
        for reason in &mut self.reasons {
            *reason = format!("agent {name}: {reason}");
        }
        self
    }

    /// Adds the event loops and reasons of another machine.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.loops.extend(other.loops);
        self.doubted(other.reasons)
    }

    /// Adds reasons not to trust the run.
    #[must_use]
    pub fn doubted(mut self, reasons: Vec<String>) -> Self {
        self.reasons.extend(reasons);
        self.saturated = !self.reasons.is_empty();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_held_up_shows_in_the_percentiles() {
        let mut watch = LoopWatch::start();
        let start = Instant::now();
        let mut due = start + TICK;
        for _ in 0..100 {
            due = watch.woke(due, due + Duration::from_micros(500));
        }
        // As if the thread had been stopped: 10 of 110 ticks are late, by up to 100 ms.
        due = watch.woke(due, due + Duration::from_millis(95));
        assert_eq!(due, start + TICK * 111);
        let report = watch.finish();
        assert!((0.085..0.115).contains(&report.lag_max), "{report:?}");
        assert!((0.07..0.115).contains(&report.lag_p99), "{report:?}");
        assert!(report.lag_p50 < 0.003, "{report:?}");
        let judged = Generator::judge(vec![report], 0);
        assert!(judged.saturated && judged.reasons.len() == 1, "{judged:?}");
    }

    #[test]
    fn a_calm_loop_is_not_blamed_and_a_busy_one_is() {
        let calm = LoopReport {
            cpu_seconds: 1.0,
            cpu_share: 0.5,
            cpu_share_busiest_second: 0.99,
            lag_p50: 0.0001,
            lag_p99: 0.001,
            lag_max: 0.2,
        };
        assert!(!Generator::judge(vec![calm; 2], 0).saturated);
        assert!(Generator::judge(vec![LoopReport { cpu_share: 0.95, ..calm }], 0).saturated);
        assert!(Generator::judge(vec![calm], 3).saturated);
    }
}
