//! The clock of the origin.

use std::time::{SystemTime, UNIX_EPOCH};

use live::UnixMicros;
use tokio::time::Instant;

/// A clock that never steps: the wall clock at its start, plus the time since then. Time-outs use it; with a step, a
/// live publisher would look silent.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    pub(crate) started: (UnixMicros, Instant),
}

impl Clock {
    /// Starts a clock.
    pub fn start() -> Self {
        // Linux may run another program between two readings of clocks. So the quickest of some pairs counts.
        let readings = (0..8).map(|_| {
            let (start, wall) = (Instant::now(), wall_clock());
            (start.elapsed(), start, wall)
        });
        let (_, start, wall) = readings.min_by_key(|(took, ..)| *took).expect("eight pairs");
        Self { started: (wall, start) }
    }

    /// The time now.
    pub fn now(&self) -> UnixMicros {
        self.started.0.after(self.started.1.elapsed())
    }
}

/// The wall clock, which may be set at any time.
pub fn wall_clock() -> UnixMicros {
    UnixMicros::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
