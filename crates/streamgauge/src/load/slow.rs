//! Clients that are slow or rest, as people's are: they take an answer no faster than their link
//! or their player does, pause before they ask again, and do not all begin at once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::nanoseconds;

/// How long an [`Allowance`] is a connection's at a time, in nanoseconds.
const MOMENT: u64 = 100_000_000;
/// Bounds of the receive buffer of a connection that reads slowly, in bytes.
const BUFFER: std::ops::RangeInclusive<u64> = 8 << 10..=1 << 20;

/// How clients behave besides asking; by default they take all at once and never rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// The most bytes a second that a connection takes, more than 0.
    pub read_rate: Option<u64>,
    /// In a closed loop, from an answer to the connection's next request.
    pub think: Duration,
    /// In a closed loop, from the first connection's beginning to when the last would be followed
    /// by another.
    pub ramp: Duration,
}

impl Manner {
    /// When the clients of `lane` of `lanes` begin, of `clients` in all, in nanoseconds since the
    /// run began.
    pub(super) fn starts(
        self,
        clients: u64,
        lane: u64,
        lanes: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let ramp = u128::from(nanoseconds(self.ramp));
        let start = move |client: u64| (ramp * u128::from(client) / u128::from(clients)) as u64;
        (lane..clients).step_by(usize::try_from(lanes).unwrap_or(usize::MAX)).map(start)
    }
}

/// When a connection may read, and how much, so that it takes no more than so many bytes a second.
///
/// Times are nanoseconds since the run began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    rate: u64,
    opens: u64,
}

impl Allowance {
    pub(super) fn new(rate: u64) -> Self {
        Self { rate: rate.max(1), opens: 0 }
    }

    /// The receive buffer to ask for. It is what the server can send ahead of such a client, so it
    /// holds little more than the client takes in a moment; less than the least would keep the
    /// kernel from announcing a window at all.
    pub(super) fn buffer(self) -> usize {
        (self.rate / 4).clamp(*BUFFER.start(), *BUFFER.end()) as usize
    }

    /// How many bytes may be read at `now`; 0 before [`Allowance::opens`].
    pub(super) fn most(self, now: u64) -> usize {
        let moment = self.rate.div_ceil(1_000_000_000 / MOMENT);
        if now < self.opens { 0 } else { usize::try_from(moment).unwrap_or(usize::MAX) }
    }

    /// From when on more may be read.
    pub(super) fn opens(self) -> u64 {
        self.opens
    }

    /// Counts what was read. What was not used is kept for a moment only.
    pub(super) fn take(&mut self, bytes: usize, now: u64) {
        let cost = bytes as u128 * 1_000_000_000 / u128::from(self.rate);
        let from = self.opens.max(now.saturating_sub(MOMENT));
        self.opens = from.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_begin_spread_over_the_ramp_whatever_the_lanes() {
        let manner = Manner { ramp: Duration::from_nanos(1000), ..Manner::default() };
        let mut all: Vec<_> = (0..3).flat_map(|lane| manner.starts(10, lane, 3)).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
        assert!(Manner::default().starts(4, 1, 2).eq([0, 0]));
    }

    #[test]
    fn no_more_is_read_than_the_rate_and_a_moment_allow() {
        for (rate, looks) in [(1, MOMENT), (1000, 7_000_000), (1_000_000, 1_000_000)] {
            let mut allowance = Allowance::new(rate);
            // The last stands still for a second, which is not made up for.
            let (mut now, mut read) = (50 * MOMENT, 0);
            let began = now;
            while now < began + 50 * MOMENT {
                let most = allowance.most(now);
                read += most as u64;
                allowance.take(most, now);
                now += if read == 0 { 10 * MOMENT } else { looks };
            }
            let right = rate * 5;
            let moments = 2 * rate.div_ceil(10);
            assert!(read <= right + moments, "{rate}: {read}");
            assert!(read * 10 >= right * 9, "{rate}: {read}");
        }
    }
}
