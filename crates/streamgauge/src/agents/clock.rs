//! How far the clocks of two machines are apart, by round trips.
//!
//! An agent reads its clocks between the sending of a question and the arrival of its answer. So its
//! clocks belong to a moment within the round trip. The middle of the round trip is the best guess,
//! and it is wrong by half of the round trip at most.

use std::collections::VecDeque;
use std::time::Duration;

/// How many round trips are kept. The clocks of machines drift apart, so old ones do not count.
const KEPT: usize = 32;

/// The two clocks of a machine at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Time since the machine started.
    pub monotonic: Duration,
    /// Time since 1970.
    pub unix: Duration,
}

/// What one round trip tells of another machine's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// How far its monotonic clock is ahead of ours, in nanoseconds.
    monotonic: i128,
    /// How far its clock of the time of day is ahead of ours, in nanoseconds.
    unix: i128,
    /// How long the round trip took.
    pub round_trip: Duration,
}

impl Offset {
    /// A question was sent at `sent`, and its answer `there` came after `round_trip`.
    pub fn new(sent: Reading, there: Reading, round_trip: Duration) -> Self {
        let middle = nanoseconds(round_trip) / 2;
        let ahead = |here, there| nanoseconds(there) - nanoseconds(here) - middle;
        Self {
            monotonic: ahead(sent.monotonic, there.monotonic),
            unix: ahead(sent.unix, there.unix),
            round_trip,
        }
    }

    /// How far the other machine's time of day is ahead of ours, in microseconds.
    pub fn ahead(&self) -> i64 {
        i64::try_from(self.unix / 1000).unwrap_or(if self.unix < 0 { i64::MIN } else { i64::MAX })
    }

    /// The most by which this is wrong.
    pub fn uncertainty(&self) -> Duration {
        self.round_trip / 2
    }

    /// What the other machine's monotonic clock shows when ours shows `time`.
    pub fn time_there(&self, time: Duration) -> Duration {
        let there = u128::try_from(nanoseconds(time) + self.monotonic).unwrap_or_default();
        let (seconds, rest) = (there / 1_000_000_000, there % 1_000_000_000);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        Duration::new(seconds, u32::try_from(rest).unwrap_or_default())
    }
}

fn nanoseconds(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

/// The last round trips to a machine.
#[derive(Debug, Default)]
pub struct Offsets(VecDeque<Offset>);

impl Offsets {
    /// Adds the latest.
    pub fn add(&mut self, offset: Offset) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(offset);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The one with the shortest round trip, which is the most exact.
    pub fn best(&self) -> Option<Offset> {
        self.0.iter().min_by_key(|offset| offset.round_trip).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reading(monotonic: u64, unix: u64) -> Reading {
        Reading { monotonic: Duration::from_micros(monotonic), unix: Duration::from_micros(unix) }
    }

    proptest! {
        /// The answer was made at any moment within the round trip. Between the two machines is any
        /// difference of both clocks.
        #[test]
        fn half_a_round_trip_is_the_most_that_is_wrong(
            there in 0_u64..1 << 40, apart in -(1_i64 << 39)..1 << 39,
            forth in 0_u64..1 << 20, back in 0_u64..1 << 20,
        ) {
            let sent = reading(5_000_000, 1 << 50);
            let answered = reading(there + forth, ((1_i64 << 50) + apart) as u64 + forth);
            let offset = Offset::new(sent, answered, Duration::from_micros(forth + back));
            let most = offset.uncertainty().as_micros() as i64 + 1;
            prop_assert!((offset.ahead() - apart).abs() <= most);
            let then = offset.time_there(Duration::from_micros(5_000_000)).as_micros() as i64;
            prop_assert!((then - there as i64).abs() <= most || then == 0);
        }
    }

    #[test]
    fn the_shortest_of_the_last_round_trips_counts() {
        let mut offsets = Offsets::default();
        assert!(offsets.best().is_none());
        let add = |offsets: &mut Offsets, ahead: u64, micros: u64| {
            let (sent, there) = (reading(0, 1000), reading(0, 1000 + ahead));
            offsets.add(Offset::new(sent, there, Duration::from_micros(micros)));
        };
        for (ahead, micros) in [(500, 1000), (70, 100), (3000, 5000)] {
            add(&mut offsets, ahead, micros);
        }
        assert_eq!(offsets.best().unwrap().ahead(), 20);
        for _ in 0..KEPT {
            add(&mut offsets, 600, 1000);
        }
        assert_eq!((offsets.best().unwrap().ahead(), offsets.count()), (100, KEPT));
    }
}
