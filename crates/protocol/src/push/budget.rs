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
    /// Takes one at `now`, in microseconds of any clock that does not run back.
    ///
    /// # Errors
    /// There is none left.
    pub fn spend(&mut self, now: u64) -> Result<(), Violation> {
        let due = now.saturating_sub(self.filled) / REFILL;
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
}
