//! Counters that belong to no listener and no stream. `/metrics` shows them.

mod chosen;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

pub use chosen::Chosen;
use live::Delivery;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// What became of viewers that read too slowly: told in the log by stream and peer, counted by
/// delivery.
#[derive(Debug, Default)]
pub struct SlowViewers {
    pub(crate) skipped: Family<ByDelivery, Counter>,
    pub(crate) closed: Family<Closed, Counter>,
}

/// Push viewers that were closed for what they sent.
#[derive(Debug, Default)]
pub struct Violations(pub(crate) Family<ByCode, Counter>);

impl Violations {
    /// Counts one, by the close code it was told (RFC 6455 7.4).
    pub fn count(&self, code: u16) {
        self.0.get_or_create(&ByCode { code }).inc();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByCode {
    code: u16,
}

/// Why a slow viewer was disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooSlow {
    /// It fell behind again and again, in spite of being skipped ahead.
    Behind,
    /// It accepted no byte for too long.
    Stalled,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByDelivery {
    delivery: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Closed {
    delivery: &'static str,
    reason: &'static str,
}

impl SlowViewers {
    /// A viewer goes on at the newest keyframe.
    pub fn skipped(&self, delivery: Delivery, stream: &str, peer: SocketAddr) {
        let by = delivery.name();
        tracing::info!(stream, %peer, delivery = by, "slow viewer skipped to the newest keyframe");
        self.skipped.get_or_create(&ByDelivery { delivery: by }).inc();
    }

    /// A viewer is disconnected. The caller logs it, with what else it knows of the connection.
    pub fn closed(&self, delivery: Delivery, why: TooSlow) {
        let reason = match why {
            TooSlow::Behind => "behind",
            TooSlow::Stalled => "stalled",
        };
        self.closed.get_or_create(&Closed { delivery: delivery.name(), reason }).inc();
    }
}

/// What became of ladders.
#[derive(Debug, Default)]
pub struct Ladders {
    pub(crate) running: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) skipped: AtomicU64,
}

impl Ladders {
    /// Processes now.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Processes that could not be started, or ended before their stream did.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Times that frames were skipped because they were not made fast enough.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }
}
