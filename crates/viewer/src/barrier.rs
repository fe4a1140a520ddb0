use std::sync::atomic::{AtomicU32, Ordering::AcqRel};

use tokio::sync::watch;

use crate::Micros;

/// Holds the viewers of a run back until all of them are connected.
///
/// The viewers of one process arrive here. Their runner waits until all have arrived
/// ([`Barrier::all_arrived`]), and opens the barrier when those of all processes have. A viewer
/// that cannot connect has arrived, too: nobody waits for it.
#[derive(Debug)]
pub struct Barrier {
    missing: AtomicU32,
    all_arrived: watch::Sender<bool>,
    /// When the barrier was opened, since the start of the run.
    opened: watch::Sender<Option<Micros>>,
}

impl Barrier {
    /// Makes a closed barrier for so many viewers.
    pub fn new(viewers: u32) -> Self {
        Self {
            missing: AtomicU32::new(viewers),
            all_arrived: watch::Sender::new(viewers == 0),
            opened: watch::Sender::new(None),
        }
    }

    /// Takes a viewer that is connected or has failed. Each viewer arrives once.
    pub(crate) fn arrive(&self) {
        if self.missing.fetch_sub(1, AcqRel) == 1 {
            self.all_arrived.send_replace(true);
        }
    }

    /// Waits until all viewers have arrived.
    pub async fn all_arrived(&self) {
        // The sender is not dropped while it is borrowed.
        let _ = self.all_arrived.subscribe().wait_for(|arrived| *arrived).await;
    }

    /// Lets all viewers go on. `now` is the time of the run.
    pub fn open(&self, now: Micros) {
        self.opened.send_replace(Some(now));
    }

    /// Waits until the barrier is open; returns the time of the run when it was opened.
    pub async fn opened(&self) -> Micros {
        let mut opened = self.opened.subscribe();
        let opened = opened.wait_for(Option::is_some).await;
        opened.ok().and_then(|at| *at).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;
    use crate::{Clock, Lane, Options, Totals, Viewer};

    #[tokio::test]
    async fn viewers_go_on_and_begin_to_count_when_the_last_has_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let clock = Clock::start();
        let lane = Lane::new(clock, Options::default(), Totals::default().into());
        let barrier = Arc::new(Barrier::new(3));
        lane.hold_at(barrier.clone());
        let viewers = [0, 1, 2].map(|id| Viewer::join(&lane, (id, 0), false, None));
        let [first, second, third] = &viewers;
        let opens = async {
            barrier.all_arrived().await;
            let now = clock.now();
            barrier.open(now);
            now
        };
        // The third leaves without a connection, when the other two wait.
        let (first_socket, second_socket, opened, ()) = tokio::join!(
            first.connect("127.0.0.1", port, None),
            second.connect("127.0.0.1", port, None),
            opens,
            async { third.arrive() },
        );
        assert!(first_socket.is_ok() && second_socket.is_ok());
        for viewer in [first, second] {
            assert_eq!(viewer.stats().joined, opened);
        }
        assert!(third.stats().joined < opened);
        // Further connections do not wait, and change nothing.
        assert!(first.connect("127.0.0.1", port, None).await.is_ok());
        assert_eq!(first.stats().joined, opened);
    }

    #[tokio::test]
    async fn nobody_waits_for_viewers_that_cannot_connect_or_that_leave() {
        // Nobody listens at this port.
        let unused = 1;
        let lane = Lane::new(Clock::start(), Options::default(), Totals::default().into());
        let barrier = Arc::new(Barrier::new(2));
        lane.hold_at(barrier.clone());
        let [refused, leaves] = [0, 1].map(|id| Viewer::join(&lane, (id, 0), false, None));
        assert!(refused.connect("127.0.0.1", unused, None).await.is_err());
        // It has arrived already.
        assert!(refused.connect("127.0.0.1", unused, None).await.is_err());
        leaves.leave(None);
        refused.leave(None);
        barrier.all_arrived().await;
        Barrier::new(0).all_arrived().await;
    }
}
