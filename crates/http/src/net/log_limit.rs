//! A limit to lines of the log that a peer can cause.

use std::time::{Duration, Instant};

/// How many lines there may be in so much time.
#[derive(Debug)]
pub struct LogLimit {
    most: u32,
    span: Duration,
    since: Option<Instant>,
    lines: u32,
    held_back: u64,
}

impl LogLimit {
    /// So many lines in so long.
    pub const fn new(most: u32, span: Duration) -> Self {
        Self { most, span, since: None, lines: 0, held_back: 0 }
    }

    /// For a condition that comes with every connection, and that one line tells all of.
    pub const fn rare() -> Self {
        Self::new(1, Duration::from_secs(5))
    }

    /// Whether a line may be logged at `now`, and how many were held back before it.
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
