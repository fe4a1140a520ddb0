//! Decisions that take time, a few at a time for each address: nobody keeps others waiting for the webhook.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::failures::network;

/// Most decisions of an address (IPv6: a /64 network) at a time.
const AT_ONCE: usize = 8;
/// Most decisions of an address that wait for their turn.
const WAITING: usize = 1_000;
/// Most decisions of all addresses together, with those that wait. Each holds what its peer gave.
const OF_ALL: usize = 10_000;
/// An address has one in so many of the free places at most, so that a few addresses do not take them all.
const SHARE: usize = 4;

/// The turns of addresses.
pub(super) struct Turns {
    /// Only addresses that need a turn have an entry.
    by_address: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    /// The places of all decisions.
    places: Semaphore,
}

/// A turn, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    address: IpAddr,
    /// `None` while it is waited for.
    permit: Option<OwnedSemaphorePermit>,
    semaphore: Arc<Semaphore>,
    _place: SemaphorePermit<'a>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { by_address: Mutex::default(), places: Semaphore::new(OF_ALL) }
    }
}

impl Turns {
    /// Waits for the turn of an address. `None` if too many wait already.
    pub(super) async fn take(&self, address: IpAddr) -> Option<Turn<'_>> {
        let place = self.places.try_acquire().ok()?;
        let address = network(address);
        let semaphore = {
            let mut turns = self.turns();
            let semaphore = turns.entry(address);
            let semaphore = semaphore.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE)));
            let most = WAITING.min(self.places.available_permits() / SHARE).max(AT_ONCE);
            if Arc::strong_count(semaphore) > most {
                return None;
            }
            Arc::clone(semaphore)
        };
        let mut turn = Turn { turns: self, address, permit: None, semaphore, _place: place };
        turn.permit = Arc::clone(&turn.semaphore).acquire_owned().await.ok();
        Some(turn)
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Semaphore>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut turns = self.turns.turns();
        // The map and this turn.
        if Arc::strong_count(&self.semaphore) <= 2 {
            turns.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_has_a_few_turns_at_a_time_and_others_do_not_wait() {
        let turns = Turns::default();
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            taken.push(turns.take(one).await.unwrap());
        }
        let mut next = Box::pin(turns.take(one));
        assert!(futures_util::poll!(&mut next).is_pending());
        assert!(turns.take(other).await.is_some());
        taken.pop();
        let next = next.await;
        assert!(next.is_some());
        drop((taken, next));
        assert!(turns.turns().is_empty());
    }

    #[tokio::test]
    async fn all_addresses_together_have_so_many_turns() {
        let turns = Turns::default();
        let address = |number: usize| IpAddr::from((number as u32).to_be_bytes());
        let mut taken = Vec::new();
        for number in 0..OF_ALL {
            taken.push(turns.take(address(number)).await.unwrap());
        }
        assert!(turns.take(address(OF_ALL)).await.is_none());
        taken.pop();
        assert!(turns.take(address(OF_ALL)).await.is_some());
    }

    #[tokio::test]
    async fn a_few_addresses_leave_turns_for_others() {
        let turns = Turns::default();
        let mut taking = Vec::new();
        for number in 0..20 {
            for _ in 0..WAITING {
                let mut turn = Box::pin(turns.take(IpAddr::from([192, 0, 2, number])));
                if futures_util::poll!(&mut turn).is_pending() {
                    taking.push(turn);
                }
            }
        }
        assert!(taking.len() > OF_ALL / 2, "{}", taking.len());
        assert!(turns.take("198.51.100.1".parse().unwrap()).await.is_some());
    }

    #[tokio::test]
    async fn no_more_wait_than_can_be_remembered() {
        let turns = Turns::default();
        let one = "192.0.2.1".parse().unwrap();
        let mut taking: Vec<_> = (0..WAITING).map(|_| Box::pin(turns.take(one))).collect();
        for turn in &mut taking[AT_ONCE..] {
            // The first of these take the turns.
            let _ = futures_util::poll!(turn);
        }
        let more = (0..2 * AT_ONCE).map(|_| turns.take(one));
        let mut refused = 0;
        for more in more {
            let mut more = Box::pin(more);
            refused +=
                usize::from(matches!(futures_util::poll!(&mut more), std::task::Poll::Ready(None)));
        }
        assert!(refused > 0);
        drop(taking);
        assert!(turns.turns().is_empty());
    }
}
