//! Decides which viewers go first when the link is short.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use live::UnixMicros;

use super::triage::{Observed, Triage};
use super::{Hand, Schedule};

/// A viewer is in need if it has less media in hand than this and waits for room in its socket.
const ENOUGH: Duration = Duration::from_secs(4);

/// A viewer with more media in hand than this gives way to viewers in need, if these are many.
const FEW: Duration = Duration::from_secs(3);

/// Viewers in need are many if they are at least one in this many. If they are fewer, others may
/// keep more in hand, in proportion: the slow link of one viewer should not slow the others.
const MANY: usize = 20;

/// If at least one in this many is in need, the link that they share is short, not their own links.
/// Then every viewer behind it gives way to viewers with less, however little it has itself.
const MOST: usize = 4;

/// How long a viewer counts as behind a short link after its own socket was full.
const LATELY: Duration = Duration::from_secs(5);

/// How often a viewer that is set aside still gets a block. A player that receives nothing for long
/// disconnects.
const SIGN: Duration = Duration::from_secs(8);

/// [`SIGN`] is divided into this many intervals. The blocks of viewers that are set aside are spread
/// over them.
const TURNS: u64 = 64;

/// A socket that takes a block within this time had room for it.
const AT_ONCE: Duration = Duration::from_millis(20);

/// After how many milliseconds, at least and at most, a viewer that gave way asks again. Between
/// these bounds, it asks when viewers in need have caught up with it. Each viewer has another lead,
/// so they do not all come back at once.
const AGAIN: (u64, u64) = (100, 1000);

/// What paced viewers know of each other: how many there are, how many are in need, and how much
/// those have on average. The figures are relaxed atomics. Each figure is exact, but two may be of
/// different moments. An error by this lasts only until the next decision.
#[derive(Debug)]
pub struct Balance {
    /// Keys count from this time, so that the sum of many keys does not overflow.
    epoch: UnixMicros,
    viewers: AtomicUsize,
    needy: AtomicUsize,
    /// Viewers that give way although they have little: the link is short for them, too.
    giving: AtomicUsize,
    /// Sum of the [keys](Share) of viewers in need.
    keys: AtomicI64,
    /// Microseconds of media ever delivered, to all viewers and to those set aside.
    delivered: AtomicU64,
    delivered_aside: AtomicU64,
    /// Rank of the next viewer, and the first rank that is set aside.
    joined: AtomicU64,
    cutoff: AtomicU64,
    /// Number of viewers set aside.
    aside: AtomicUsize,
    /// When the next decision on this is due, and the state that makes it.
    decision: AtomicI64,
    triage: Mutex<Triage>,
}

impl Balance {
    /// Makes a balance without viewers. No later call may give a time before `epoch`.
    pub fn new(epoch: UnixMicros) -> Self {
        Self {
            epoch,
            viewers: AtomicUsize::new(0),
            needy: AtomicUsize::new(0),
            giving: AtomicUsize::new(0),
            keys: AtomicI64::new(0),
            delivered: AtomicU64::new(0),
            delivered_aside: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            cutoff: AtomicU64::new(u64::MAX),
            aside: AtomicUsize::new(0),
            decision: AtomicI64::new(0),
            triage: Mutex::new(Triage::new(epoch)),
        }
    }

    /// Number of viewers of files that want something now.
    pub fn viewers(&self) -> usize {
        self.viewers.load(Relaxed)
    }

    /// Number of viewers with little in hand that wait for room in their sockets.
    pub fn waiting(&self) -> usize {
        self.needy.load(Relaxed)
    }

    /// Number of viewers set aside, so that the others can be served.
    pub fn aside(&self) -> usize {
        self.aside.load(Relaxed)
    }

