//! Log lines that a flood of peers or requests cannot make a flood of.

use std::time::{Duration, Instant};

/// Of the conditions that come with every connection, one log line in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Lets one log line through per [`LOG_INTERVAL`].
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    held: u64,
}

impl Throttle {
    /// How many were held back since the last one let through, if this one is.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_INTERVAL) {
            self.held += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_log_line_in_a_while() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        assert_eq!(throttle.admit(start), Some(0));
        assert_eq!(throttle.admit(start + LOG_INTERVAL / 2), None);
        assert_eq!(throttle.admit(start + LOG_INTERVAL / 2), None);
        assert_eq!(throttle.admit(start + LOG_INTERVAL), Some(2));
        assert_eq!(throttle.admit(start + LOG_INTERVAL * 2), Some(0));
    }
}
