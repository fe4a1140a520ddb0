//! Limits how many messages a client may send.

use super::{CloseCode, Violation};

/// How many messages and control frames a client may send at once.
const BURST: u32 = 64;

/// Microseconds after which it may send one more.
const REFILL: u64 = 100_000;

/// A token bucket for the frames of a client. Each command, ping or pong takes one token.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    left: u32,
    /// Time until which the bucket has been refilled, in microseconds.
    filled: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: BURST, filled: 0 }
    }
}

impl Budget {
    /// Takes one token at `now`, in microseconds of any clock. If the clock is set back, only the
    /// refill since the last call is lost: a client that sends little is never refused because of
    /// it.
    ///
    /// # Errors
    /// The bucket is empty.
    pub fn spend(&mut self, now: u64) -> Result<(), Violation> {
        self.filled = self.filled.min(now);
        let due = (now - self.filled) / REFILL;
        self.left = self.left.saturating_add(u32::try_from(due).unwrap_or(BURST)).min(BURST);
        self.filled += due * REFILL;
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Violation::new(CloseCode::PolicyViolation, "too many messages")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_say_much_once_and_little_for_ever() {
        let (mut budget, mut now) = (Budget::default(), 1_700_000_000_000_000);
        for _ in 0..BURST {
            budget.spend(now).unwrap();
        }
        assert_eq!(budget.spend(now).unwrap_err().code, CloseCode::PolicyViolation);
        for _ in 0..1000 {
            now += REFILL;
            budget.spend(now).unwrap();
        }
        assert!(budget.spend(now + REFILL / 2).is_err());
        now += 1000 * u64::from(BURST) * REFILL;
        for _ in 0..BURST {
            budget.spend(now).unwrap();
        }
        assert!(budget.spend(now).is_err());
    }

    /// A viewer that only answers pings stays connected although the clock is wrong by hours.
    #[test]
    fn a_clock_that_is_set_back_costs_nobody_the_connection() {
        let (mut budget, mut now) = (Budget::default(), 1_700_000_000_000_000);
        budget.spend(now).unwrap();
        now -= 3600 * 1_000_000;
        for _ in 0..3 * BURST {
            now += 9 * 1_000_000;
            budget.spend(now).unwrap();
        }
        // Setting the clock back and forth does not allow more messages.
        for _ in 0..BURST {
            let _ = budget.spend(now);
        }
        assert!(budget.spend(now - 1_000_000_000).is_err());
    }
}
