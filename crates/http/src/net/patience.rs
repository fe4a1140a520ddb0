//! How long a peer may take nothing.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::kernel;
use super::timer::Timer;

/// How often in a time-out the kernel is asked what the peer has taken.
const LOOKS: u32 = 8;

/// A wait for a peer to take some of what the kernel has for it: a byte is enough.
///
/// That the socket takes nothing more does not say that the peer does not: there is room again when a
/// third of what the socket may hold has been acknowledged, or half of what may be unsent, for which
/// one that reads slowly may need longer than the time-out. So the kernel is asked how much is left;
/// but most waits are short, and not until some time has passed. Whoever waits writes nothing
/// meanwhile: when something could be written, another wait begins.
#[derive(Debug)]
pub struct Patience {
    timeout: Duration,
    next: Instant,
    /// Bytes that were not acknowledged, and since when they have been no fewer.
    left: Option<(u64, Instant)>,
}

/// What a look at a peer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It has taken something since the last look.
    Takes,
    /// It has not, or it is too early to say.
    Waits,
    /// It has taken nothing for the time-out.
    Stalled,
}

impl Patience {
    /// Begins to wait.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, next: Instant::now() + timeout / LOOKS, left: None }
    }

    /// When to look.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Looks, if it is time to. That the peer took nothing for the time-out is noticed up to a quarter
    /// of it later.
    pub fn look(&mut self, tcp: &TcpStream) -> Look {
        let now = Instant::now();
        if now < self.next {
            return Look::Waits;
        }
        self.next = now + self.timeout / LOOKS;
        // One that cannot be asked has taken nothing.
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

    /// A connection whose far end has not read what fills it, and that end.
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

    /// Reads until some of what the kernel had for the far end has got there.
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
            // Nobody was told that there is room.
            tokio::time::timeout(TIMEOUT * 3 / 4, &mut end).await.unwrap_err();
            take(&near, &mut far);
        }
        // What was taken last may be acknowledged in two steps.
        let last = Instant::now();
        end.await;
        assert!((TIMEOUT..TIMEOUT * 3).contains(&last.elapsed()), "{:?}", last.elapsed());
    }
}
