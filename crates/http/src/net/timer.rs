//! Deadlines of connections.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// One timer for all deadlines of a connection. Most deadlines are never reached, because each
/// request moves them. So the timer is not moved with them; if it fires too early, it is set again.
#[derive(Debug)]
pub struct Timer(Pin<Box<Sleep>>);

impl Timer {
    /// A timer that should fire first after `first`. No deadline is expected before that.
    pub fn new(first: Duration) -> Self {
        Self(Box::pin(tokio::time::sleep(first)))
    }

    /// Ready at the deadline.
    pub fn poll(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.deadline() > deadline {
            self.0.as_mut().reset(deadline);
        }
        loop {
            ready!(self.0.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.0.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Timers have steps of a millisecond.
    const STEP: Duration = Duration::from_millis(2);

    #[tokio::test(start_paused = true)]
    async fn timer_keeps_the_latest_deadline() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut timer = Timer::new(Duration::from_millis(5));
        poll_fn(|cx| timer.poll(at(60), cx)).await;
        assert!((at(60)..=at(60) + STEP).contains(&Instant::now()));
        // The earlier of the two counts.
        let mut timer = Timer::new(Duration::from_secs(3600));
        poll_fn(|cx| timer.poll(at(70), cx)).await;
        assert!((at(70)..=at(70) + STEP).contains(&Instant::now()));
    }
}
