//! How many connections there may be, and what became of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
pub(super) struct Gate {
    open: AtomicUsize,
    max: usize,
    per_address: Option<(NonZeroUsize, Mutex<HashMap<IpAddr, usize>>)>,
}

/// Why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Server,
    Address,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    gate: Arc<Gate>,
    address: Option<IpAddr>,
}

impl Gate {
    pub(super) fn new(max: usize, per_address: Option<NonZeroUsize>) -> Self {
        let per_address = per_address.map(|max| (max, Mutex::default()));
        Self { open: AtomicUsize::new(0), max, per_address }
    }

    /// Connections open now.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Permit, Full> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::Server);
        }
        let mut permit = Permit { gate: Arc::clone(self), address: None };
        if let Some((max, addresses)) = &self.per_address {
            let network = network(peer);
            let mut addresses = addresses.lock().unwrap_or_else(PoisonError::into_inner);
            let open = addresses.entry(network).or_insert(0);
            if *open >= max.get() {
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
    match address.to_canonical() {
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

    #[test]
    fn places_are_given_back() {
        let gate = Arc::new(Gate::new(3, NonZeroUsize::new(2)));
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
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