    /// Decides which viewers the link serves, if a decision is due.
    fn review(&self, now: UnixMicros) {
        let micros = |time: UnixMicros| i64::try_from(time.since(self.epoch).as_micros());
        if micros(now).is_ok_and(|now| now < self.decision.load(Relaxed)) {
            return;
        }
        // A thread that holds the lock decides for all.
        let Ok(mut triage) = self.triage.try_lock() else { return };
        if now < triage.next() {
            return;
        }
        let needy = self.needy.load(Relaxed);
        let mean = i64::try_from(needy).ok().and_then(|n| self.keys.load(Relaxed).checked_div(n));
        let aside = self.aside.load(Relaxed);
        let viewers = self.viewers.load(Relaxed);
        let observed = Observed {
            delivered: self.delivered.load(Relaxed),
            delivered_aside: self.delivered_aside.load(Relaxed),
            viewers,
            aside,
            joined: self.joined.load(Relaxed),
            short: self.is_short(needy, viewers.saturating_sub(aside)),
            lost: mean.map_or(0, |mean| micros(now).unwrap_or(i64::MAX).saturating_sub(mean)),
        };
        let before = self.cutoff.load(Relaxed);
        let cutoff = triage.decide(observed, before, now);
        match (before < u64::MAX, cutoff < u64::MAX) {
            (false, true) => {
                tracing::warn!(viewers, "a link is too short for all viewers of files: some wait");
            }
            (true, false) => tracing::info!(viewers, "all viewers of files are served"),
            _ => {}
        }
        self.cutoff.store(cutoff, Relaxed);
        self.decision.store(micros(triage.next()).unwrap_or(i64::MAX), Relaxed);
    }

    /// Whether so many viewers are in need that the link they share must be short.
    fn is_short(&self, needy: usize, viewers: usize) -> bool {
        needy > 0
            && needy * MANY >= viewers
            && (needy + self.giving.load(Relaxed)) * MOST >= viewers
    }

    /// A viewer's key in microseconds. Of two viewers, the one with more media ahead has the
    /// greater key. Time does not change this.
    fn key(&self, hand: &Hand, now: UnixMicros) -> i64 {
        let elapsed = i64::try_from(now.since(self.epoch).as_micros()).unwrap_or(i64::MAX);
        hand.ahead(now).saturating_add(elapsed)
    }
}

/// One viewer's share of the link. Dropping it removes the viewer.
///
/// A viewer in need is counted with its key: media ahead of the time played, plus the time. The key
/// stays the same while nothing is delivered, so it needs no update while the viewer waits.
#[derive(Debug)]
pub struct Share {
    balance: Arc<Balance>,
    /// Whether it counts as a viewer. It does not while it wants nothing.
    counted: bool,
    /// Its key, while it is in need.
    entered: Option<i64>,
    /// Whether it gives way although it has little.
    giving: bool,
    /// When its socket was last full.
    full: Option<UnixMicros>,
    /// Time at which a block was offered that the viewer has not taken yet.
    offered: Option<UnixMicros>,
    /// Number of viewers that came before it.
    rank: u64,
    /// When it next gets a block, while it is set aside.
    aside: Option<UnixMicros>,
    /// How much it had been delivered at the last look.
    delivered: Duration,
}

impl Share {
    /// Adds a viewer.
    pub fn new(balance: &Arc<Balance>) -> Self {
        balance.viewers.fetch_add(1, Relaxed);
        Self {
            balance: Arc::clone(balance),
            rank: balance.joined.fetch_add(1, Relaxed),
            aside: None,
            delivered: Duration::ZERO,
            counted: true,
            entered: None,
            giving: false,
            full: None,
            offered: None,
        }
    }

    /// Notes that the viewer's socket takes no more of the bytes that are due. If the viewer is not in
    /// need yet, returns after how long it will be. Call this again then, if the socket is still full.
    pub fn wait(&mut self, hand: &Hand, now: UnixMicros) -> Option<Duration> {
        self.full = Some(now);
        self.look(hand, now);
        let spare = hand.held(now).saturating_sub(ENOUGH);
        if spare.is_zero() {
            self.enter(Some(self.balance.key(hand, now)));
            return None;
        }
        self.enter(None);
        Some(spare)
    }

