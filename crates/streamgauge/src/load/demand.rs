//! Decides when the next request starts: by a schedule (open loop), or when an answer has come
//! (closed loop).

use super::pacer::Schedule;

/// The requests of one worker.
#[derive(Debug, Clone)]
pub enum Demand {
    /// By a schedule, whatever the server does.
    Open {
        /// The schedule.
        schedule: Schedule,
        /// Time in nanoseconds after which no answer is waited for.
        last: u64,
    },
    /// By clients. Each waits for its answer before its next request.
    Closed {
        /// Clients that do not wait for an answer.
        free: u64,
        /// The number of the next request.
        next: u64,
        /// Difference between the numbers of two successive requests of this worker.
        lanes: u64,
        /// How many requests may still start.
        left: Option<u64>,
        /// Time in nanoseconds after which no request starts, and answers are no longer waited for.
        end: Option<u64>,
    },
}

impl Demand {
    /// Takes the next request if it may start at `now`. Returns its number and, in an open loop,
    /// when it was due. Call it until it returns `None`.
    pub fn take(&mut self, now: u64) -> Option<(u64, Option<u64>)> {
        match self {
            Self::Open { schedule, .. } => {
                schedule.take_due(now).map(|(number, due)| (number, Some(due)))
            }
            Self::Closed { free, next, lanes, left, end } => {
                if *free == 0 || *left == Some(0) || end.is_some_and(|end| now >= end) {
                    return None;
                }
                *free -= 1;
                *left = left.map(|left| left - 1);
                let number = *next;
                *next += *lanes;
                Some((number, None))
            }
        }
    }

    /// Frees the client of a request that has been answered or has failed.
    pub fn give_back(&mut self) {
        if let Self::Closed { free, .. } = self {
            *free += 1;
        }
    }

    /// The time of the next action of the demand itself.
    pub fn wakes_at(&self) -> Option<u64> {
        match self {
            Self::Open { schedule, last } => Some(schedule.next_due().unwrap_or(*last)),
            Self::Closed { free, left, .. } if *free > 0 && *left != Some(0) => Some(0),
            Self::Closed { end, .. } => *end,
        }
    }

    /// Whether no more requests will start.
    pub fn is_exhausted(&self) -> bool {
        match self {
            Self::Open { schedule, .. } => schedule.left() == 0,
            Self::Closed { left, .. } => *left == Some(0),
        }
    }

    /// Whether the run is over at `now`, even with requests that have no answer.
    pub fn is_over(&self, now: u64) -> bool {
        match self {
            Self::Open { last, .. } => now >= *last,
            Self::Closed { end, .. } => end.is_some_and(|end| now >= end),
        }
    }

    /// Whether clients wait for their answers before their next request.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Whether requests without an answer at the end count as failed. If so, the run has waited for
    /// them.
    pub fn waits_for_answers(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// How many requests of the schedule have not started.
    pub fn left(&self) -> u64 {
        match self {
            Self::Open { schedule, .. } => schedule.left(),
            Self::Closed { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_wait_for_their_answers() {
        let mut demand =
            Demand::Closed { free: 2, next: 1, lanes: 3, left: Some(3), end: Some(100) };
        assert_eq!((demand.take(0), demand.wakes_at()), (Some((1, None)), Some(0)));
        assert_eq!((demand.take(0), demand.wakes_at()), (Some((4, None)), Some(100)));
        assert_eq!(demand.take(0), None);
        demand.give_back();
        assert_eq!((demand.take(100), demand.is_over(100)), (None, true));
        assert_eq!(demand.take(99), Some((7, None)));
        demand.give_back();
        assert_eq!((demand.take(99), demand.is_exhausted()), (None, true));
    }

    #[test]
    fn a_schedule_waits_for_nobody() {
        let mut demand = Demand::Open { schedule: Schedule::new(1e9, 10, 0, 1), last: 50 };
        assert_eq!(demand.wakes_at(), Some(0));
        assert_eq!(std::iter::from_fn(|| demand.take(4)).count(), 5);
        assert_eq!((demand.left(), demand.is_exhausted()), (5, false));
        assert_eq!(std::iter::from_fn(|| demand.take(1000)).count(), 5);
        assert_eq!(
            (demand.wakes_at(), demand.is_over(49), demand.is_over(50)),
            (Some(50), false, true)
        );
    }
}
