//! The time of a run: nanoseconds since it began, on the monotonic clock.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Counts from the start of the run. All its threads use the same clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the run began.
    pub fn now(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }

    /// The moment `time` nanoseconds after the run began.
    pub fn at(self, time: u64) -> Instant {
        self.0 + Duration::from_nanos(time)
    }
}

/// Converts a duration to nanoseconds, up to 584 years.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How long the calling thread was on a processor, and how long it was ready without one.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadTime {
    /// Nanoseconds on a processor.
    pub on_cpu: u64,
    /// Nanoseconds of waiting for a processor.
    pub waiting: u64,
}

impl ThreadTime {
    /// Reads both times. The second is 0 if the kernel does not report it (`CONFIG_SCHED_INFO`).
    pub fn read() -> Self {
        // "TIME-ON-CPU TIME-WAITING TIMESLICES", in nanoseconds: Documentation/scheduler.
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waiting = statistics.split_ascii_whitespace().nth(1).and_then(|n| n.parse().ok());
        Self { on_cpu: Self::cpu(), waiting: waiting.unwrap_or_default() }
    }

    /// Nanoseconds that the calling thread was on a processor.
    pub fn cpu() -> u64 {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
        seconds.saturating_mul(1_000_000_000).saturating_add(rest)
    }
}
