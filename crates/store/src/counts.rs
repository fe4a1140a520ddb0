use std::sync::atomic::{AtomicU64, Ordering};

/// What happened since the start. All counters only rise.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests for what is known of an object.
    pub heads: Counter,
    /// Requests for names.
    pub lists: Counter,
    /// Requests for bytes.
    pub gets: Counter,
    /// Requests that failed, other than for an object that does not exist.
    pub errors: Counter,
    /// Bytes of objects that were fetched.
    pub bytes: Counter,
    /// Blocks that a viewer needed and that were here.
    pub hits: Counter,
    /// Blocks that a viewer needed and that were not here yet.
    pub misses: Counter,
    /// Blocks that made room for others.
    pub evictions: Counter,
    /// Blocks that were damaged on the disk, and fetched again.
    pub damaged: Counter,
}

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The number now.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }
}
