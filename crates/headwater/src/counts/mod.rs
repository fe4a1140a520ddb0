//! Counters that belong to no listener and no stream. `/metrics` shows them.

mod chosen;
mod reporters;
mod timings;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use chosen::Chosen;
use live::Delivery;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
pub use reporters::Reporters;
pub use timings::{BOUNDS, Carrier, Distribution, Loop, Timings, Wanted};

use crate::events::{Event, Events, SlowAction};
use crate::path::StreamPath;

/// What happened to viewers that read too slowly. The log names the stream and peer; the counters
/// are by delivery.
#[derive(Debug)]
pub struct SlowViewers {
    events: Arc<Events>,
    pub(crate) skipped: Family<ByDelivery, Counter>,
    pub(crate) closed: Family<Closed, Counter>,
}

/// Push viewers that were closed because of what they sent.
#[derive(Debug, Default)]
pub struct Violations(pub(crate) Family<ByCode, Counter>);

impl Violations {
    /// Counts one viewer, by the close code that it was sent (RFC 6455 7.4).
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
    /// It fell behind again and again, although it was skipped ahead.
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
    /// Has counted nothing. Tells these events.
    pub fn new(events: Arc<Events>) -> Self {
        let counts = Self { events, skipped: Family::default(), closed: Family::default() };
        // What is counted from 0 on shows the first one as a change.
        for delivery in [Delivery::Mp4, Delivery::Flv, Delivery::Rtmp, Delivery::Push] {
            let delivery = delivery.name();
            drop(counts.skipped.get_or_create(&ByDelivery { delivery }));
            for reason in ["behind", "stalled"] {
                drop(counts.closed.get_or_create(&Closed { delivery, reason }));
            }
        }
        counts
    }

    /// Counts and logs a viewer of a live stream that skips to the newest keyframe.
    pub fn skipped(&self, delivery: Delivery, stream: &str, peer: SocketAddr) {
        let by = delivery.name();
        tracing::info!(stream, %peer, delivery = by, "slow viewer skipped to the newest keyframe");
        self.skipped.get_or_create(&ByDelivery { delivery: by }).inc();
        self.tell(delivery, StreamPath::Live(stream).to_string(), peer, SlowAction::Skipped);
    }

    /// Counts a viewer of `path` that is disconnected. The caller logs it, as it knows more of the
    /// connection.
    pub fn closed(&self, delivery: Delivery, path: &str, peer: SocketAddr, why: TooSlow) {
        let (reason, action) = match why {
            TooSlow::Behind => ("behind", SlowAction::ClosedBehind),
            TooSlow::Stalled => ("stalled", SlowAction::ClosedStalled),
        };
        self.closed.get_or_create(&Closed { delivery: delivery.name(), reason }).inc();
        self.tell(delivery, path.to_owned(), peer, action);
    }

    fn tell(&self, delivery: Delivery, stream: String, peer: SocketAddr, action: SlowAction) {
        let delivery = delivery.name();
        self.events.tell(Event::SlowViewer { stream, delivery, peer: Some(peer), action });
    }
}

/// What happened to the ladder processes.
#[derive(Debug, Default)]
pub struct Ladders {
    pub(crate) running: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) skipped: AtomicU64,
}

impl Ladders {
    /// Number of processes that run now.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Number of processes that could not be started, or that ended before their stream did.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// How often frames were skipped because the process was too slow.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }
}
