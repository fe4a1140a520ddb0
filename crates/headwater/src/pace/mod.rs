//! Decides when the bytes of a file go out: by the pace of one viewer, and by which viewers go
//! first when the link is short.
//!
//! ```text
//! Schedule  when media is due, by the viewer's pace           ┐
//! Hand      how much media the viewer has and has not played  ├─▶ send, or wait until when
//! Balance   whether viewers with less are waiting for room    │
//! Triage    which viewers to serve if not all can be          ┘
//! ```
//!
//! All of this is arithmetic: time is an argument, and nothing here waits or reads a clock. A
//! position is media time since the viewer began to play or last sought.

mod balance;
mod hand;
#[cfg(test)]
mod simulation;
mod triage;

use std::time::Duration;

pub use balance::{Balance, Share};
pub use hand::Hand;
use live::UnixMicros;
use serde::{Deserialize, Serialize};

/// How fast a file is sent as one long response or push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// As fast as the link takes it.
    Fast,
    /// At playback speed.
    Realtime,
    /// The first seconds as fast as the link takes them, then somewhat faster than playback speed.
    #[default]
    Burst,
}

impl Pace {
    /// The pace with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "fast" => Some(Self::Fast),
            "realtime" => Some(Self::Realtime),
            "burst" => Some(Self::Burst),
            _ => None,
        }
    }

    /// The pace in the query of a stream name: `pace=fast`. An unknown value is ignored; the first
    /// known one counts.
    pub fn from_query(query: &str) -> Option<Self> {
        query.split('&').find_map(|pair| Self::named(pair.strip_prefix("pace=")?))
    }
}

/// A pace with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// The pace.
    pub pace: Pace,
    /// How much media [`Pace::Burst`] sends without waiting.
    pub burst: Duration,
    /// Seconds of media that [`Pace::Burst`] sends in a second after that; more than 0.
    pub rate: f64,
}

impl Plan {
    /// Seconds of media sent in a second in the long run; `None` if the link decides.
    pub fn rate(&self) -> Option<f64> {
        match self.pace {
            Pace::Fast => None,
            Pace::Realtime => Some(1.0),
            Pace::Burst => Some(self.rate),
        }
    }

    /// How much media is sent at once; `None` for all of it.
    fn head_start(&self) -> Option<Duration> {
        match self.pace {
            Pace::Fast => None,
            Pace::Realtime => Some(Duration::ZERO),
            Pace::Burst => Some(self.burst),
        }
    }

    /// How long after the start the media at `position` is due.
    pub fn delay(&self, position: Duration) -> Duration {
        let (Some(rate), Some(head_start)) = (self.rate(), self.head_start()) else {
            return Duration::ZERO;
        };
        let late = position.saturating_sub(head_start).as_secs_f64() / rate;
        Duration::try_from_secs_f64(late).unwrap_or(Duration::MAX)
    }

    /// How much media is due this long after the start.
    pub fn due(&self, elapsed: Duration) -> Duration {
        let (Some(rate), Some(head_start)) = (self.rate(), self.head_start()) else {
            return Duration::MAX;
        };
        let more = Duration::try_from_secs_f64(elapsed.as_secs_f64() * rate);
        head_start.saturating_add(more.unwrap_or(Duration::MAX))
    }
}

/// One viewer's plan, running since a moment in time.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    plan: Plan,
    clock: Stopwatch,
}

impl Schedule {
    /// Makes a schedule that starts now. Make one at the beginning, and again after each seek.
    pub fn new(plan: Plan, now: UnixMicros) -> Self {
        Self { plan, clock: Stopwatch::started(now) }
    }

    /// The plan of this schedule.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// When the media at `position` may go out, which may be in the past; `None` while paused.
    pub fn when(&self, position: Duration) -> Option<UnixMicros> {
        self.clock.reaches(self.plan.delay(position))
    }

    /// How much media is due by now; [`Duration::MAX`] for all of it.
    pub fn due(&self, now: UnixMicros) -> Duration {
        self.plan.due(self.clock.elapsed(now))
    }

    /// Stops the schedule.
    pub fn pause(&mut self, now: UnixMicros) {
        self.clock.stop(now);
    }

    /// Resumes the schedule where it stopped.
    pub fn resume(&mut self, now: UnixMicros) {
        self.clock.go_on(now);
    }
}

