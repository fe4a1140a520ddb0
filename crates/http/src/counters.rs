//! Counters of connections, requests and bytes.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::net::Gate;

/// Everything that a server has done since it was started.
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
    /// Connections closed, and responses of HTTP/2 ended, because the peer took no byte for too
    /// long.
    pub stalled: u64,
    /// Bytes that the media plane sent, with heads, counted before encryption. Connections handed
    /// to the control plane are not counted, but all HTTP/2 connections are.
    pub bytes_sent: u64,
    /// Those of these bytes that went from a file's page cache to the socket without a copy.
    pub file_bytes: u64,
    /// How often bytes of a file were not in memory and were first read in on a blocking thread.
    pub cold_reads: u64,
}

/// The counters of all workers. They can be read from any thread.
#[derive(Debug)]
pub struct Counters {
    gate: Arc<Gate>,
    workers: Box<[Tally]>,
}

impl Counters {
    /// Counters of `workers` workers, and of the connections that `gate` admits.
    pub fn new(gate: Arc<Gate>, workers: usize) -> Self {
        Self { gate, workers: (0..workers).map(|_| Tally::default()).collect() }
    }

    /// Sums of all workers. Each number is exact, but they are not all from the same moment.
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

    /// The counters of one worker, the only one that writes them.
    pub(crate) fn worker(&self, index: usize) -> &Tally {
        &self.workers[index]
    }
}

/// One worker's counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) bad_requests: AtomicU64,
    pub(crate) handed_over: AtomicU64,
    pub(crate) tls_failed: AtomicU64,
    pub(crate) http2: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) file_bytes: AtomicU64,
    pub(crate) cold_reads: AtomicU64,
}

/// A worker's counters, for code that cannot borrow them.
#[derive(Clone, Debug)]
pub(crate) struct OwnTally {
    counters: Arc<Counters>,
    worker: usize,
}

impl OwnTally {
    pub(crate) fn new(counters: &Arc<Counters>, worker: usize) -> Self {
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
pub(crate) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
