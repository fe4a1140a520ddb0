//! How much memory all live streams may take together, and which streams give way when it runs out.
//!
//! What counts is the memory that streams hold, not the bit rate of their publishers: the pages of
//! their windows, the records of their samples, and the forms of parts that deliveries keep beside
//! them. Pages that a slow viewer still uses count as well. Counted pages are resident: the pages
//! of a slab come into being when they are counted, also those of a slab that is yet to be filled.
//! With streams of 300 kbit/s, slabs take an eighth more than their content. So the counted
//! memory is a good measure of the resident memory.
//!
//! The limit is divided into [`PARTS`]. When the memory in use exceeds a number of parts, this
//! happens:
//!
//! - [`NEW`]: streams at [rest](Account::rest), which have no publisher, give up their oldest
//!   segments and at last all of them. The stream that has rested for the longest comes first. When
//!   no such stream is left, no further stream may begin: the rest of the limit is for the streams
//!   that are there, each of which begins with about a tenth of its later window.
//! - [`SHORTEN`]: a stream that holds more than its share, which is equal for all, gives up its
//!   oldest segments, one at a time, as far as playlists may be shortened (RFC 8216bis 6.2.2).
//! - [`LAST`]: such a stream gives up all but its newest segment. Viewers that need a part in
//!   another form wait: if the form were made, a publisher could be refused because that room is
//!   missing.
//! - [`MOST`]: such a stream gets no more memory. The rest is for streams that hold less than their
//!   share.
//!
//! No stream gets memory beyond the limit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Number of parts that the limit is divided into.
const PARTS: u64 = 32;
/// Above this many parts streams at rest give way, and no stream may begin.
const NEW: u64 = 26;
/// Above this many parts windows are shortened. It is more than [`NEW`], so that a new stream that
/// finds room costs no other stream part of its window.
const SHORTEN: u64 = 28;
/// Above this many parts windows are shortened to their newest segment, and no other form of a part
/// is made.
const LAST: u64 = 29;
/// Streams that hold more than their share may use this many parts.
const MOST: u64 = 30;
/// How many times streams at rest give up a segment for each chunk that comes, while there is room
/// for the chunk anyway. So they give up more than comes, and no publisher waits for long.
const TURNS: usize = 4;

/// The memory that all streams may hold together, and the memory that they hold.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    /// Streams that are published.
    streams: AtomicU64,
    /// Segments that streams have given up so far.
    given_up: AtomicU64,
    resting: Mutex<Resting>,
}

/// Streams without a publisher, in the order in which they lost it.
#[derive(Debug, Default)]
struct Resting {
    queue: BTreeMap<u64, Weak<dyn Holder>>,
    /// How many have come to rest so far.
    count: u64,
}

/// A stream, as the holder of the memory that its account counts.
pub trait Holder: Send + Sync {
    /// Gives up its oldest segment: it has no publisher, and the memory is needed.
    ///
    /// The caller publishes another stream and holds that stream's lock. So this must not wait for
    /// a lock.
    fn give_up(&self) -> GaveUp;
}

/// What a [`Holder`] gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaveUp {
    /// This many segments, and there are more.
    Some(u64),
    /// This many segments, and nothing is left.
    All(u64),
    /// Nothing: another thread has locked the stream.
    Busy,
}

