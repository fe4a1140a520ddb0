//! Detects peers that take no bytes.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::kernel;
use super::timer::Timer;

/// How often during the time limit the kernel is asked what the peer has taken.
const LOOKS: u32 = 8;

/// A wait until the peer takes at least one byte that the kernel has for it.
///
/// A socket that takes no more bytes does not mean that the peer reads none. The socket has room
/// again when a third of its buffer is acknowledged, or half of the unsent limit is sent. A slow
/// reader may need longer than the time limit for this. So the kernel is asked how many bytes are
/// left. Most waits are short, so it is asked only after some time. The waiting code writes nothing
/// meanwhile: when it can write again, a new wait begins.
#[derive(Debug)]
pub struct Patience {
    timeout: Duration,
    next: Instant,
    /// Unacknowledged bytes, and since when their number has not changed.
    left: Option<(u64, Instant)>,
}

/// How often to look whether a peer has taken all.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Result of a look at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The peer has taken bytes since the last look.
    Takes,
    /// The peer has taken none, or it is too early to tell.
    Waits,
    /// The peer has taken none for the time limit.
    Stalled,
}

impl Patience {
    /// Begins a wait.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, next: Instant::now() + timeout / LOOKS, left: None }
    }

    /// Time of the next look.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Looks at the peer, if it is time. `unacknowledged` asks for the bytes that the kernel has for
    /// it. A stall is noticed up to a quarter of the time limit late.
    pub fn look(&mut self, unacknowledged: impl FnOnce() -> Option<u64>) -> Look {
        let now = Instant::now();
        if now < self.next {
            return Look::Waits;
        }
        self.next = now + self.timeout / LOOKS;
        // A peer that cannot be queried has taken nothing.
        let left = unacknowledged().unwrap_or(0);
        match self.left {
            Some((before, since)) if before == left => {
                if now - since >= self.timeout {
                    Look::Stalled
                } else {
                    Look::Waits
                }
            }
            before => {
                self.left = Some((left, now));
                if before.is_some() { Look::Takes } else { Look::Waits }
            }
        }
    }

    /// Waits until the peer has taken all that the kernel has for it, or has stalled.
    pub async fn until_taken(mut self, unacknowledged: impl Fn() -> Option<u64>) {
        while unacknowledged().is_some_and(|left| left > 0)
            && self.look(&unacknowledged) != Look::Stalled
        {
            tokio::time::sleep_until(self.next.min(Instant::now() + LOOK_AGAIN)).await;
        }
    }

    /// Ready when the peer has stalled.
    pub fn poll(&mut self, timer: &mut Timer, tcp: &TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(timer.poll(self.next, cx));
            if self.look(|| kernel::unacknowledged(tcp)) == Look::Stalled {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a peer whenever it is time, for at most `time`. Returns whether the peer has
    /// stalled. `left` is what the kernel has for it.
    async fn stalls(patience: &mut Patience, left: u64, time: Duration) -> bool {
        let looks = async {
            loop {
                tokio::time::sleep_until(patience.next()).await;
                if patience.look(|| Some(left)) == Look::Stalled {
                    break;
                }
            }
        };
        tokio::time::timeout(time, looks).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_little_is_waited_for() {
        const TIMEOUT: Duration = Duration::from_secs(10);
        let (mut patience, mut left) = (Patience::new(TIMEOUT), 1000);
        for _ in 0..12 {
            // The writer is not told that there is room.
            assert!(!stalls(&mut patience, left, TIMEOUT * 3 / 4).await);
            left -= 1;
        }
        let last = Instant::now();
        assert!(stalls(&mut patience, left, TIMEOUT * 2).await);
        // Timers have steps of a millisecond.
        let latest = TIMEOUT * 5 / 4 + Duration::from_millis(10);
        assert!((TIMEOUT..=latest).contains(&last.elapsed()), "{:?}", last.elapsed());
    }
}
