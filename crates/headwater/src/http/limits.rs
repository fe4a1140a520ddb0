//! How many connections there may be, and what became of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;

/// What a server has done since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections open now.
    pub open: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed at once because a limit was reached.
    pub refused: u64,
    /// Requests the media plane answered.
    pub requests: u64,
    /// Requests refused as malformed, too large or too slow.
    pub bad_requests: u64,
    /// Connections handed to the control plane.
    pub handed_over: u64,
    /// TLS handshakes that failed or took too long.
    pub tls_failed: u64,
    /// Connections that speak HTTP/2.
    pub http2: u64,
    /// Connections closed because the peer took nothing for too long, and responses of HTTP/2.
    pub stalled: u64,
    /// Bytes the media plane sent, heads included, as they were before encryption; not on
    /// connections handed to the control plane, but all of those that speak HTTP/2.
    pub bytes_sent: u64,
    /// Those of them that went from a file's page cache to the socket without being copied.
    pub file_bytes: u64,
    /// Times something to be sent from a file was not in memory, and was read in on a blocking
    /// thread first.
    pub cold_reads: u64,
}

/// The counters of all workers, to be read from anywhere.
#[derive(Debug)]
pub struct Counters {
    gate: Arc<Gate>,
    workers: Box<[Tally]>,
}

impl Counters {
    pub(super) fn new(gate: Arc<Gate>, workers: usize) -> Self {
        Self { gate, workers: (0..workers).map(|_| Tally::default()).collect() }
    }

    /// Each figure is right, the set of them is of about the same moment.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { open: self.gate.open() as u64, ..Totals::default() };
        for worker in &self.workers {
            totals.accepted += worker.accepted.load(Ordering::Relaxed);
            totals.refused += worker.refused.load(Ordering::Relaxed);
            totals.requests += worker.requests.load(Ordering::Relaxed);
            totals.bad_requests += worker.bad_requests.load(Ordering::Relaxed);
            totals.handed_over += worker.handed_over.load(Ordering::Relaxed);
            totals.tls_failed += worker.tls_failed.load(Ordering::Relaxed);
            totals.http2 += worker.http2.load(Ordering::Relaxed);
            totals.stalled += worker.stalled.load(Ordering::Relaxed);
            totals.bytes_sent += worker.bytes_sent.load(Ordering::Relaxed);
            totals.file_bytes += worker.file_bytes.load(Ordering::Relaxed);
            totals.cold_reads += worker.cold_reads.load(Ordering::Relaxed);
        }
        totals
    }

    /// Those of one worker, which alone writes them.
    pub(super) fn worker(&self, index: usize) -> &Tally {
        &self.workers[index]
    }
}

/// One worker's counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Tally {
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) bad_requests: AtomicU64,
    pub(super) handed_over: AtomicU64,
    pub(super) tls_failed: AtomicU64,
    pub(super) http2: AtomicU64,
    pub(super) stalled: AtomicU64,
    pub(super) bytes_sent: AtomicU64,
    pub(super) file_bytes: AtomicU64,
    pub(super) cold_reads: AtomicU64,
}

/// A worker's counters, for what cannot borrow them.
#[derive(Clone, Debug)]
pub(super) struct OwnTally {
    counters: Arc<Counters>,
    worker: usize,
}

impl OwnTally {
    pub(super) fn new(counters: &Arc<Counters>, worker: usize) -> Self {
        Self { counters: Arc::clone(counters), worker }
    }
}

impl Deref for OwnTally {
    type Target = Tally;

    fn deref(&self) -> &Tally {
        self.counters.worker(self.worker)
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Lets connections in while there are few enough. Taken per connection, never per request.
#[derive(Debug)]
pub(crate) struct Gate {
    open: AtomicUsize,
    max: usize,
    per_address: Option<(PerAddress, Mutex<HashMap<IpAddr, usize>>)>,
}

/// How many connections there may be from one address at a time.
#[derive(Clone, Debug)]
pub struct PerAddress {
    /// So many; from one /64 network of IPv6.
    pub max: NonZeroUsize,
    /// Not from these networks: proxies have many users.
    pub except: Vec<IpNet>,
}

/// Why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Server,
    Address,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    address: Option<IpAddr>,
}

impl Gate {
    pub(crate) fn new(max: usize, per_address: Option<PerAddress>) -> Self {
        let per_address = per_address.map(|max| (max, Mutex::default()));
        Self { open: AtomicUsize::new(0), max, per_address }
    }

    /// Connections open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Permit, Full> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::Server);
        }
        let mut permit = Permit { gate: Arc::clone(self), address: None };
        let peer = peer.to_canonical();
        if let Some((limit, addresses)) = &self.per_address
            && !limit.except.iter().any(|network| network.contains(&peer))
        {
            let network = network(peer);
            let mut addresses = addresses.lock().unwrap_or_else(PoisonError::into_inner);
            let open = addresses.entry(network).or_insert(0);
            if *open >= limit.max.get() {
                drop(addresses);
                return Err(Full::Address);
            }
            *open += 1;
            permit.address = Some(network);
        }
        Ok(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.open.fetch_sub(1, Ordering::Relaxed);
        let (Some(address), Some((_, addresses))) = (self.address, &self.gate.per_address) else {
            return;
        };
        let mut addresses = addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = addresses.get_mut(&address) {
            *open -= 1;
            if *open == 0 {
                addresses.remove(&address);
            }
        }
    }
}

/// What counts as one address: an IPv6 subscriber has a whole /64 to choose from.
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
        let (_, addresses) = gate.per_address.as_ref().unwrap();
        assert_eq!(addresses.lock().unwrap().len(), 1);
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
