//! Clients that read slowly or pause, as the players of people do. They read an answer at the speed of their
//! link or player, pause before the next request, and do not all start at once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::nanoseconds;

/// For how long an [`Allowance`] lets a connection read at a time, in nanoseconds.
const MOMENT: u64 = 100_000_000;
/// Bounds of the receive buffer of a slow connection, in bytes.
const BUFFER: std::ops::RangeInclusive<u64> = 8 << 10..=1 << 20;

/// How clients behave. By default they read at full speed and never rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// The most bytes per second that a connection reads, more than 0.
    pub read_rate: Option<u64>,
    /// In a closed loop, the pause from an answer to the connection's next request.
    pub think: Duration,
    /// In a closed loop, the time over which the connections start. After it, one more would start.
    pub ramp: Duration,
}

impl Manner {
    /// When the clients of `lane` of `lanes` start, of `clients` in all, in nanoseconds since the
    /// start of the run.
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

/// Decides when a connection may read, and how much, to stay below a rate.
///
/// Times are in nanoseconds since the start of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    rate: u64,
    opens: u64,
}

impl Allowance {
    pub(super) fn new(rate: u64) -> Self {
        Self { rate: rate.max(1), opens: 0 }
    }

    /// Size of the receive buffer to ask for. The server can send this much ahead of the client. So
    /// it holds little more than the client reads in a moment. With a buffer below the minimum the
    /// kernel would announce no window at all.
    pub(super) fn buffer(self) -> usize {
        (self.rate / 4).clamp(*BUFFER.start(), *BUFFER.end()) as usize
    }

    /// How many bytes may be read at `now`; 0 before [`Allowance::opens`].
    pub(super) fn most(self, now: u64) -> usize {
        let moment = self.rate.div_ceil(1_000_000_000 / MOMENT);
        if now < self.opens { 0 } else { usize::try_from(moment).unwrap_or(usize::MAX) }
    }

    /// Time from which more may be read.
    pub(super) fn opens(self) -> u64 {
        self.opens
    }

    /// Counts bytes that were read. Unused allowance lasts for a moment only.
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
            // The connection reads nothing for the first 5 s. It cannot make up for that.
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
