//! How much a client may say.

use super::{CloseCode, Violation};

/// Messages and control frames that a client may send at once.
const BURST: u32 = 64;

/// Microseconds after which it may send one more.
const REFILL: u64 = 100_000;

/// A bucket of what a client may still say: commands, pings and pongs each take one.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    left: u32,
    /// Up to when it was filled, in microseconds.
    filled: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: BURST, filled: 0 }
    }
}

impl Budget {
    /// Takes one at `now`, in microseconds of any clock. One that is set back costs what was due, and
    /// no more: who says little is never refused for it.
    ///
    /// # Errors
    /// There is none left.
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

    /// A viewer that only answers pings lives longer than a clock that was wrong by hours.
    #[test]
    fn a_clock_that_is_set_back_costs_nobody_the_connection() {
        let (mut budget, mut now) = (Budget::default(), 1_700_000_000_000_000);
        budget.spend(now).unwrap();
        now -= 3600 * 1_000_000;
        for _ in 0..3 * BURST {
            now += 9 * 1_000_000;
            budget.spend(now).unwrap();
        }
        // To set it to and fro is no way to say more.
        for _ in 0..BURST {
            let _ = budget.spend(now);
        }
        assert!(budget.spend(now - 1_000_000_000).is_err());
    }
}
