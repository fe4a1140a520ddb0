//! Limits the number of connections, in all and per address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;

/// At a fair gate, an address may have so many times the places that are free.
const SHARE: usize = 3;

/// Admits connections, or players of HLS and DASH, while the limits allow it. It is asked once for each connection, and
/// for each request of a player that is not listed.
#[derive(Debug)]
pub struct Gate {
    open: AtomicUsize,
    max: usize,
    per_address: Option<PerAddress>,
    is_fair: bool,
    /// Connections of each address whose connections are counted.
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// Limit on simultaneous connections from one address.
#[derive(Clone, Debug)]
pub struct PerAddress {
    /// Most connections from one address, or from one /64 network of IPv6.
    pub max: NonZeroUsize,
    /// Networks without this limit, such as proxies with many users.
    pub except: Vec<IpNet>,
}

/// The limit that refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The limit on all connections.
    Server,
    /// The limit on connections from one address.
    Address,
}

/// A connection's place under the limits. Dropping it frees the place.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    /// The address, if its connections are counted, and whether it has a limit of its own.
    address: Option<(IpAddr, bool)>,
}

impl Gate {
    /// A gate for at most `max` connections.
    pub fn new(max: usize, per_address: Option<PerAddress>) -> Self {
        let (open, addresses) = (AtomicUsize::new(0), Mutex::default());
        Self { open, max, per_address, is_fair: false, addresses }
    }

    /// Leaves places for others: no address, also without a limit of its own, gets more than three times the
    /// places that are free. So one alone gets three quarters of all, and `n` of them together 3`n` of 3`n` + 1 parts
    /// (the dynamic thresholds of Choudhury and Hahne, 1998).
    #[must_use]
    pub fn fair(self) -> Self {
        Self { is_fair: true, ..self }
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Admits a connection from `peer`.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Permit, Full> {
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        if open >= self.max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::Server);
        }
        let mut permit = Permit { gate: Arc::clone(self), address: None };
        let peer = peer.to_canonical();
        let is_limited =
            |limit: &&PerAddress| !limit.except.iter().any(|network| network.contains(&peer));
        let own = self.per_address.as_ref().filter(is_limited).map(|limit| limit.max.get());
        let share = self.is_fair.then(|| SHARE.saturating_mul(self.max - open));
        if let Some(most) = own.into_iter().chain(share).min() {
            let network = network(peer);
            let mut addresses = self.addresses();
            let open = addresses.entry(network).or_insert(0);
            if *open >= most {
                drop(addresses);
                return Err(Full::Address);
            }
            *open += 1;
            permit.address = Some((network, own.is_some()));
        }
        Ok(permit)
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The address or network whose connections are limited. `None` if it has no limit of its own.
    pub fn network(&self) -> Option<IpAddr> {
        self.address.filter(|(_, is_limited)| *is_limited).map(|(network, _)| network)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.open.fetch_sub(1, Ordering::Relaxed);
        let Some((address, _)) = self.address else { return };
        let mut addresses = self.gate.addresses();
        if let Some(open) = addresses.get_mut(&address) {
            *open -= 1;
            if *open == 0 {
                addresses.remove(&address);
            }
        }
    }
}

/// The unit that counts as one address: an IPv6 subscriber can use a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(max: usize, except: &[&str]) -> Arc<Gate> {
        let except = except.iter().map(|network| network.parse().unwrap()).collect();
        let per_address = PerAddress { max: NonZeroUsize::new(2).unwrap(), except };
        Arc::new(Gate::new(max, Some(per_address)))
    }

    #[test]
    fn some_networks_have_no_limit() {
        let gate = gate(100, &["127.0.0.0/8", "2001:db8::/32"]);
        for (address, others, limited) in [
            ("127.0.0.1", "127.9.9.9", false),
            ("::ffff:127.0.0.1", "127.0.0.1", false),
            ("2001:db8:1::1", "2001:db8:1::2", false),
            ("::1", "::2", true),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
        ] {
            let (address, others): (IpAddr, IpAddr) =
                (address.parse().unwrap(), others.parse().unwrap());
            let held = [address, others, others].map(|address| gate.admit(address));
            let last = held.last().unwrap().as_ref().err();
            assert_eq!(last, limited.then_some(&Full::Address), "{address}");
        }
        assert_eq!(gate.open(), 0);
    }

    #[test]
    fn places_are_given_back() {
        let gate = gate(3, &[]);
        let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let first = gate.admit(a).unwrap();
        let _second = gate.admit(a).unwrap();
        assert_eq!(gate.admit(a).unwrap_err(), Full::Address);
        let third = gate.admit(b).unwrap();
        assert_eq!(gate.admit(b).unwrap_err(), Full::Server);
        assert_eq!(gate.open(), 3);
        drop((first, third));
        gate.admit(a).unwrap();
        assert_eq!(gate.open(), 1);
        assert_eq!(gate.addresses().len(), 1);
    }

    #[test]
    fn a_fair_gate_always_has_places_for_others() {
        let except = vec!["10.0.0.0/8".parse().unwrap()];
        let per_address = PerAddress { max: NonZeroUsize::new(20).unwrap(), except };
        let gate = Arc::new(Gate::new(100, Some(per_address)).fair());
        let fill = |address: &str| {
            let address = address.parse().unwrap();
            let held: Vec<_> = std::iter::from_fn(|| gate.admit(address).ok()).collect();
            assert_eq!(gate.admit(address).unwrap_err(), Full::Address);
            held
        };
        let first = fill("10.0.0.1");
        assert_eq!((first.len(), first[0].network()), (75, None));
        // The limit of its own is below what would be its share.
        let limited = fill("192.0.2.1");
        assert_eq!(limited.len(), 19);
        assert_eq!(limited[0].network(), Some("192.0.2.1".parse().unwrap()));
        assert!(!fill("10.0.0.2").is_empty());
        // Clients that leave make room for those that have less.
        drop((first, limited));
        let held = [fill("10.0.0.3"), fill("10.0.0.4"), fill("192.0.2.2")];
        assert_eq!(held.each_ref().map(Vec::len), [75, 19, 5]);
        drop(held);
        assert!(gate.addresses().is_empty() && gate.open() == 0);
    }

    #[test]
    fn networks() {
        let of = |text: &str| network(text.parse::<IpAddr>().unwrap().to_canonical());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
