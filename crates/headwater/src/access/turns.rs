//! Decisions that take time, a few at a time for each address: nobody keeps others waiting for the webhook.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    by_address: Mutex<HashMap<IpAddr, OfAddress>>,
    /// The places of all decisions.
    places: Semaphore,
}

/// The turns of an address.
struct OfAddress {
    at_once: Arc<Semaphore>,
    /// How many there are, with those that wait.
    count: usize,
}

impl Default for OfAddress {
    fn default() -> Self {
        Self { at_once: Arc::new(Semaphore::new(AT_ONCE)), count: 0 }
    }
}

/// A turn, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    address: IpAddr,
    /// `None` while it is waited for.
    permit: Option<OwnedSemaphorePermit>,
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
        let at_once = {
            let mut turns = self.turns();
            let of_address = turns.entry(address).or_default();
            let free = self.places.available_permits();
            if of_address.count >= (AT_ONCE + WAITING).min(free / SHARE).max(AT_ONCE) {
                return None;
            }
            of_address.count += 1;
            Arc::clone(&of_address.at_once)
        };
        let mut turn = Turn { turns: self, address, permit: None, _place: place };
        turn.permit = at_once.acquire_owned().await.ok();
        Some(turn)
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<IpAddr, OfAddress>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut turns = self.turns.turns();
        if let Entry::Occupied(mut of_address) = turns.entry(self.address) {
            of_address.get_mut().count -= 1;
            if of_address.get().count == 0 {
                of_address.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;

    type Waiting<T> = Vec<Pin<Box<T>>>;

    /// Takes so many turns of an address: those that it has, and those that wait.
    async fn take(
        turns: &Turns,
        address: IpAddr,
        count: usize,
    ) -> (Vec<Turn<'_>>, Waiting<impl Future<Output = Option<Turn<'_>>>>) {
        let (mut had, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut turn = Box::pin(turns.take(address));
            match futures_util::poll!(&mut turn) {
                Poll::Ready(turn) => had.extend(turn),
                Poll::Pending => waiting.push(turn),
            }
        }
        (had, waiting)
    }

    #[tokio::test]
    async fn an_address_has_a_few_turns_at_a_time_and_others_do_not_wait() {
        let turns = Turns::default();
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
        let (mut had, mut waiting) = take(&turns, one, AT_ONCE + 1).await;
        assert_eq!((had.len(), waiting.len()), (AT_ONCE, 1));
        assert!(turns.take(other).await.is_some());
        had.pop();
        let next = waiting.pop().unwrap().await;
        assert!(next.is_some());
        drop((had, next));
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
        let mut taken = Vec::new();
        for number in 0..20 {
            taken.push(take(&turns, IpAddr::from([192, 0, 2, number]), 2 * WAITING).await);
        }
        let all: usize = taken.iter().map(|(had, waiting)| had.len() + waiting.len()).sum();
        assert!((OF_ALL * 9 / 10..OF_ALL).contains(&all), "{all}");
        let newcomer = "198.51.100.1".parse().unwrap();
        let (had, waiting) = take(&turns, newcomer, 2 * AT_ONCE).await;
        assert!(had.len() + waiting.len() >= AT_ONCE);
    }

    #[tokio::test]
    async fn no_more_wait_than_can_be_remembered() {
        let turns = Turns::default();
        let one = "192.0.2.1".parse().unwrap();
        let (had, waiting) = take(&turns, one, 2 * WAITING).await;
        assert_eq!(had.len() + waiting.len(), AT_ONCE + WAITING);
        assert!(turns.take(one).await.is_none());
        drop((had, waiting));
        assert!(turns.turns().is_empty());
    }
}
