//! How long a primary must be steady before it takes the stream back. Time is an argument.

use std::time::Duration;

use crate::UnixMicros;

/// A primary whose media went on for so long does not flap. The periods of a stream are counted in a minute, too.
const CALM: Duration = Duration::from_mins(1);
/// The shortest time that a flapping primary must be steady, however short the configured one is.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest time, unless the configured one is longer.
const LONGEST: Duration = Duration::from_mins(2);

/// A primary *flaps* if its media begin again and again. Each time, the next return takes twice as long. Otherwise the
/// two publishers would soon have begun as many periods as may begin in a minute, and nobody's media would go on.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// When the primary's media began last.
    began: Option<UnixMicros>,
    /// How often they began again after a short time.
    flaps: u32,
}

impl Patience {
    /// Notes that the primary's media go on from now. `steady` is the configured time.
    pub(super) fn begins(&mut self, steady: Duration, now: UnixMicros) {
        // The primary also waited for as long as it had to.
        let short = CALM + self.needed(steady);
        let flaps = self.began.is_some_and(|began| now.since(began) < short);
        self.flaps = if flaps { self.flaps.saturating_add(1) } else { 0 };
        self.began = Some(now);
    }

    /// Notes that the primary's media still go on. After a while it does not flap any more.
    pub(super) fn goes_on(&mut self, now: UnixMicros) {
        if self.began.is_some_and(|began| now.since(began) >= CALM) {
            self.flaps = 0;
        }
    }

    /// For how long the primary must be steady.
    pub(super) fn needed(&self, steady: Duration) -> Duration {
        if self.flaps == 0 {
            return steady;
        }
        let doubled = 1_u32.checked_shl(self.flaps).unwrap_or(u32::MAX);
        steady.max(SHORTEST).saturating_mul(doubled).min(LONGEST.max(steady))
    }

    /// Whether the primary's media began again a short time after they had begun.
    pub(super) fn is_flapping(&self) -> bool {
        self.flaps > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_return_within_a_short_time_doubles_the_patience_up_to_a_limit() {
        let steady = Duration::from_secs(3);
        let mut now = UnixMicros(1_700_000_000_000_000);
        let mut patience = Patience::default();
        let mut needed = Vec::new();
        for _ in 0..9 {
            patience.begins(steady, now);
            needed.push(patience.needed(steady).as_secs());
            // It fails after a second, and comes back when it may.
            now = now.after(patience.needed(steady) + Duration::from_secs(1));
        }
        assert_eq!(needed, [3, 6, 12, 24, 48, 96, 120, 120, 120]);
        assert!(patience.is_flapping());
        patience.begins(steady, now.after(LONGEST + CALM));
        assert_eq!((patience.needed(steady), patience.is_flapping()), (steady, false));
    }

    #[test]
    fn an_extreme_configuration_has_a_bound_as_well() {
        for (steady, longest) in [(Duration::ZERO, LONGEST), (LONGEST * 3, LONGEST * 3)] {
            let mut patience = Patience::default();
            for _ in 0..70 {
                patience.begins(steady, UnixMicros(1));
            }
            assert_eq!(patience.needed(steady), longest);
        }
    }
}
