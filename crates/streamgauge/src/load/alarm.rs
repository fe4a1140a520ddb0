//! A timer for a tokio runtime with nanoseconds. tokio's own timers have milliseconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A timerfd(2).
pub(super) struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// Makes a timer that is not set. Must be called within a runtime.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an `OwnedFd` is an open descriptor, the same for as long as it lives; this one
        // moves into the `AsyncFd`, which never gives it away.
        #[expect(unsafe_code, reason = "tokio has no safe way to register a descriptor")]
        let registered = unsafe { AsyncFd::register(timer)? };
        Ok(Self(registered))
    }

    /// Waits. A new wait replaces the one before.
    pub(super) async fn after(&self, time: Duration) -> io::Result<()> {
        // A time of zero would disarm the timer.
        let time = time.max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(time).map_err(io::Error::other)?;
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: none, it_value };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let rang = rustix::io::read(self.0.get_ref(), &mut [0u8; 8]);
            ready.clear_ready();
            // The descriptor may be marked ready by an earlier wait that has been replaced.
            if rang != Err(Errno::AGAIN) {
                return Ok(rang.map(drop)?);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_after_its_time_each_time() {
        let alarm = Alarm::new().unwrap();
        for millis in [0, 3, 1] {
            let wait = Duration::from_millis(millis);
            let began = Instant::now();
            // An abandoned wait leaves nothing behind.
            let _ = tokio::time::timeout(Duration::ZERO, alarm.after(wait * 2)).await;
            alarm.after(wait).await.unwrap();
            assert!(began.elapsed() >= wait);
        }
    }
}
