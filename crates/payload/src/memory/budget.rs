//! How much memory all live streams may take together, and which streams give way when it runs out.
//!
//! What counts is the memory that streams hold, not the bit rate of their publishers: the pages of
//! their windows, the records of their samples, and the forms of parts that deliveries keep beside
//! them. Pages that a slow viewer still uses count as well.
//!
//! The limit is divided into [`PARTS`]. When the memory in use exceeds a number of parts, this
//! happens:
//!
//! - [`NEW`]: no further stream may begin.
//! - [`SHORTEN`]: a stream that holds more than its share, which is equal for all, gives up its
//!   oldest segments, one at a time, as far as playlists may be shortened (RFC 8216bis 6.2.2).
//! - [`LAST`]: such a stream gives up all but its newest segment.
//! - [`MOST`]: such a stream gets no more memory. The rest is for streams that hold less than their
//!   share.
//!
//! No stream gets memory beyond the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of parts that the limit is divided into.
const PARTS: u64 = 32;
/// Above this many parts no stream may begin.
const NEW: u64 = 26;
/// Above this many parts windows are shortened. It is more than [`NEW`], so that a new stream that
/// finds room costs no other stream part of its window.
const SHORTEN: u64 = 28;
/// Above this many parts windows are shortened to their newest segment.
const LAST: u64 = 29;
/// Streams that hold more than their share may use this many parts.
const MOST: u64 = 30;

/// The memory that all streams may hold together, and the memory that they hold.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    streams: AtomicU64,
    /// Segments that streams have given up so far.
    given_up: AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes for all streams together.
    pub fn new(limit: u64) -> Arc<Self> {
        let (used, streams, given_up) = Default::default();
        Arc::new(Self { limit, used, streams, given_up })
    }

    /// Bytes that all streams may hold together.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that all streams hold now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Segments that streams have given up so far to make room.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whether there is room for a further stream.
    pub fn has_room(&self) -> bool {
        self.used() <= self.parts(NEW)
    }

    fn parts(&self, count: u64) -> u64 {
        // Divides first: an unlimited budget has the largest possible number as its limit.
        self.limit / PARTS * count
    }

    /// Bytes that each stream may hold whatever the others hold.
    fn share(&self) -> u64 {
        self.parts(SHORTEN) / self.streams.load(Ordering::Relaxed).max(1)
    }
}

/// The memory of one stream.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    used: AtomicU64,
}

/// How urgently a stream has to give something up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// It gives up segments as far as its playlists may be shortened.
    Shorten,
    /// It gives up all but its newest segment.
    Last,
}

impl Account {
    /// Opens the account of a stream that begins.
    pub fn open(budget: &Arc<Budget>) -> Arc<Self> {
        budget.streams.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { budget: Arc::clone(budget), used: AtomicU64::new(0) })
    }

    /// Counts `bytes` as held by the stream; `None` if there is no room for them.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let budget = &self.budget;
        let own = self.used.load(Ordering::Relaxed).saturating_add(bytes);
        let most = if own > budget.share() { budget.parts(MOST) } else { budget.limit };
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= most);
        budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Some(Charge { account: Arc::clone(self), bytes })
    }

    /// Whether, and how urgently, the stream has to give way.
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

    /// Counts segments that the stream gave up.
    pub fn gave_up(&self, segments: u64) {
        self.budget.given_up.fetch_add(segments, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that count as a stream's while this value lives.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Charge {
    /// The account of the stream that holds the bytes.
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
        // The other stream has a share of 700.
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
