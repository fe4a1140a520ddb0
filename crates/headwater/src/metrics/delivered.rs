//! How fast answers are, and how much is sent and received.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::histogram::Histogram;
use crate::Origin;
use crate::counts::{Carrier, Wanted};
use crate::sessions::Doing;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDelivery {
    delivery: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByProtocol {
    protocol: &'static str,
}

/// Labels of a figure about players: half of them (`median`) or one in ten (`bad`) are worse off.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPlayers {
    delivery: &'static str,
    viewers: &'static str,
}

/// Collects these metrics.
pub(super) fn register(registry: &mut Registry, origin: &Origin) {
    let answers = Family::<ByKind, Histogram>::default();
    for wanted in Wanted::ALL {
        let times = origin.timings.answers(wanted);
        let _ = answers.get_or_create(&ByKind { kind: wanted.name() }).0.set(times);
    }
    let help = "Time from a request to the beginning of its answer";
    registry.register_with_unit("http_answer", help, Unit::Seconds, answers);
    let delays = Histogram::default();
    let _ = delays.0.set(origin.timings.delays());
    let help = "Time from a part's publication to the answer of a request that waited for it";
    registry.register_with_unit("live_edge_delay", help, Unit::Seconds, delays);

    let sent = Family::<ByDelivery, Counter>::default();
    for carrier in Carrier::ALL {
        let bytes = origin.timings.sent(carrier);
        sent.get_or_create(&ByDelivery { delivery: carrier.name() }).inc_by(bytes);
    }
    let received = Family::<ByProtocol, Counter>::default();
    let figures = origin.sessions.figures();
    for ((doing, by), bytes) in figures.bytes {
        match doing {
            Doing::Play => sent.get_or_create(&ByDelivery { delivery: by }).inc_by(bytes),
            Doing::Publish => received.get_or_create(&ByProtocol { protocol: by }).inc_by(bytes),
        };
    }
    let help = "Bytes of media and playlists sent to viewers, by delivery";
    registry.register_with_unit("sent", help, Unit::Bytes, sent);
    let help = "Bytes of media received from publishers, by protocol";
    registry.register_with_unit("received", help, Unit::Bytes, received);

    let behind = Family::<OfPlayers, Gauge<f64, AtomicU64>>::default();
    for (delivery, mut millis) in figures.behind {
        millis.sort_unstable_by(|a, b| b.cmp(a));
        for (viewers, at) in [("median", millis.len() / 2), ("bad", millis.len() / 10)] {
            if let Some(&millis) = millis.get(at) {
                let by = OfPlayers { delivery, viewers };
                behind.get_or_create(&by).set(f64::from(millis) / 1000.0);
            }
        }
    }
    let help = "How far what players were sent is behind the newest media";
    registry.register_with_unit("player_lag", help, Unit::Seconds, behind);
}
