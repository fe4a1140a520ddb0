//! A player of a file: blocks of its film, when they are due.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::UnixMicros;

use super::film::{Error, Film, Place};
use crate::Origin;
use crate::pace::{self, Hand, Plan, Schedule};

/// What one player is sent.
///
/// It may be asked for more only when it was told that everything before was sent.
pub(super) struct Play {
    film: Arc<Film>,
    /// Runs from where it began to play or last sought.
    schedule: Schedule,
    hand: Hand,
    place: pace::Place,
    /// Where that was, in milliseconds.
    began: i64,
    /// Where it goes on; `None` at the end.
    next: Option<Place>,
    /// Where it ends, in milliseconds, if not at the film's end.
    until: Option<i64>,
    /// Whether decoders must be told how to decode first.
    unprepared: bool,
    /// The block that is on its way: from and to, in milliseconds, and bytes.
    sending: Option<(i64, i64, usize)>,
    paused: bool,
    /// Everything was sent, and that was said.
    complete: bool,
}

/// What comes next for a player.
pub(super) enum Next {
    /// To be sent.
    Media(Vec<Bytes>),
    /// Everything was sent.
    Complete,
}

impl Play {
    /// From `start` on, for `duration`, both in milliseconds; to the end without one.
    pub(super) fn new(
        origin: &Origin,
        film: Arc<Film>,
        plan: Plan,
        start: f64,
        duration: Option<f64>,
    ) -> Self {
        let now = origin.now();
        let mut play = Self {
            film,
            schedule: Schedule::new(plan, now),
            hand: Hand::new(now),
            place: pace::Place::new(&origin.balance),
            began: 0,
            next: None,
            until: None,
            unprepared: true,
            sending: None,
            paused: false,
            complete: false,
        };
        let began = play.seek(start, now);
        // Of a duration of 0, a single frame is played (7.2.2.1). The cast saturates.
        play.until = duration
            .map(|duration| ((start.max(0.0) + duration) as i64).max(began.saturating_add(1)));
        play
    }

    /// Path of the film below the VOD root.
    pub(super) fn path(&self) -> &str {
        self.film.path()
    }

    /// Goes on at the last keyframe at or before `milliseconds`; answers where that is. The pace
    /// begins anew.
    pub(super) fn seek(&mut self, milliseconds: f64, now: UnixMicros) -> i64 {
        self.next = self.film.seek(milliseconds);
        self.began = self.next.map_or(0, |next| next.time);
        self.schedule = Schedule::new(self.schedule.plan(), now);
        self.hand = Hand::new(now);
        self.place.flow();
        // What is on its way is of no use any more.
        self.sending = None;
        self.unprepared = true;
        self.complete = false;
        if std::mem::take(&mut self.paused) {
            self.pause(true, now);
        }
        self.began
    }

    /// A paused player is sent nothing, and goes on where it stopped.
    pub(super) fn pause(&mut self, paused: bool, now: UnixMicros) {
        if std::mem::replace(&mut self.paused, paused) == paused {
            return;
        }
        if paused {
            self.schedule.pause(now);
            self.hand.pause(now);
            self.place.flow();
        } else {
            self.schedule.resume(now);
            self.hand.resume(now);
        }
    }

    /// What to send next, once it is due; never where that is nothing more. May be dropped while
    /// it waits.
    pub(super) async fn next(&mut self, origin: &Origin) -> Result<Next, Error> {
        loop {
            if self.paused || self.complete {
                return std::future::pending().await;
            }
            let over = |place: &Place| self.until.is_some_and(|until| place.time >= until);
            let Some(place) = self.next.filter(|place| !over(place)) else {
                self.place.flow();
                self.complete = true;
                return Ok(Next::Complete);
            };
            let now = origin.now();
            let position = self.position(place.time);
            // Not paused, so there is a time.
            let wait = self.schedule.when(position).map_or(Duration::ZERO, |when| when.since(now));
            let wait =
                if wait.is_zero() { self.place.give_way(&self.hand, now) } else { Some(wait) };
            if let Some(wait) = wait {
                self.place.flow();
                tokio::time::sleep(wait).await;
                continue;
            }
            let block = origin.films.block(&self.film, place, self.until).await?;
            let Some(block) = block else {
                self.next = None;
                continue;
            };
            let mut out = Vec::with_capacity(4);
            if self.unprepared {
                out = self.film.headers(place)?;
                self.unprepared = false;
            }
            self.next = block.next;
            self.sending = Some((place.time, block.end, block.bytes.len()));
            out.push(block.bytes.clone());
            return Ok(Next::Media(out));
        }
    }

    /// All but `left` bytes of what it gave are with the kernel, which takes no more if there are
    /// any. Answers when that should be said again, at the latest.
    pub(super) fn sent(&mut self, left: usize, now: UnixMicros) -> Option<Duration> {
        let (from, to, size) = self.sending?;
        let sent = size.saturating_sub(left);
        // Of a quarter of a second, and a few megabytes.
        let part = (to - from).max(0) as u64 * sent as u64 / size.max(1) as u64;
        self.hand.deliver(self.position(from.saturating_add_unsigned(part)), now);
        if left == 0 {
            self.sending = None;
            return None;
        }
        if self.paused { None } else { self.place.wait(&self.hand, now) }
    }

    fn position(&self, milliseconds: i64) -> Duration {
        let since = milliseconds.saturating_sub(self.began);
        Duration::from_millis(u64::try_from(since).unwrap_or_default())
    }
}
