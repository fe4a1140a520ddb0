//! Decides which streams get renditions when there are more streams than slots.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use live::State;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;

use crate::config::Ladder;

/// The slots of all ladders and companions: each has one process of ffmpeg. A stream keeps its slot.
/// Waiting streams get slots in the order in which they came.
#[derive(Debug)]
pub struct Slots {
    /// Slots for any stream.
    general: Arc<Semaphore>,
    /// Slots for the streams in `reserved_for`.
    reserved: Arc<Semaphore>,
    /// Slots for streams that are neither expected nor from one's own networks.
    outside: Arc<Semaphore>,
    /// Most general slots for one address; 0 is no limit.
    most_of_one: usize,
    addresses: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// A slot. Dropping it gives it back.
pub(super) struct Slot {
    _place: OwnedSemaphorePermit,
    /// Counts against the limit of its address.
    _share: Option<Share>,
    /// Counts against the limit of all publishers from outside.
    _outside: Option<OwnedSemaphorePermit>,
}

/// A permit of an address. It keeps the address's semaphore alive.
struct Share {
    _permit: OwnedSemaphorePermit,
    _of: Arc<Semaphore>,
}

/// The stream that asks for a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applicant {
    /// Address of its publisher. `None` for the origin's own clip, and while nobody publishes.
    pub(super) address: Option<IpAddr>,
    /// Whether slots are reserved for streams with its name.
    pub(super) is_expected: bool,
    /// Whether its publisher's address is in one's own networks.
    pub(super) is_own: bool,
}

impl Applicant {
    /// The stream with this name, whose tracks and publishers are `state`.
    pub(super) fn new(ladder: &Ladder, stream: &str, state: &State) -> Self {
        let publisher = state.publishers.iter().find(|publisher| publisher.rendition.is_none());
        let address = publisher.and_then(|publisher| publisher.peer).map(|peer| peer.ip());
        // A stream whose publisher has gone may be anybody's.
        let is_own = publisher.is_some_and(|_| address.is_none_or(|it| ladder.is_own(it)));
        Self { address, is_expected: ladder.expects(stream), is_own }
    }
}

impl Slots {
    /// All slots are free.
    pub fn new(ladder: &Ladder) -> Self {
        let all = match ladder.max_streams {
            0 => Semaphore::MAX_PERMITS,
            most => most,
        };
        let reserved = ladder.reserved.min(all);
        let general = all - reserved;
        let outside = match ladder.max_outside {
            0 => general - general / 4,
            most => most.min(general),
        };
        Self {
            general: Arc::new(Semaphore::new(general)),
            reserved: Arc::new(Semaphore::new(reserved)),
            outside: Arc::new(Semaphore::new(outside)),
            most_of_one: ladder.max_per_address,
            addresses: Mutex::default(),
        }
    }

    /// Takes a slot. If it must wait, `waits` gets the name of the option that makes it wait.
    pub(super) async fn take(
        &self,
        applicant: Applicant,
        mut waits: impl FnMut(&'static str),
    ) -> Option<Slot> {
        let shares = self.shares(applicant);
        let share = match shares {
            None => None,
            Some(of) => {
                if of.available_permits() == 0 {
                    waits("max_per_address");
                }
                let permit = Arc::clone(&of).acquire_owned().await.ok()?;
                Some(Share { _permit: permit, _of: of })
            }
        };
        let is_full = |slots: &Arc<Semaphore>| slots.available_permits() == 0;
        let outside = if applicant.is_expected || applicant.is_own {
            None
        } else {
            if is_full(&self.outside) {
                let more = if is_full(&self.general) { "max_streams" } else { "max_outside" };
                waits(more);
            }
            Some(Arc::clone(&self.outside).acquire_owned().await.ok()?)
        };
        if is_full(&self.general) && (!applicant.is_expected || is_full(&self.reserved)) {
            waits("max_streams");
        }
        let general = Arc::clone(&self.general).acquire_owned();
        let place = if applicant.is_expected {
            let reserved = Arc::clone(&self.reserved).acquire_owned();
            tokio::select! {
                biased;
                place = reserved => place,
                place = general => place,
            }
        } else {
            general.await
        };
        Some(Slot { _place: place.ok()?, _share: share, _outside: outside })
    }

    /// Takes a slot if there is one now. If not, returns the name of the option that allows no more.
    pub(super) fn take_now(&self, applicant: Applicant) -> Result<Slot, &'static str> {
        let mut why = "max_streams";
        let taken = {
            let take = pin!(unconstrained(self.take(applicant, |option| why = option)));
            take.poll(&mut Context::from_waker(Waker::noop()))
        };
        match taken {
            Poll::Ready(Some(slot)) => Ok(slot),
            _ => Err(why),
        }
    }