impl Budget {
    /// A budget of `limit` bytes for all streams together.
    pub fn new(limit: u64) -> Arc<Self> {
        let (used, streams, given_up, resting) = Default::default();
        Arc::new(Self { limit, used, streams, given_up, resting })
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

    /// Whether there is room for a further stream, or a stream at rest that will make it.
    pub fn has_room(&self) -> bool {
        self.used() <= self.parts(NEW) || self.anybody_rests()
    }

    fn parts(&self, count: u64) -> u64 {
        // Divides first: an unlimited budget has the largest possible number as its limit.
        self.limit / PARTS * count
    }

    /// Bytes that each published stream may hold whatever the others hold.
    fn share(&self) -> u64 {
        self.parts(SHORTEN) / self.streams.load(Ordering::Relaxed).max(1)
    }

    /// Counts `bytes` more if the sum is no more than `most`.
    fn take(&self, bytes: u64, most: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn anybody_rests(&self) -> bool {
        !self.resting().queue.is_empty()
    }

    /// Lets the stream that has rested for the longest give something up, of those that are not
    /// locked. Returns whether there was one.
    fn reclaim(&self) -> bool {
        let mut from = 0;
        loop {
            // Not locked while the stream gives up, which may take a while.
            let Some((since, holder)) = self.resting().from(from) else { return false };
            let gave_up = holder.upgrade().map_or(GaveUp::All(0), |holder| holder.give_up());
            let (segments, over) = match gave_up {
                GaveUp::Some(segments) => (segments, false),
                GaveUp::All(segments) => (segments, true),
                GaveUp::Busy => {
                    from = since + 1;
                    continue;
                }
            };
            self.given_up.fetch_add(segments, Ordering::Relaxed);
            if over {
                self.resting().queue.remove(&since);
            }
            return true;
        }
    }
}

impl Resting {
    /// The first stream that came to rest as number `from` or later.
    fn from(&self, from: u64) -> Option<(u64, Weak<dyn Holder>)> {
        self.queue.range(from..).next().map(|(&since, holder)| (since, Weak::clone(holder)))
    }
}

/// The memory of one stream.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    used: AtomicU64,
    /// Position in the order in which streams came to rest, from 1; 0 while it is published.
    resting: AtomicU64,
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
        let (used, resting) = Default::default();
        Arc::new(Self { budget: Arc::clone(budget), used, resting })
    }

