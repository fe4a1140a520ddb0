//! Whether this program, or the machine it runs on, was the limit of what it measured.
//!
//! A task on each event loop wakes every [`TICK`], waits for its turn among the loop's other tasks,
//! and records how late it is: whatever holds the loop up holds up its viewers as well, and makes a
//! server look slow that is not. Once a second
//! it reads how much of its core the loop has used.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

/// Between two looks at the clock.
pub const TICK: Duration = Duration::from_millis(10);

/// A loop that is busy for more than this share of the time could not have done more.
pub const BUSY: f64 = 0.9;
/// Seconds of processor time from which on a share says something.
const MOMENT: f64 = 0.5;
/// Waking later than this, in more than one of a hundred cases, shows in what is measured.
pub const LAG: Duration = Duration::from_millis(50);

/// What one event loop was like.
#[derive(Debug)]
pub struct LoopWatch {
    /// How late it woke, in microseconds.
    lag: Histogram<u64>,
    started: Instant,
    cpu_at_start: Duration,
    second: (Instant, Duration),
    busiest: f64,
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

impl LoopWatch {
    /// Begins to watch the calling thread.
    pub fn start() -> Self {
        let (now, cpu) = (Instant::now(), thread_cpu());
        Self {
            // Up to a minute, to a hundredth: constant memory, however long the run.
            lag: Histogram::new_with_max(60_000_000, 2).expect("a range and precision that exist"),
            started: now,
            cpu_at_start: cpu,
            second: (now, cpu),
            busiest: 0.0,
        }
    }

    /// Watches for ever; to be dropped when the loop is done.
    pub async fn run(&mut self) {
        let mut due = Instant::now() + TICK;
        loop {
            sleep_until(due).await;
            due = self.woke(due, Instant::now());
        }
    }

    /// Takes in that the tick due at `due` came at `now`, and says when the next is due.
    fn woke(&mut self, due: Instant, now: Instant) -> Instant {
        // What was missed meanwhile counts as late as it was: as viewers' arrivals would have been.
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

    /// What there is to say of it.
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

/// What one event loop was like. Times are in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct LoopReport {
    /// Processor time.
    pub cpu_seconds: f64,
    /// Processor time by wall-clock time.
    pub cpu_share: f64,
    /// The same, in the second in which it was highest.
    pub cpu_share_busiest_second: f64,
    /// How late it woke: median.
    pub lag_p50: f64,
    /// How late it woke: 99th percentile.
    pub lag_p99: f64,
    /// How late it woke: the most.
    pub lag_max: f64,
}

/// Whether the figures of a run can be trusted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Generator {
    /// Its event loops.
    pub loops: Vec<LoopReport>,
    /// Whether it was the limit.
    pub saturated: bool,
    /// Why it is said to have been.
    pub reasons: Vec<String>,
}

impl Generator {
    /// Judges a run by its loops, and how many troubles were this machine's own.
    pub fn judge(loops: Vec<LoopReport>, local: u64) -> Self {
        let mut reasons = Vec::new();
        for (number, each) in loops.iter().enumerate() {
            let LoopReport { cpu_share, cpu_seconds, lag_p99, .. } = each;
            // A run of a moment has no share to speak of.
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

    /// The same, with further reasons not to trust the run.
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
        // As if the thread had been stopped: of 110 ticks 10 are late, by up to 100 ms.
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
