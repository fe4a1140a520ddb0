//! Deadlines of connections.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// One timer for all of a connection's deadlines. Most deadlines are never reached and move
/// forward with each request, so the timer is left where it is and set again when it fires early.
#[derive(Debug)]
pub struct Timer(Pin<Box<Sleep>>);

impl Timer {
    /// One that no deadline is expected to be before.
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

    #[tokio::test]
    async fn timer_keeps_the_latest_deadline() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut timer = Timer::new(Duration::from_millis(5));
        poll_fn(|cx| timer.poll(at(60), cx)).await;
        assert!(Instant::now() >= at(60));
        // Of the two, the earlier counts.
        let mut timer = Timer::new(Duration::from_secs(3600));
        poll_fn(|cx| timer.poll(at(70), cx)).await;
        assert!(Instant::now() >= at(70));
    }
}
