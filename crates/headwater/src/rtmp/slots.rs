//! The places that connections hold, and the state that the connections of one event loop share.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::net::Drain;
use tokio::sync::Notify;

use super::play::Broadcasts;
use crate::Origin;

/// A limited number of slots, which connections take and give back.
#[derive(Debug)]
pub(super) struct Pool {
    most: usize,
    taken: AtomicUsize,
}

/// One slot of a pool. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Slot(Arc<Pool>);

/// The connections of one event loop that neither publish nor play. There is a place for each new
/// one: if too many wait, the one that has waited longest leaves. So connections that do nothing
/// keep nobody out.
#[derive(Debug)]
pub(super) struct Undecided {
    most: usize,
    waiting: RefCell<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Number of the next place.
    next: u64,
    /// Tells the owner of a place that the place was taken away. The numbers rise: the oldest is
    /// first.
    places: BTreeMap<u64, Rc<Notify>>,
}

/// A place among the undecided. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Hold {
    of: Rc<Undecided>,
    number: u64,
    lost: Rc<Notify>,
}

/// What a connection takes up. Each connection has one of these from its start to its end.
#[derive(Debug)]
pub(super) enum Admission {
    Undecided(Hold),
    /// A slot among all publishers or all players.
    Slot(Slot),
}

/// State that the connections of one event loop share.
pub(super) struct Shared {
    pub(super) origin: Arc<Origin>,
    pub(super) broadcasts: Rc<Broadcasts>,
    pub(super) undecided: Rc<Undecided>,
    /// Publishers have a pool of their own, so no number of players keeps a publisher out.
    pub(super) publishers: Arc<Pool>,
    pub(super) players: Arc<Pool>,
    pub(super) drain: Drain,
}

impl Pool {
    /// Makes a pool of `most` slots. 0 means no limit.
    pub(super) fn new(most: usize) -> Arc<Self> {
        let most = if most == 0 { usize::MAX } else { most };
        Arc::new(Self { most, taken: AtomicUsize::new(0) })
    }

    /// Number of slots in the pool.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes a slot, if one is left.
    pub(super) fn take(self: &Arc<Self>) -> Option<Slot> {
        let slot = Slot(Arc::clone(self));
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.most).then_some(slot)
    }
}

impl Undecided {
    /// Room for `most` connections.
    pub(super) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, waiting: RefCell::default() })
    }

    /// Room for one more. If there are too many, the oldest is lost.
    pub(super) fn enter(self: &Rc<Self>) -> Admission {
        let waiting = &mut *self.waiting.borrow_mut();
        if waiting.places.len() >= self.most
            && let Some((_, oldest)) = waiting.places.pop_first()
        {
            oldest.notify_one();
        }
        let (number, lost) = (waiting.next, Rc::new(Notify::new()));
        waiting.next += 1;
        waiting.places.insert(number, Rc::clone(&lost));
        Admission::Undecided(Hold { of: Rc::clone(self), number, lost })
    }
}

impl Admission {
    /// Takes a slot of `pool`, unless this is one already. Returns whether it is one now.
    pub(super) fn take(&mut self, pool: &Arc<Pool>) -> bool {
        if !matches!(self, Self::Slot(slot) if Arc::ptr_eq(&slot.0, pool)) {
            let Some(slot) = pool.take() else { return false };
            *self = Self::Slot(slot);
        }
        true
    }

    /// Gives back a slot, in exchange for a place among the undecided.
    pub(super) fn give_back(&mut self, undecided: &Rc<Undecided>) {
        if let Self::Slot(_) = self {
            *self = undecided.enter();
        }
    }

    /// Waits until the connection must leave because too many newer ones wait. Stays pending for
    /// one that publishes or plays.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + use<> {
        let lost = match self {
            Self::Undecided(hold) => Some(Rc::clone(&hold.lost)),
            Self::Slot(_) => None,
        };
        async move {
            match lost {
                Some(lost) => lost.notified().await,
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.of.waiting.borrow_mut().places.remove(&self.number);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_back() {
        let pool = Pool::new(2);
        let (first, _second) = (pool.take().unwrap(), pool.take().unwrap());
        for _ in 0..3 {
            assert!(pool.take().is_none());
        }
        drop(first);
        assert!(pool.take().is_some());
        let unlimited = Pool::new(0);
        assert!((0..100).map(|_| unlimited.take()).collect::<Vec<_>>().iter().all(Option::is_some));
    }

    #[test]
    fn a_slot_is_kept_while_its_connection_changes_roles() {
        let (undecided, players, publishers) = (Undecided::new(9), Pool::new(1), Pool::new(1));
        let (mut first, mut second) = (undecided.enter(), undecided.enter());
        assert!(first.take(&players) && first.take(&players));
        assert!(!second.take(&players) && second.take(&publishers));
        // A publisher that plays gives its slot back.
        assert!(!first.take(&publishers));
        first.give_back(&undecided);
        assert!(second.take(&players) && first.take(&publishers));
        assert!(undecided.waiting.borrow().places.is_empty());
    }

    #[tokio::test]
    async fn the_newest_of_the_undecided_stay() {
        let undecided = Undecided::new(3);
        let mut places: Vec<_> = (0..10).map(|_| undecided.enter()).collect();
        for place in places.drain(..7) {
            place.lost().await;
        }
        drop(places.pop());
        let _newest = undecided.enter();
        for place in &places {
            let lost = tokio::time::timeout(std::time::Duration::ZERO, place.lost()).await;
            assert!(lost.is_err(), "there is room for three");
        }
        drop(places);
        assert_eq!(undecided.waiting.borrow().places.len(), 1);
    }
}