    /// Counts `bytes` as held by the stream; `None` if there is no room for them, and no stream at
    /// rest can make room.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let budget = &self.budget;
        let is_beyond_new = || budget.used().saturating_add(bytes) > budget.parts(NEW);
        for _ in 0..TURNS {
            if !is_beyond_new() || !budget.reclaim() {
                break;
            }
        }
        let own = self.used.load(Ordering::Relaxed).saturating_add(bytes);
        let most = if own > budget.share() { budget.parts(MOST) } else { budget.limit };
        while !budget.take(bytes, most) {
            if !budget.reclaim() {
                return None;
            }
        }
        Some(self.charged(bytes))
    }

    /// Counts another form of a part, which viewers need; `None` if there is no room for it now. No
    /// stream gives way to it.
    pub fn charge_beside(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let budget = &self.budget;
        budget.take(bytes, budget.parts(LAST)).then(|| self.charged(bytes))
    }

    fn charged(self: &Arc<Self>, bytes: u64) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { account: Arc::clone(self), bytes }
    }

    /// Whether, and how urgently, the stream has to give way.
    pub fn pressure(&self) -> Option<Pressure> {
        let used = self.budget.used();
        if used <= self.budget.parts(SHORTEN)
            || self.used.load(Ordering::Relaxed) <= self.budget.share()
            || self.budget.anybody_rests()
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

    /// Marks the stream as without a publisher. It then gives up memory before published streams.
    /// Do not call it at the same time as [`resume`](Self::resume).
    pub fn rest(&self, holder: Weak<dyn Holder>) {
        let mut resting = self.budget.resting();
        if self.resting.load(Ordering::Relaxed) == 0 {
            resting.count += 1;
            self.resting.store(resting.count, Ordering::Relaxed);
            let since = resting.count;
            resting.queue.insert(since, holder);
            self.budget.streams.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Marks the stream as published again.
    pub fn resume(&self) {
        let since = self.resting.swap(0, Ordering::Relaxed);
        if since > 0 {
            self.budget.resting().queue.remove(&since);
            self.budget.streams.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.resume();
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
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn accounts_beyond_their_share_give_way_and_none_exceeds_the_limit() {
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

    /// A stream at rest that gives up a charge at a time, unless it is locked.
    #[derive(Default)]
    struct Rests {
        held: Mutex<Vec<Charge>>,
        locked: AtomicBool,
    }

    impl Rests {
        fn new(account: &Arc<Account>, charges: &[u64]) -> Arc<Self> {
            let held = charges.iter().map(|&bytes| account.charge(bytes).unwrap()).collect();
            let rests = Arc::new(Self { held: Mutex::new(held), ..Self::default() });
            let holder: Weak<Self> = Arc::downgrade(&rests);
            account.rest(holder);
            rests
        }

        fn held(&self) -> usize {
            self.held.lock().unwrap().len()
        }
    }

    impl Holder for Rests {
        fn give_up(&self) -> GaveUp {
            if self.locked.load(Ordering::Relaxed) {
                return GaveUp::Busy;
            }
            let mut held = self.held.lock().unwrap();
            held.pop();
            if held.is_empty() { GaveUp::All(1) } else { GaveUp::Some(1) }
        }
    }

    #[test]
    fn streams_at_rest_give_way_before_all_others_in_the_order_in_which_they_came_to_rest() {
        let budget = Budget::new(1600);
        let accounts: Vec<_> = (0..4).map(|_| Account::open(&budget)).collect();
        // They come to rest in reverse order of their beginning. One is published again.
        let back = Rests::new(&accounts[3], &[100]);
        let first = Rests::new(&accounts[2], &[200; 2]);
        let second = Rests::new(&accounts[1], &[200; 2]);
        accounts[3].resume();
        assert_eq!(budget.streams.load(Ordering::Relaxed), 2);

        let live = &accounts[0];
        let mut media = vec![live.charge(400).unwrap()];
        assert_eq!((budget.used(), first.held(), second.held()), (1300, 2, 2));
        media.extend(live.charge(1));
        assert_eq!((budget.used(), first.held(), second.held()), (1101, 1, 2));
        // The budget does not wait for a locked stream.
        first.locked.store(true, Ordering::Relaxed);
        media.extend(live.charge(250));
        assert_eq!((budget.used(), first.held(), second.held()), (1151, 1, 1));
        first.locked.store(false, Ordering::Relaxed);
        // Streams at rest give up all that they hold, which is exactly what is missing.
        media.extend(live.charge(749));
        assert_eq!((budget.used(), first.held(), second.held()), (1500, 0, 0));
        assert_eq!((budget.given_up(), back.held()), (4, 1));
        assert!(live.charge(1).is_none());
        drop((first, second, back, accounts, media));
        assert_eq!((budget.used(), budget.resting().queue.len()), (0, 0));
    }

    #[test]
    fn live_accounts_give_nothing_up_and_may_begin_while_another_rests() {
        let budget = Budget::new(1600);
        let (live, gone) = (Account::open(&budget), Account::open(&budget));
        let rests = Rests::new(&gone, &[100; 7]);
        let _media = live.charge(800).unwrap();
        assert_eq!(budget.used(), 1300, "{TURNS} turns made room");
        rests.locked.store(true, Ordering::Relaxed);
        let _media = live.charge(200).unwrap();
        assert_eq!(budget.used(), 1500);
        assert_eq!(live.pressure(), None);
        assert!(budget.has_room());
        gone.resume();
        assert_eq!(live.pressure(), Some(Pressure::Last));
        assert!(!budget.has_room());
    }

    #[test]
    fn of_many_at_rest_few_give_way_at_a_time() {
        let budget = Budget::new(1600);
        let accounts: Vec<_> = (0..1000).map(|_| Account::open(&budget)).collect();
        let rest: Vec<_> = accounts.iter().map(|account| Rests::new(account, &[1])).collect();
        let live = Account::open(&budget);
        let held = || rest.iter().map(|rests| rests.held()).sum::<usize>();
        let _media = live.charge(300).unwrap();
        assert_eq!(held(), 1000);
        let _more = live.charge(100).unwrap();
        assert_eq!(held(), 1000 - TURNS);
    }

    #[test]
    fn forms_of_parts_have_less_room_than_media_and_take_nothing_from_anybody() {
        let budget = Budget::new(1600);
        let (live, gone) = (Account::open(&budget), Account::open(&budget));
        let rests = Rests::new(&gone, &[100]);
        let _media = live.charge(1200).unwrap();
        let mut forms = vec![live.charge_beside(150).unwrap()];
        assert_eq!((budget.used(), rests.held()), (1450, 1));
        assert!(live.charge_beside(1).is_none());
        gone.resume();
        assert!(live.charge(50).is_some(), "there is room for media");
        forms.clear();
        assert!(live.charge_beside(150).is_some());
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
