//! Limits the log lines that a peer can cause.

use std::time::{Duration, Instant};

/// How many lines may be logged in a span of time.
#[derive(Debug)]
pub struct LogLimit {
    most: u32,
    span: Duration,
    since: Option<Instant>,
    lines: u32,
    held_back: u64,
}

impl LogLimit {
    /// A limit of `most` lines in each `span`.
    pub const fn new(most: u32, span: Duration) -> Self {
        Self { most, span, since: None, lines: 0, held_back: 0 }
    }

    /// A limit for a condition that many connections report, so that one line is enough.
    pub const fn rare() -> Self {
        Self::new(1, Duration::from_secs(5))
    }

    /// Whether a line may be logged at `now`. If so, returns how many lines were suppressed before
    /// it.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.duration_since(since) >= self.span) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines >= self.most {
            self.held_back += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.held_back))
    }
}