    /// Notes that a block was given to a sender that reports only its completion, by
    /// [`taken`](Self::taken). Until then the viewer counts as waiting for room.
    pub fn offer(&mut self, hand: &Hand, now: UnixMicros) {
        self.offered = Some(now);
        let needy = hand.held(now) < ENOUGH;
        self.enter(needy.then(|| self.balance.key(hand, now)));
    }

    /// Notes that the offered block is with its socket.
    pub fn taken(&mut self, now: UnixMicros) {
        if self.offered.take().is_some_and(|offered| now.since(offered) > AT_ONCE) {
            self.full = Some(now);
        }
        self.enter(None);
    }

    /// Counts what it was delivered, and checks whether it is set aside.
    fn look(&mut self, hand: &Hand, now: UnixMicros) {
        let delivered = hand.delivered();
        let more = delivered.saturating_sub(std::mem::replace(&mut self.delivered, delivered));
        let more = u64::try_from(more.as_micros()).unwrap_or(u64::MAX);
        self.balance.delivered.fetch_add(more, Relaxed);
        if self.aside.is_some() {
            self.balance.delivered_aside.fetch_add(more, Relaxed);
        }
        self.balance.review(now);
        let kept = self.rank < self.balance.cutoff.load(Relaxed);
        // A viewer with room in its socket is not behind the short link.
        self.set_aside(!kept && (self.aside.is_some() || self.was_full(now)), now);
    }

    fn was_full(&self, now: UnixMicros) -> bool {
        self.full.is_some_and(|full| now.since(full) < LATELY)
    }

    fn set_aside(&mut self, aside: bool, now: UnixMicros) {
        match (self.aside, aside) {
            (None, true) => {
                // They are set aside together. Their blocks are spread over time.
                let turn = u32::try_from(self.rank % TURNS).unwrap_or_default();
                self.aside = Some(now.after(SIGN * turn / TURNS as u32));
                self.balance.aside.fetch_add(1, Relaxed);
            }
            (Some(_), false) => self.come_back(),
            _ => {}
        }
    }

    fn come_back(&mut self) {
        if self.aside.take().is_some() {
            self.balance.aside.fetch_sub(1, Relaxed);
        }
    }

    /// Removes a viewer that wants nothing until [`due`](Self::due) is called again: it is paused,
    /// or has everything.
    pub fn leave(&mut self) {
        self.rest();
        self.come_back();
        if std::mem::take(&mut self.counted) {
            self.balance.viewers.fetch_sub(1, Relaxed);
        }
    }

    /// Notes that nothing is due to it.
    fn rest(&mut self) {
        self.enter(None);
        self.give(false);
    }

    /// How long the media at `position` has to wait: because it is not due, or because others go
    /// first. In the second case, ask again after this time. `None`: it may go out.
    pub fn due(
        &mut self,
        schedule: &Schedule,
        hand: &Hand,
        position: Duration,
        now: UnixMicros,
    ) -> Option<Duration> {
        if !std::mem::replace(&mut self.counted, true) {
            self.balance.viewers.fetch_add(1, Relaxed);
        }
        self.look(hand, now);
        match schedule.when(position) {
            Some(when) if when <= now => self.give_way(hand, now),
            when => {
                self.rest();
                Some(when.map_or(Duration::MAX, |when| when.since(now)))
            }
        }
    }

