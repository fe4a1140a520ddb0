use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::{Error, Kind};

/// Ends waits that take too long. It has one timer, which is set anew only when it expires: a timer
/// for each read of thousands of sockets would cost more than the reads.
#[derive(Debug)]
pub(crate) struct Watchdog {
    limit: Duration,
    sleep: Pin<Box<Sleep>>,
}

impl Watchdog {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, sleep: Box::pin(sleep_until(Instant::now() + limit)) }
    }

    /// Waits for `wanted`, at most as long as the limit plus `more`.
    ///
    /// # Errors
    /// It took longer: [`Kind::Timeout`], which names `doing`.
    pub(crate) async fn guard<F: Future>(
        &mut self,
        doing: &'static str,
        more: Duration,
        wanted: F,
    ) -> Result<F::Output, Error> {
        let mut wanted = pin!(wanted);
        let mut deadline = None;
        poll_fn(|context| {
            if let Poll::Ready(output) = wanted.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.limit + more);
            if self.poll_over(deadline, context).is_pending() {
                return Poll::Pending;
            }
            let limit = self.limit + more;
            let what = format!("{doing}: nothing for {limit:?}");
            Poll::Ready(Err(Error::new(Kind::Timeout, what)))
        })
        .await
    }

    /// Waits for `wanted`, at most until `deadline`. `None`: the deadline came first.
    pub(crate) async fn until<F: Future>(
        &mut self,
        deadline: Instant,
        wanted: F,
    ) -> Option<F::Output> {
        let mut wanted = pin!(wanted);
        poll_fn(|context| match wanted.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll_over(deadline, context).map(|()| None),
        })
        .await
    }

    /// Whether the deadline has come.
    fn poll_over(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.sleep.deadline() > deadline {
            self.sleep.as_mut().reset(deadline);
        }
        while self.sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}
