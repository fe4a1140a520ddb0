//! How much memory live streams may take together, and who gives way when it runs out.
//!
//! What counts is what streams hold, not what their publishers send: the pages of their windows, what
//! is known of their samples, and the forms in which deliveries keep parts beside them. So what a slow
//! viewer keeps from being given back counts as well.
//!
//! In parts of the limit: beyond [`NEW`] no further stream begins. Beyond [`SHORTEN`] a stream that
//! holds more than its share, which is the same for all, gives up its oldest segments, one at a time, as
//! far as playlists may be shortened (RFC 8216bis 6.2.2); beyond [`LAST`] all but its newest; and beyond
//! [`MOST`] it is refused more. What remains of the limit is for those that hold less than their share.
//! Nobody gets more than the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The limit has so many parts.
const PARTS: u64 = 32;
/// Beyond so many of them no stream begins.
const NEW: u64 = 26;
/// Beyond so many windows are shortened. More than [`NEW`]: what there is room for to begin with
/// costs nobody a window.
const SHORTEN: u64 = 28;
/// Beyond so many windows are shortened to what is newest.
const LAST: u64 = 29;
/// So many are for streams that hold more than their share.
const MOST: u64 = 30;

/// What all streams may hold, and do.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    streams: AtomicU64,
    /// Segments that were given up so far.
    given_up: AtomicU64,
}

impl Budget {
    /// Streams may hold `limit` bytes together.
    pub fn new(limit: u64) -> Arc<Self> {
        let (used, streams, given_up) = Default::default();
        Arc::new(Self { limit, used, streams, given_up })
    }

    /// What streams may hold together, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What they do.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Segments that were given up so far to make room.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whether there is room for a further stream.
    pub fn has_room(&self) -> bool {
        self.used() <= self.parts(NEW)
    }

    fn parts(&self, count: u64) -> u64 {
        // Divided first: without a limit it is the largest number there is.
        self.limit / PARTS * count
    }

    /// What each stream may hold whatever the others do.
    fn share(&self) -> u64 {
        self.parts(SHORTEN) / self.streams.load(Ordering::Relaxed).max(1)
    }
}

/// What one stream holds.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    used: AtomicU64,
}

/// How urgently a stream has to give something up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// As far as its playlists may be shortened.
    Shorten,
    /// All but what is newest.
    Last,
}

impl Account {
    /// That of a stream that begins.
    pub fn open(budget: &Arc<Budget>) -> Arc<Self> {
        budget.streams.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { budget: Arc::clone(budget), used: AtomicU64::new(0) })
    }

    /// Counts so many bytes; `None` if there is no room for them.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let budget = &self.budget;
        let own = self.used.load(Ordering::Relaxed).saturating_add(bytes);
        let most = if own > budget.share() { budget.parts(MOST) } else { budget.limit };
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= most);
        budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Some(Charge { account: Arc::clone(self), bytes })
    }

    /// Whether the stream has to give way.
    pub fn pressure(&self) -> Option<Pressure> {
        let used = self.budget.used();
        if used <= self.budget.parts(SHORTEN)
            || self.used.load(Ordering::Relaxed) <= self.budget.share()
        {
            return None;
        }
        let last = used > self.budget.parts(LAST);
        Some(if last { Pressure::Last } else { Pressure::Shorten })
    }

    /// Counts segments that it gave up.
    pub fn gave_up(&self, segments: u64) {
        self.budget.given_up.fetch_add(segments, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that count as a stream's while this lives.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Charge {
    /// The stream that holds them.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_more_than_its_share_gives_way_and_nobody_gets_more_than_the_limit() {
        let budget = Budget::new(1600);
        let (large, small) = (Account::open(&budget), Account::open(&budget));
        let mut held = vec![large.charge(1300).unwrap()];
        assert!(budget.has_room());
        assert_eq!(large.pressure(), None);
        held.extend(large.charge(100));
        assert!(!budget.has_room());
        assert_eq!(large.pressure(), None);
        held.extend(large.charge(10));
        assert_eq!(large.pressure(), Some(Pressure::Shorten));
        held.extend(large.charge(90));
        assert_eq!(budget.used(), 1500);
        assert_eq!(large.pressure(), Some(Pressure::Last));
        assert!(large.charge(1).is_none(), "the rest is not for it");
        // The other has a share of 700.
        assert_eq!(small.pressure(), None);
        held.extend(small.charge(60));
        assert!(small.charge(41).is_none());
        held.extend(small.charge(40));
        assert_eq!(budget.used(), 1600);
        assert_eq!(small.pressure(), None, "it has less than its share");
        drop(held);
        assert_eq!(budget.used(), 0);
        drop((large, small));
        assert_eq!(budget.streams.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn without_a_limit_there_is_no_pressure() {
        let budget = Budget::new(u64::MAX);
        let account = Account::open(&budget);
        let _held = account.charge(1 << 60).unwrap();
        assert!(budget.has_room());
        assert_eq!(account.pressure(), None);
    }
}
