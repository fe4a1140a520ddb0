//! Slows down those who guess.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Most addresses that are remembered. Those are forgotten first that may try everything again soonest.
const MOST: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

/// Wrong credentials by address. Of IPv6 addresses, a /64 network counts as one: anybody with one address there has
/// all of them.
#[derive(Debug)]
pub(super) struct Failures {
    /// Most in a minute; 0 is no limit.
    most: u32,
    /// When each address will have made up for all of its failures. Each takes a share of a minute.
    paid: Mutex<HashMap<IpAddr, Instant>>,
}

impl Failures {
    /// `before` are the failures under another limit. What was not made up for then has to be made up for now.
    pub(super) fn new(most: u32, before: Option<&Self>) -> Self {
        let paid = before.map(|before| before.paid().clone()).unwrap_or_default();
        Self { most, paid: Mutex::new(paid) }
    }

    /// How long an address must wait until it may try again.
    pub(super) fn wait(&self, address: IpAddr) -> Option<Duration> {
        let paid = *self.paid().get(&network(address))?;
        let (now, one) = (Instant::now(), self.one()?);
        // So much of a minute must be left that the next failure has room.
        let may = paid + one;
        let until = now + MINUTE;
        (may > until).then(|| may - until)
    }

    /// Counts a failure.
    pub(super) fn count(&self, address: IpAddr) {
        let Some(one) = self.one() else { return };
        let (now, network) = (Instant::now(), network(address));
        let mut paid = self.paid();
        if paid.len() >= MOST && !paid.contains_key(&network) {
            paid.retain(|_, paid| *paid > now);
            if paid.len() >= MOST
                && let Some(soonest) = paid.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key)
            {
                paid.remove(&soonest);
            }
        }
        let paid = paid.entry(network).or_insert(now);
        // Those who were asked for at the same time count too, but nobody waits for longer than a minute.
        *paid = ((*paid).max(now) + one).min(now + MINUTE);
    }

    /// The time that makes up for one failure.
    fn one(&self) -> Option<Duration> {
        (self.most > 0).then(|| MINUTE / self.most)
    }

    fn paid(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What counts as one address: of IPv6, a /64 network.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_has_so_many_in_a_minute() {
        let failures = Failures::new(10, None);
        let [guesser, neighbour, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|it| it.parse().unwrap());
        for _ in 0..10 {
            assert_eq!(failures.wait(guesser), None);
            failures.count(guesser);
        }
        assert_eq!(failures.wait(guesser), Some(Duration::from_secs(6)));
        assert_eq!(failures.wait(neighbour), Some(Duration::from_secs(6)));
        assert_eq!(failures.wait(other), None);
        advance(Duration::from_secs(6)).await;
        assert_eq!(failures.wait(guesser), None);
        failures.count(guesser);
        assert_eq!(failures.wait(guesser), Some(Duration::from_secs(6)));
        advance(Duration::from_secs(66)).await;
        (0..10).for_each(|_| failures.count(guesser));
        assert_eq!(failures.wait(guesser), Some(Duration::from_secs(6)));
        // Another limit forgets nobody.
        let fewer = Failures::new(5, Some(&failures));
        assert_eq!(fewer.wait(guesser), Some(Duration::from_secs(12)));
        let unlimited = Failures::new(0, None);
        (0..1000).for_each(|_| unlimited.count(guesser));
        assert_eq!(unlimited.wait(guesser), None);
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_take_little_memory() {
        let failures = Failures::new(2, None);
        let guesser = "192.0.2.1".parse().unwrap();
        (0..3).for_each(|_| failures.count(guesser));
        for number in 0..2 * MOST as u32 {
            failures.count(IpAddr::from(number.to_be_bytes()));
        }
        assert_eq!(failures.paid().len(), MOST);
        assert!(failures.wait(guesser).is_some(), "who guessed more is remembered longer");
    }
}