    /// Whether it should give way to others before it sends what is due, and for how long.
    fn give_way(&mut self, hand: &Hand, now: UnixMicros) -> Option<Duration> {
        let balance = &*self.balance;
        // A viewer that asks is not waiting for room, but its key may still be counted.
        let own = self.entered.unwrap_or_default();
        let needy = balance.needy.load(Relaxed).saturating_sub(usize::from(self.entered.is_some()));
        let viewers = balance.viewers.load(Relaxed);
        let viewers = viewers.saturating_sub(balance.aside.load(Relaxed));
        let sum = balance.keys.load(Relaxed).saturating_sub(own);
        let Some(mean) = i64::try_from(needy).ok().and_then(|needy| sum.checked_div(needy)) else {
            self.give(false);
            return None;
        };
        if let Some(sign) = &mut self.aside {
            if *sign <= now || needy * MANY < viewers {
                *sign = now.after(SIGN);
                return None;
            }
            self.rest();
            return Some(Duration::from_millis(AGAIN.1));
        }
        let scale = u32::try_from(viewers / (MANY * needy)).unwrap_or(u32::MAX).max(1);
        let rich = hand.held(now) > FEW.saturating_mul(scale);
        let short = balance.is_short(needy, viewers) && self.was_full(now);
        let lead = balance.key(hand, now).saturating_sub(mean);
        let ahead = short && lead > 0;
        self.give(ahead);
        if rich || ahead {
            self.enter(None);
            let (least, most) = AGAIN;
            let lead = u64::try_from(lead / 1000).unwrap_or_default();
            return Some(Duration::from_millis(lead.clamp(least, most)));
        }
        None
    }

    fn give(&mut self, giving: bool) {
        match (std::mem::replace(&mut self.giving, giving), giving) {
            (false, true) => self.balance.giving.fetch_add(1, Relaxed),
            (true, false) => self.balance.giving.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }

    fn enter(&mut self, key: Option<i64>) {
        let key = key.filter(|_| self.aside.is_none());
        if let Some(before) = std::mem::replace(&mut self.entered, key) {
            self.balance.needy.fetch_sub(1, Relaxed);
            self.balance.keys.fetch_sub(before, Relaxed);
        }
        if let Some(key) = key {
            self.balance.needy.fetch_add(1, Relaxed);
            self.balance.keys.fetch_add(key, Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{Pace, Plan};

    #[test]
    fn leaving_viewers_are_not_counted_and_come_back_by_asking() {
        let at = |millis| UnixMicros(1_000_000).after(Duration::from_millis(millis));
        let balance = Arc::new(Balance::new(at(0)));
        let plan = Plan { pace: Pace::Realtime, burst: Duration::ZERO, rate: 1.0 };
        let schedule = Schedule::new(plan, at(0));
        let mut hand = Hand::new(at(0));
        let (mut one, mut other) = (Share::new(&balance), Share::new(&balance));
        assert_eq!((balance.viewers(), balance.waiting()), (2, 0));
        assert_eq!(one.wait(&hand, at(0)), None);
        assert_eq!((balance.viewers(), balance.waiting()), (2, 1));
        // It has enough for now, and says when this ends.
        hand.deliver(Duration::from_secs(5), at(0));
        assert_eq!(one.wait(&hand, at(0)), Some(Duration::from_secs(1)));
        assert_eq!((balance.viewers(), balance.waiting()), (2, 0));
        one.wait(&hand, at(1000));
        assert_eq!((balance.viewers(), balance.waiting()), (2, 1));
        // A viewer with more gives way until the other is served.
        hand.deliver(Duration::from_secs(9), at(1000));
        let wait = other.due(&schedule, &hand, Duration::ZERO, at(1000));
        assert_eq!(wait, Some(Duration::from_secs(1)));
        one.leave();
        one.leave();
        assert_eq!((balance.viewers(), balance.waiting()), (1, 0));
        assert_eq!(other.due(&schedule, &hand, Duration::ZERO, at(1000)), None);
        // Not due yet.
        let wait = one.due(&schedule, &hand, Duration::from_secs(3), at(1000));
        assert_eq!(wait, Some(Duration::from_secs(2)));
        assert_eq!((balance.viewers(), balance.waiting()), (2, 0));
        drop(one);
        other.offer(&Hand::new(at(1000)), at(1000));
        assert_eq!((balance.viewers(), balance.waiting()), (1, 1));
        other.taken(at(1005));
        assert_eq!((balance.viewers(), balance.waiting()), (1, 0));
        drop(other);
        assert_eq!((balance.viewers(), balance.waiting()), (0, 0));
    }
}
