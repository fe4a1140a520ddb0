use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Micros, seconds};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// A playlist or manifest as it is.
    Playlist,
    /// A playlist that the server sends once it has something new: a blocking reload (RFC 8216bis
    /// 6.2.5.2).
    Reload,
    /// The header of segments.
    Init,
    /// A segment.
    Segment,
    /// A part of a segment.
    Part,
    /// A part that the playlist has not listed yet, found by EXT-X-PRELOAD-HINT.
    Hinted,
    /// A file or stream of any length. How long it takes says nothing, so its time is not kept.
    Stream,
}

impl Asks {
    /// The kinds whose times are kept, in the order of their numbers.
    pub const TIMED: [Self; 6] =
        [Self::Playlist, Self::Reload, Self::Init, Self::Segment, Self::Part, Self::Hinted];

    /// Name of the kind in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Playlist => "playlist",
            Self::Reload => "reload",
            Self::Init => "init",
            Self::Segment => "segment",
            Self::Part => "part",
            Self::Hinted => "hinted",
            Self::Stream => "stream",
        }
    }
}

/// Number, sum and maximum of the times of a viewer's requests of one kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gauge {
    count: u32,
    /// In microseconds, capped at over an hour.
    most: u32,
    sum: Micros,
}

/// A viewer's requests by kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gauges([Gauge; Asks::TIMED.len()]);

impl Gauges {
    pub(crate) fn record(&mut self, asks: Asks, time: Micros) {
        let Some(gauge) = self.0.get_mut(asks as usize) else { return };
        gauge.count = gauge.count.saturating_add(1);
        gauge.most = gauge.most.max(u32::try_from(time).unwrap_or(u32::MAX));
        gauge.sum = gauge.sum.saturating_add(time);
    }

    pub(crate) fn report(&self) -> BTreeMap<String, RequestTime> {
        let kinds = Asks::TIMED.into_iter().zip(self.0).filter(|(_, gauge)| gauge.count > 0);
        kinds
            .map(|(asks, gauge)| {
                let time = RequestTime {
                    count: gauge.count,
                    mean: seconds(gauge.sum) / f64::from(gauge.count),
                    max: seconds(gauge.most.into()),
                };
                (asks.name().to_owned(), time)
            })
            .collect()
    }
}

/// Answered requests of one kind of a viewer. The time runs from sending the request to the last
/// byte of its answer, in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct RequestTime {
    /// How many.
    pub count: u32,
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub max: f64,
}

/// Longer times are recorded as this one, in microseconds.
const LONGEST: u64 = 1_000_000_000;

/// Times from sending a request to the last byte of its answer, in microseconds, for each kind of
/// request. They are histograms with three exact digits, in memory that does not grow.
#[derive(Debug, Clone)]
pub struct RequestTimes([Histogram<u64>; Asks::TIMED.len()]);

impl Default for RequestTimes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| {
            Histogram::new_with_max(LONGEST, 3).expect("a range and precision that exist")
        }))
    }
}

impl RequestTimes {
    /// Records a time; [`Asks::Stream`] is left out.
    pub fn record(&mut self, asks: Asks, time: Micros) {
        if let Some(histogram) = self.0.get_mut(asks as usize) {
            histogram.saturating_record(time.max(0).unsigned_abs());
        }
    }

    /// Adds the times of another one.
    pub fn add(&mut self, other: &Self) {
        for (histogram, others) in self.0.iter_mut().zip(&other.0) {
            histogram.add(others).expect("histograms of one range and precision");
        }
    }

    /// The kinds that have times, each with its histogram in microseconds.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Histogram<u64>)> {
        let kinds = Asks::TIMED.into_iter().zip(&self.0);
        kinds.filter(|(_, histogram)| !histogram.is_empty()).map(|(asks, h)| (asks.name(), h))
    }
}

/// Written as a map from a kind's name to its values, each with how often it was recorded.
impl Serialize for RequestTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(name, histogram)| {
            let values = histogram.iter_recorded();
            let pairs: Vec<(u64, u64)> = values
                .map(|value| (value.value_iterated_to(), value.count_since_last_iteration()))
                .collect();
            (name, pairs)
        }))
    }
}

impl<'de> Deserialize<'de> for RequestTimes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut times = Self::default();
        for (name, pairs) in BTreeMap::<String, Vec<(u64, u64)>>::deserialize(deserializer)? {
            let kind = Asks::TIMED.into_iter().zip(&mut times.0).find(|(a, _)| a.name() == name);
            let (_, histogram) =
                kind.ok_or_else(|| D::Error::custom(format!("no kind of request: {name}")))?;
            for (value, count) in pairs {
                histogram.saturating_record_n(value, count);
            }
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_in_order() {
        for (at, asks) in Asks::TIMED.into_iter().enumerate() {
            assert_eq!(asks as usize, at);
        }
        assert_eq!(Asks::Stream as usize, Asks::TIMED.len());
    }

    #[test]
    fn written_times_are_read_and_added() {
        let mut times = RequestTimes::default();
        for time in (0..5000).map(|n| n * n) {
            times.record(Asks::Part, time);
            times.record(Asks::Reload, 1);
            times.record(Asks::Stream, 1);
        }
        let text = serde_json::to_string(&times).unwrap();
        let read: RequestTimes = serde_json::from_str(&text).unwrap();
        let mut both = times.clone();
        both.add(&read);
        let names: Vec<_> = read.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["reload", "part"]);
        for ((_, once), (_, twice)) in times.iter().zip(both.iter()) {
            assert_eq!((once.max(), 2 * once.len()), (twice.max(), twice.len()));
            assert_eq!(once.value_at_quantile(0.9), twice.value_at_quantile(0.9));
        }
        assert!(serde_json::from_str::<RequestTimes>(r#"{"x":[]}"#).is_err());
    }

    #[test]
    fn a_viewer_keeps_count_mean_and_most() {
        let mut gauges = Gauges::default();
        gauges.record(Asks::Init, 1_000_000);
        gauges.record(Asks::Init, 3_000_000);
        let report = gauges.report();
        let init = report["init"];
        assert_eq!((report.len(), init.count, init.mean, init.max), (1, 2, 2.0, 3.0));
    }
}