/// A clock that can be stopped.
#[derive(Debug, Clone, Copy)]
struct Stopwatch {
    /// Time that had passed when it was last stopped.
    before: Duration,
    /// Since when it runs; `None` while stopped.
    running: Option<UnixMicros>,
}

impl Stopwatch {
    fn started(now: UnixMicros) -> Self {
        Self { before: Duration::ZERO, running: Some(now) }
    }

    fn elapsed(&self, now: UnixMicros) -> Duration {
        let running = self.running.map_or(Duration::ZERO, |since| now.since(since));
        self.before.saturating_add(running)
    }

    /// When `elapsed` will have passed; `None` while stopped. Never before the last start.
    fn reaches(&self, elapsed: Duration) -> Option<UnixMicros> {
        Some(self.running?.after(elapsed.saturating_sub(self.before)))
    }

    fn stop(&mut self, now: UnixMicros) {
        *self = Self { before: self.elapsed(now), running: None };
    }

    fn go_on(&mut self, now: UnixMicros) {
        self.running.get_or_insert(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: UnixMicros = UnixMicros(1_700_000_000_000_000);

    fn plan(pace: Pace) -> Plan {
        Plan { pace, burst: Duration::from_secs(10), rate: 1.25 }
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_query_names_a_pace_or_none() {
        for (query, pace) in [
            ("", None),
            ("pace=fast", Some(Pace::Fast)),
            ("a=b&pace=realtime&pace=fast", Some(Pace::Realtime)),
            ("pace=quick&pace=burst", Some(Pace::Burst)),
            ("pace=", None),
            ("space=fast", None),
            ("pace=fast%20", None),
        ] {
            assert_eq!(Pace::from_query(query), pace, "{query}");
        }
    }

    #[test]
    fn media_is_due_as_the_plan_says() {
        for (pace, position, delay) in [
            (Pace::Fast, 3600.0, 0.0),
            (Pace::Realtime, 0.0, 0.0),
            (Pace::Realtime, 7.5, 7.5),
            (Pace::Burst, 0.0, 0.0),
            (Pace::Burst, 10.0, 0.0),
            (Pace::Burst, 12.5, 2.0),
            (Pace::Burst, 60.0, 40.0),
        ] {
            let schedule = Schedule::new(plan(pace), START);
            let due = schedule.when(seconds(position));
            assert_eq!(due, Some(START.after(seconds(delay))), "{pace:?} at {position} s");
        }
        let schedule = Schedule::new(plan(Pace::Burst), START);
        assert_eq!(schedule.due(START), seconds(10.0));
        assert_eq!(schedule.due(START.after(seconds(40.0))), seconds(60.0));
        assert_eq!(Schedule::new(plan(Pace::Fast), START).due(START), Duration::MAX);
    }

    #[test]
    fn a_pause_holds_it_and_a_seek_begins_it_anew() {
        let mut schedule = Schedule::new(plan(Pace::Burst), START);
        let at = |time| START.after(seconds(time));
        schedule.pause(at(4.0));
        schedule.pause(at(9.0));
        assert_eq!(schedule.when(seconds(0.0)), None);
        assert_eq!(schedule.due(at(100.0)), seconds(15.0));
        schedule.resume(at(104.0));
        schedule.resume(at(105.0));
        assert_eq!(schedule.due(at(108.0)), seconds(20.0));
        assert_eq!(schedule.when(seconds(20.0)), Some(at(108.0)));
        // Media that was due before the pause is due when the pause is over.
        assert_eq!(schedule.when(seconds(1.0)), Some(at(104.0)));
        let schedule = Schedule::new(schedule.plan(), at(108.0));
        assert_eq!(schedule.due(at(108.0)), seconds(10.0));
    }

    proptest! {
        /// `when` and `due` agree for any plan, to a microsecond.
        #[test]
        fn when_and_due_agree(burst in 0u32..100_000, rate in 0.1f64..16.0, position in 0u32..10_000_000) {
            let plan = Plan { pace: Pace::Burst, burst: Duration::from_millis(burst.into()), rate };
            let schedule = Schedule::new(plan, START);
            let position = Duration::from_millis(position.into());
            let when = schedule.when(position).unwrap();
            let error = Duration::from_secs_f64(2e-6 * rate.max(1.0));
            prop_assert!(schedule.due(when) + error >= position);
            prop_assert!(when == START || schedule.due(when) <= position + error);
        }
    }
}
