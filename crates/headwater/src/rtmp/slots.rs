//! Slots for publishers and players, and the state that the connections of one event loop share.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::net::Drain;

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

/// State that the connections of one event loop share.
pub(super) struct Shared {
    pub(super) origin: Arc<Origin>,
    pub(super) broadcasts: Rc<Broadcasts>,
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
}