    /// The slots that publishers at its address share; `None` if it has no such limit. Expected
    /// streams have none.
    fn shares(&self, applicant: Applicant) -> Option<Arc<Semaphore>> {
        let address = network(applicant.address?);
        if applicant.is_expected || self.most_of_one == 0 {
            return None;
        }
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = addresses.get(&address).and_then(Weak::upgrade) {
            return Some(known);
        }
        addresses.retain(|_, shares| shares.strong_count() > 0);
        let shares = Arc::new(Semaphore::new(self.most_of_one));
        addresses.insert(address, Arc::downgrade(&shares));
        Some(shares)
    }
}

/// The address by which slots are limited. An IPv6 customer has 2⁶⁴ addresses, so only the network
/// part counts.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::pin::Pin;

    use live::{PublisherInfo, Registry, Settings, UnixMicros};

    use super::*;

    fn slots(max_streams: usize, max_per_address: usize, reserved: usize) -> Arc<Slots> {
        let ladder = Ladder { max_streams, max_per_address, reserved, ..Ladder::default() };
        Arc::new(Slots::new(&ladder))
    }

    /// An applicant, and the reasons for which it was told to wait.
    struct Waiting {
        slot: Pin<Box<dyn Future<Output = Option<Slot>>>>,
        told: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Waiting {
        fn at(slots: &Arc<Slots>, address: &str) -> Self {
            Self::new(slots, Some(address), false)
        }

        fn new(slots: &Arc<Slots>, address: Option<&str>, is_expected: bool) -> Self {
            let address = address.map(|address| address.parse().unwrap());
            let is_own = address.is_none_or(|address| Ladder::default().is_own(address));
            let told: Arc<Mutex<Vec<_>>> = Arc::default();
            let (slots, tell) = (Arc::clone(slots), Arc::clone(&told));
            let slot = Box::pin(async move {
                let tell = |option| tell.lock().unwrap().push(option);
                slots.take(Applicant { address, is_expected, is_own }, tell).await
            });
            Self { slot, told }
        }

        fn slot(&mut self) -> Option<Slot> {
            let mut context = Context::from_waker(Waker::noop());
            match self.slot.as_mut().poll(&mut context) {
                Poll::Ready(slot) => Some(slot.unwrap()),
                Poll::Pending => None,
            }
        }

        fn told(&self) -> Vec<&'static str> {
            self.told.lock().unwrap().clone()
        }
    }

    #[test]
    fn a_stream_without_a_publisher_is_nobodys_own() {
        let registry = Registry::new(Settings::default());
        let now = UnixMicros(1_700_000_000_000_000);
        let is_own = || {
            let state = registry.stream("x").unwrap().state();
            Applicant::new(&Ladder::default(), "x", &state).is_own
        };
        for (peer, expected) in [(None, true), (Some("10.1.2.3"), true), (Some("192.0.2.1"), false)]
        {
            let peer = peer.map(|address| SocketAddr::new(address.parse().unwrap(), 1935));
            let info = PublisherInfo { peer, protocol: "test", rendition: None };
            let publisher = registry.publish("x", info, now).unwrap();
            assert_eq!(is_own(), expected, "{peer:?}");
            drop(publisher);
            assert!(!is_own(), "after {peer:?}");
        }
    }

    #[test]
    fn one_address_does_not_take_all() {
        let slots = slots(4, 2, 0);
        let mut stranger: Vec<_> = (0..8).map(|_| Waiting::at(&slots, "192.0.2.1")).collect();
        let mut had: Vec<_> = stranger.iter_mut().filter_map(Waiting::slot).collect();
        assert_eq!(had.len(), 2);
        assert_eq!(stranger[2].told(), ["max_per_address"]);
        // Who cannot wait is told the same, and takes no place of those who wait.
        let address = Some("192.0.2.1".parse().unwrap());
        let applicant = Applicant { address, is_expected: false, is_own: false };
        assert_eq!(slots.take_now(applicant).err(), Some("max_per_address"));
        // Other applicants find slots, however many wait at the first address.
        let other = Waiting::at(&slots, "192.0.2.2").slot();
        let own = Waiting::new(&slots, None, false).slot();
        assert!(other.is_some() && own.is_some());
        // All slots are taken now: a third address waits for any of them.
        let mut third = Waiting::at(&slots, "192.0.2.3");
        assert!(third.slot().is_none());
        assert_eq!(third.told(), ["max_streams"]);
        drop(other);
        assert!(third.slot().is_some());
        // A waiting applicant gets the slot that another stream of its address leaves.
        assert!(stranger[2].slot().is_none());
        had.pop();
        assert!(stranger[2].slot().is_some());
    }

    #[test]
    fn strangers_leave_slots_for_own_networks_and_expected_names() {
        let slots = Arc::new(Slots::new(&Ladder::default()));
        let mut strangers: Vec<_> =
            (0..8).map(|at| Waiting::at(&slots, &format!("192.0.2.{at}"))).collect();
        let mut had: Vec<_> = strangers.iter_mut().filter_map(Waiting::slot).collect();
        assert_eq!(had.len(), 6);
        assert_eq!(strangers[7].told(), ["max_outside"]);
        // The slots that are left are for own publishers, wherever their networks are.
        let own = Waiting::at(&slots, "10.1.2.3").slot();
        let expected = Waiting::new(&slots, Some("198.51.100.1"), true).slot();
        assert!(own.is_some() && expected.is_some());
        assert_eq!(Waiting::at(&slots, "::1").slot().map(drop), None);
        // An own publisher that leaves makes no room for strangers. A stranger that leaves does.
        drop(own);
        assert!(strangers[7].slot().is_none());
        had.pop();
        assert!(strangers[6].slot().is_some());
    }

    #[test]
    fn few_slots_are_for_anybody() {
        for most in 1..=3 {
            let slots = slots(most, 0, 0);
            let at = |at| Waiting::at(&slots, &format!("192.0.2.{at}")).slot();
            assert_eq!((0..8).filter_map(at).collect::<Vec<_>>().len(), most);
        }
    }

    #[test]
    fn expected_streams_find_a_reserved_slot() {
        let slots = slots(3, 0, 1);
        let strangers: Vec<_> =
            (0..8).filter_map(|at| Waiting::at(&slots, &format!("192.0.2.{at}")).slot()).collect();
        assert_eq!(strangers.len(), 2, "the third is kept");
        let expected = || Waiting::new(&slots, Some("192.0.2.1"), true);
        let first = expected().slot();
        assert!(first.is_some());
        let mut second = expected();
        assert!(second.slot().is_none());
        assert_eq!(second.told(), ["max_streams"]);
        // It takes whichever slot comes free.
        drop(strangers);
        assert!(second.slot().is_some());
    }

    #[test]
    fn an_address_of_ipv6_is_a_network() {
        let slots = slots(4, 1, 0);
        let first = Waiting::at(&slots, "2001:db8::1").slot();
        assert!(first.is_some());
        assert!(Waiting::at(&slots, "2001:db8::ffff:1").slot().is_none());
        assert!(Waiting::at(&slots, "2001:db8:0:1::1").slot().is_some());
        let mapped = Waiting::at(&slots, "::ffff:192.0.2.1").slot();
        assert!(mapped.is_some());
        assert!(Waiting::at(&slots, "192.0.2.1").slot().is_none());
    }

    #[test]
    fn addresses_without_a_place_are_forgotten() {
        let slots = slots(0, 1, 0);
        for at in 0..1000_u32 {
            let address = std::net::Ipv4Addr::from_bits(at).to_string();
            assert!(Waiting::at(&slots, &address).slot().is_some());
        }
        assert!(slots.addresses.lock().unwrap().len() <= 1);
    }
}
