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

    /// Looks at the peer, if it is time. A stall is noticed up to a quarter of the time limit late.
    pub fn look(&mut self, tcp: &TcpStream) -> Look {
        let now = Instant::now();
        if now < self.next {
            return Look::Waits;
        }
        self.next = now + self.timeout / LOOKS;
        // A peer that cannot be queried has taken nothing.
        let left = kernel::unacknowledged(tcp).unwrap_or(0);
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

    /// Ready when the peer has stalled.
    pub fn poll(&mut self, timer: &mut Timer, tcp: &TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(timer.poll(self.next, cx));
            if self.look(tcp) == Look::Stalled {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream as Blocking};

    use super::*;

    /// A connection that is filled because its far end has read nothing, and the far end.
    fn full() -> (TcpStream, Blocking) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut near = Blocking::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let full = loop {
            if let Err(error) = near.write(&[0; 65_536]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        (TcpStream::from_std(near).unwrap(), far)
    }

    /// Reads until the far end has received some of the bytes that the kernel had for it.
    fn take(near: &TcpStream, far: &mut Blocking) {
        let left = || kernel::unacknowledged(near).unwrap();
        let (before, began) = (left(), std::time::Instant::now());
        while left() == before {
            assert!(began.elapsed() < Duration::from_secs(20), "nothing gets there");
            assert!(far.read(&mut [0; 1024]).unwrap() > 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_a_little_is_waited_for() {
        const TIMEOUT: Duration = Duration::from_secs(10);
        let (near, mut far) = full();
        let (mut patience, mut timer) = (Patience::new(TIMEOUT), Timer::new(TIMEOUT));
        let mut end = poll_fn(|cx| patience.poll(&mut timer, &near, cx));
        for _ in 0..12 {
            // The writer is not told that there is room.
            tokio::time::timeout(TIMEOUT * 3 / 4, &mut end).await.unwrap_err();
            take(&near, &mut far);
        }
        // The last bytes may be acknowledged in two steps.
        let last = Instant::now();
        end.await;
        assert!((TIMEOUT..TIMEOUT * 3).contains(&last.elapsed()), "{:?}", last.elapsed());
    }
}
