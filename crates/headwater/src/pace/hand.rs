//! How much media a viewer has in hand.

use std::time::Duration;

use live::UnixMicros;

use super::Stopwatch;

/// How much has been delivered to a viewer, and how much of that it has played. The assumption is
/// that it plays from the moment it asked, and stops only for lack of media.
///
/// Bytes that the kernel has accepted count as delivered. With a small `TCP_NOTSENT_LOWAT`, nearly
/// all of them were sent.
#[derive(Debug, Clone, Copy)]
pub struct Hand {
    delivered: Duration,
    clock: Stopwatch,
    /// How long it has waited for media so far.
    stalled: Duration,
}

impl Hand {
    /// A viewer that has nothing yet, and plays.
    pub fn new(now: UnixMicros) -> Self {
        Self { delivered: Duration::ZERO, clock: Stopwatch::started(now), stalled: Duration::ZERO }
    }

    /// Notes that all media up to `position` is with the viewer.
    pub fn deliver(&mut self, position: Duration, now: UnixMicros) {
        // The viewer has waited for what was missing until now.
        self.stalled += self.played(now).saturating_sub(self.delivered);
        self.delivered = self.delivered.max(position);
    }

    /// Position up to which all media is with the viewer.
    pub(super) fn delivered(&self) -> Duration {
        self.delivered
    }

    /// Media in hand: delivered and not yet played.
    pub fn held(&self, now: UnixMicros) -> Duration {
        self.delivered.saturating_sub(self.played(now))
    }

    /// Microseconds of media that it would have in hand if it never stalled. Negative for a viewer
    /// that was kept waiting and is still behind.
    pub fn ahead(&self, now: UnixMicros) -> i64 {
        micros(self.delivered) - micros(self.clock.elapsed(now))
    }

    /// Notes that it plays nothing from now on.
    pub fn pause(&mut self, now: UnixMicros) {
        self.deliver(self.delivered, now);
        self.clock.stop(now);
    }

    /// Notes that it plays again.
    pub fn resume(&mut self, now: UnixMicros) {
        self.clock.go_on(now);
    }

    /// How far it would have played, with no lack of media since the last delivery.
    fn played(&self, now: UnixMicros) -> Duration {
        self.clock.elapsed(now).saturating_sub(self.stalled)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spent_waiting_is_not_played() {
        let at = |millis| UnixMicros(1_000_000).after(Duration::from_millis(millis));
        let millis = Duration::from_millis;
        let mut hand = Hand::new(at(0));
        hand.deliver(millis(2000), at(0));
        assert_eq!((hand.held(at(0)), hand.held(at(1500))), (millis(2000), millis(500)));
        // It runs dry at 2 s and waits until 5 s.
        assert_eq!((hand.held(at(5000)), hand.ahead(at(5000))), (Duration::ZERO, -3_000_000));
        hand.deliver(millis(3000), at(5000));
        assert_eq!((hand.held(at(5000)), hand.ahead(at(5000))), (millis(1000), -2_000_000));
        assert_eq!(hand.held(at(5600)), millis(400));
        hand.pause(at(5600));
        assert_eq!(hand.held(at(60_000)), millis(400));
        hand.deliver(millis(4000), at(60_000));
        hand.resume(at(61_000));
        assert_eq!((hand.held(at(61_500)), hand.ahead(at(61_500))), (millis(900), -2_100_000));
    }
}
