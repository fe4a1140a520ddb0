//! Figures that viewers report of themselves (CMCD), by stream.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use live::sessions::Spread;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{ByStream, whole};
use crate::Origin;
use crate::path::StreamPath;

/// Labels of a figure about a stream's viewers: half of them (`median`) or one in ten (`bad`) are worse off.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfViewers {
    stream: String,
    viewers: &'static str,
}

type Spreads = Family<OfViewers, Gauge<f64, AtomicU64>>;

/// Collects these metrics.
pub(super) fn register(registry: &mut Registry, origin: &Origin) {
    let now = origin.now();
    let live = origin.registry.streams().into_iter().filter_map(|stream| {
        Some((StreamPath::Live(stream.name()).to_string(), stream.quality(now)?))
    });
    let titles = origin.title_viewers.quality(now).into_iter();
    let titles = titles.map(|(title, told)| (title.to_string(), told));
    let [viewers, urgent] = [(); 2].map(|()| Family::<ByStream, Gauge>::default());
    let stalls = Family::<ByStream, Counter>::default();
    let [buffer, startup] = [(); 2].map(|()| Spreads::default());
    let [throughput, bitrate] = [(); 2].map(|()| Spreads::default());
    for (stream, told) in live.chain(titles) {
        let set = |spreads: &Spreads, part, value| {
            spreads.get_or_create(&OfViewers { stream: stream.clone(), viewers: part }).set(value);
        };
        let seconds = |spreads, told: Option<Spread<Duration>>| {
            if let Some(Spread { median, bad }) = told {
                set(spreads, "median", median.as_secs_f64());
                set(spreads, "bad", bad.as_secs_f64());
            }
        };
        let bits = |spreads, told: Option<Spread<u64>>| {
            if let Some(Spread { median, bad }) = told {
                set(spreads, "median", median as f64);
                set(spreads, "bad", bad as f64);
            }
        };
        seconds(&buffer, told.buffer);
        seconds(&startup, told.startup);
        bits(&throughput, told.throughput);
        bits(&bitrate, told.bitrate);
        let by = ByStream { stream: stream.clone() };
        viewers.get_or_create(&by).set(whole(told.viewers as u64));
        urgent.get_or_create(&by).set(whole(told.urgent as u64));
        stalls.get_or_create(&by).inc_by(told.stalls);
    }
    let help = "Viewers now whose players tell of themselves (CMCD)";
    registry.register("quality_viewers", help, viewers);
    let help = "Those of them who start, seek or have run out of media";
    registry.register("quality_urgent", help, urgent);
    let help = "Times the player of such a viewer ran out of media";
    registry.register("quality_stalls", help, stalls);
    let rate = || Unit::Other("bits_per_second".to_owned());
    for (name, help, unit, spreads) in [
        ("quality_buffer", "Media ahead of the playhead", Unit::Seconds, buffer),
        (
            "quality_startup",
            "Time from the wish to play to the first frame",
            Unit::Seconds,
            startup,
        ),
        ("quality_throughput", "Throughput that players measured", rate(), throughput),
        ("quality_bitrate", "Bitrate of what viewers play", rate(), bitrate),
    ] {
        registry.register_with_unit(name, help, unit, spreads);
    }
}
