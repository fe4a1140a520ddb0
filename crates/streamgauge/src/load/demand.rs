//! When the next request is begun: by a schedule (open loop), or when an answer has come (closed
//! loop).

use super::pacer::Schedule;

/// What one worker has to ask for.
#[derive(Debug, Clone)]
pub enum Demand {
    /// By a schedule, whatever the server does.
    Open {
        /// When.
        schedule: Schedule,
        /// Nanoseconds after which no answer is waited for.
        last: u64,
    },
    /// By so many clients, each of which waits for its answer before it asks again.
    Closed {
        /// Clients that wait for nothing.
        free: u64,
        /// The number of the next request.
        next: u64,
        /// From one of this worker's requests to its next.
        lanes: u64,
        /// Requests that may still be begun.
        left: Option<u64>,
        /// Nanoseconds after which nothing is begun, and what is not answered is left.
        end: Option<u64>,
    },
}

impl Demand {
    /// The number of the next request, if it may begin at `now`, and in an open loop when it was
    /// due. Call it until it returns nothing.
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

    /// A client's request has been answered or has failed.
    pub fn give_back(&mut self) {
        if let Self::Closed { free, .. } = self {
            *free += 1;
        }
    }

    /// When the demand itself has something to do.
    pub fn wakes_at(&self) -> Option<u64> {
        match self {
            Self::Open { schedule, last } => Some(schedule.next_due().unwrap_or(*last)),
            Self::Closed { free, left, .. } if *free > 0 && *left != Some(0) => Some(0),
            Self::Closed { end, .. } => *end,
        }
    }

    /// Whether nothing more will be begun.
    pub fn is_exhausted(&self) -> bool {
        match self {
            Self::Open { schedule, .. } => schedule.left() == 0,
            Self::Closed { left, .. } => *left == Some(0),
        }
    }

    /// Whether the run is over at `now`, whatever is not answered.
    pub fn is_over(&self, now: u64) -> bool {
        match self {
            Self::Open { last, .. } => now >= *last,
            Self::Closed { end, .. } => end.is_some_and(|end| now >= end),
        }
    }

    /// Whether clients wait for their answers before they ask again.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Whether what is not answered in the end has failed, since it was waited for.
    pub fn waits_for_answers(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Requests of a schedule that were not begun.
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
