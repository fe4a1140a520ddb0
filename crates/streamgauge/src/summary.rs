//! The results of many viewers in a few figures.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;
use viewer::{End, Report, RequestTimes, Rtp, Signed};

use crate::hlog::Unit;

/// A distribution over viewers, or over requests.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Distribution {
    /// Number of viewers or requests.
    pub count: u64,
    /// Smallest value.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
}

/// A histogram of values, in millionths, with three exact digits. Its memory does not grow with the
/// number of values.
#[derive(Debug, Clone)]
pub struct Values(Signed<u64>);

impl Default for Values {
    fn default() -> Self {
        // Up to 10^12 millionths: eleven days, or a Tbit/s counted in Mbit/s.
        Self(Signed::new(1_000_000_000_000, 3).expect("a range and precision that exist"))
    }
}

impl Values {
    /// Records a value.
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and the histogram too")]
    pub fn record(&mut self, value: f64) {
        self.0.record((value * 1e6).round() as i64);
    }

    /// The histogram, in millionths. Values below 0 count as 0: HdrHistogram's files have none below.
    pub fn histogram(&self) -> &Histogram<u64> {
        self.0.clamped()
    }

    /// Summarises the values; `None` if there are none.
    #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
    pub fn read(&self) -> Option<Distribution> {
        let at = |quantile| self.0.at(quantile) as f64 / 1e6;
        (self.0.count() > 0).then(|| Distribution {
            count: self.0.count(),
            min: self.0.min() as f64 / 1e6,
            mean: self.0.mean() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: self.0.max() as f64 / 1e6,
        })
    }
}

/// A sum of values that are not negative, in billionths. Reports of several processes come in any
/// order, and a sum of fractions would differ in its last digits from order to order: this one does not.
#[derive(Debug, Default, Clone, Copy)]
struct Total(u128);

impl Total {
    /// Adds a value. Values below 0, and those that are no numbers, count as 0.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    fn add(&mut self, value: f64) {
        // A report may come from another machine, with any number.
        self.0 = self.0.saturating_add((value * 1e9).round() as u128);
    }

    /// The sum.
    #[expect(clippy::cast_precision_loss, reason = "to the precision of the result")]
    fn read(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// The results of viewers. Times are in seconds, bit rates in Mbit/s.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Viewers {
    /// Viewers that have reported.
    pub reported: u64,
    /// Viewers that got media for at least the required share of the required time.
    pub satisfied: u64,
    /// Viewers that started to play.
    pub played: u64,
    /// Viewers that stalled.
    pub stalled: u64,
    /// Stalls of all viewers.
    pub stalls: u64,
    /// Time that all viewers together spent in stalls.
    pub stall_seconds: f64,
    /// Time that all viewers together watched, in seconds.
    #[serde(default)]
    pub watched_seconds: f64,
    /// Time from when a viewer should join until it joined. The viewers of a batch join one after
    /// the other, as fast as this machine makes connections. No other figure includes this time.
    pub join_delay: Option<Distribution>,
    /// Time from joining to playing.
    pub startup: Option<Distribution>,
    /// Time from joining to the first byte of media.
    pub first_media: Option<Distribution>,
    /// Media received.
    pub received: Option<Distribution>,
    /// Bits of media received, divided by the time watched.
    pub bit_rate: Option<Distribution>,
    /// Mean bit rate over all viewers of the plan. Those that failed, got nothing, or whose result
    /// is unknown, count as 0.
    pub bit_rate_all_mean: f64,
    /// Mean time from capture to arrival of each viewer.
    pub delivery: Option<Distribution>,
    /// The time from capture to arrival within which 99 % of the media of each viewer arrived.
    #[serde(default)]
    pub delivery_p99: Option<Distribution>,
    /// Mean time from capture to the playhead of each viewer.
    pub behind_live: Option<Distribution>,
    /// Viewers by the clock that told when their media were captured: `stamp`, `prft`, `date-time`.
    /// Latencies by different clocks do not compare.
    #[serde(default)]
    pub clocks: BTreeMap<String, u64>,
    /// Largest delay of each viewer, compared with its fastest media.
    pub late: Option<Distribution>,
    /// Viewers that ended with an error, by kind.
    pub errors: BTreeMap<String, u64>,
    /// Troubles by kind, including those that viewers got over.
    pub troubles: BTreeMap<String, u64>,
    /// Descriptions of some errors.
    pub examples: Vec<String>,
    /// Access units checked.
    pub verified_samples: u64,
    /// Access units found in the reference.
    pub matched: u64,
    /// Access units of the reference that did not come.
    pub missing: u64,
    /// Packets of media, if media came by RTP.
    pub rtp: Option<Rtp>,
    /// Media bytes.
    pub media_bytes: u64,
    /// Other bytes.
    pub overhead_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Requests.
    pub requests: u64,
    /// Time from sending a request to the last byte of its answer, by what it asked for:
    /// `playlist`, `reload` (blocking), `init`, `segment`, `part`, `hinted` (a part before the
    /// playlist listed it).
    pub requests_by_kind: BTreeMap<String, Distribution>,
    /// Switches of rendition.
    pub switches: u64,
}

/// How many errors are described.
const EXAMPLES: usize = 10;

/// Adds up viewers, in memory that does not grow with their number.
#[derive(Debug)]
pub struct Sum {
    /// Seconds of media that a viewer must receive.
    wanted: f64,
    /// Mbit/s that a viewer must receive to count as served.
    needed: f64,
    served: u32,
    /// How many viewers the plan has.
    asked: u32,
    /// Sum over the viewers that reported, in Mbit/s.
    bit_rates: Total,
    /// Seconds that the viewers spent in stalls.
    stalled: Total,
    /// Seconds that the viewers watched.
    watched: Total,
    viewers: Viewers,
    join_delay: Values,
    startup: Values,
    first_media: Values,
    received: Values,
    bit_rate: Values,
    delivery: Values,
    delivery_p99: Values,
    behind_live: Values,
    late: Values,
    /// Times of requests, by kind.
    requests: BTreeMap<&'static str, Values>,
}

impl Sum {
    /// Makes an empty sum for `asked` viewers. Those with `wanted` seconds of media count as
    /// satisfied.
    pub fn new(wanted: f64, asked: u32) -> Self {
        Self {
            wanted,
            needed: 0.0,
            served: 0,
            asked,
            bit_rates: Total::default(),
            stalled: Total::default(),
            watched: Total::default(),
            viewers: Viewers {
                reported: 0,
                satisfied: 0,
                played: 0,
                stalled: 0,
                stalls: 0,
                stall_seconds: 0.0,
                watched_seconds: 0.0,
                join_delay: None,
                startup: None,
                first_media: None,
                received: None,
                bit_rate: None,
                bit_rate_all_mean: 0.0,
                delivery: None,
                delivery_p99: None,
                behind_live: None,
                clocks: BTreeMap::new(),
                late: None,
                errors: BTreeMap::new(),
                troubles: BTreeMap::new(),
                examples: Vec::new(),
                verified_samples: 0,
                matched: 0,
                missing: 0,
                rtp: None,
                media_bytes: 0,
                overhead_bytes: 0,
                sent_bytes: 0,
                requests: 0,
                requests_by_kind: BTreeMap::new(),
                switches: 0,
            },
            join_delay: Values::default(),
            startup: Values::default(),
            first_media: Values::default(),
            received: Values::default(),
            bit_rate: Values::default(),
            delivery: Values::default(),
            delivery_p99: Values::default(),
            behind_live: Values::default(),
            late: Values::default(),
            requests: BTreeMap::new(),
        }
    }

    /// Sets the bit rate, in Mbit/s, from which on viewers count as served.
    pub fn needing(self, bit_rate: f64) -> Self {
        Self { needed: bit_rate, ..self }
    }

    /// Viewers that did not fail, and got media at the bit rate needed.
    pub fn served(&self) -> u32 {
        self.served
    }

    /// Whether a viewer got enough media, and none of them broken.
    fn is_satisfied(&self, report: &Report) -> bool {
        report.end != End::Error && report.received >= self.wanted
    }

    /// Adds a viewer that joined this many seconds late.
    pub fn add(&mut self, report: &Report, join_delay: f64) {
        let satisfied = self.is_satisfied(report);
        let all = &mut self.viewers;
        all.reported += 1;
        all.satisfied += u64::from(satisfied);
        all.played += u64::from(report.startup.is_some());
        all.stalled += u64::from(report.stalls > 0);
        all.stalls += u64::from(report.stalls);
        self.stalled.add(report.stalled);
        self.watched.add(report.watched);
        all.media_bytes += report.media_bytes;
        all.overhead_bytes += report.overhead_bytes;
        all.sent_bytes += report.sent_bytes;
        all.requests += u64::from(report.requests);
        all.switches += u64::from(report.switches);
        if let Some(verified) = &report.verified {
            all.verified_samples += verified.samples;
            all.matched += verified.matched;
            all.missing += verified.missing;
        }
        if let Some(rtp) = &report.rtp {
            all.rtp.get_or_insert_default().add(rtp);
        }
        if let Some(error) = &report.error {
            *all.errors.entry(error.kind.name().to_owned()).or_default() += 1;
            if all.examples.len() < EXAMPLES {
                all.examples.push(format!(
                    "viewer {}: {}: {} ({})",
                    report.id, error.kind, error.what, error.place
                ));
            }
        }
        if let Some(clock) = report.clock {
            *all.clocks.entry(clock.name().to_owned()).or_default() += 1;
        }
        for (kind, count) in &report.troubles {
            *all.troubles.entry(kind.clone()).or_default() += u64::from(*count);
        }
        let record = |values: &mut Values, value: Option<f64>| {
            if let Some(value) = value {
                values.record(value);
            }
        };
        record(&mut self.join_delay, Some(join_delay));
        record(&mut self.startup, report.startup);
        record(&mut self.first_media, report.first_media);
        record(&mut self.received, Some(report.received));
        record(&mut self.bit_rate, bit_rate(report));
        let failed = report.end == End::Error;
        let rate = bit_rate(report).filter(|_| !failed).unwrap_or_default();
        self.bit_rates.add(rate);
        self.served += u32::from(!failed && rate >= self.needed);
        record(&mut self.delivery, report.delivery.map(|latency| latency.mean));
        record(&mut self.delivery_p99, report.delivery_p99);
        record(&mut self.behind_live, report.behind_live.map(|latency| latency.mean));
        record(&mut self.late, report.late.map(|latency| latency.max));
    }

    /// Adds the times of requests.
    pub fn requests(&mut self, times: &RequestTimes) {
        for (kind, histogram) in times.iter() {
            let values = self.requests.entry(kind).or_default();
            values.0.add(histogram).expect("what requests may take is within the range");
        }
    }

    /// The histograms with names and units. Their values are millionths of the units of the
    /// figures.
    pub fn histograms(&self) -> Vec<(String, &Values, Unit)> {
        let over_viewers = [
            ("join_delay", &self.join_delay),
            ("startup", &self.startup),
            ("first_media", &self.first_media),
            ("received", &self.received),
            ("bit_rate", &self.bit_rate),
            ("delivery", &self.delivery),
            ("delivery_p99", &self.delivery_p99),
            ("behind_live", &self.behind_live),
            ("late", &self.late),
        ];
        let requests =
            self.requests.iter().map(|(kind, values)| (format!("request-{kind}"), values));
        let of = |(name, values)| {
            let is_rate = name == "bit_rate";
            let unit = if is_rate { Unit::BitsPerSecond } else { Unit::Microseconds };
            (name, values, unit)
        };
        over_viewers
            .map(|(name, values)| (name.to_owned(), values))
            .into_iter()
            .chain(requests)
            .map(of)
            .collect()
    }

    /// Returns the figures.
    pub fn finish(&self) -> Viewers {
        Viewers {
            stall_seconds: self.stalled.read(),
            watched_seconds: self.watched.read(),
            join_delay: self.join_delay.read(),
            startup: self.startup.read(),
            first_media: self.first_media.read(),
            received: self.received.read(),
            bit_rate: self.bit_rate.read(),
            bit_rate_all_mean: self.bit_rates.read() / f64::from(self.asked.max(1)),
            delivery: self.delivery.read(),
            delivery_p99: self.delivery_p99.read(),
            behind_live: self.behind_live.read(),
            late: self.late.read(),
            requests_by_kind: (self.requests.iter())
                .filter_map(|(kind, values)| Some(((*kind).to_owned(), values.read()?)))
                .collect(),
            ..self.viewers.clone()
        }
    }
}

/// Mbit/s of media over the time watched.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
pub fn bit_rate(report: &Report) -> Option<f64> {
    (report.watched > 0.0).then(|| report.media_bytes as f64 * 8e-6 / report.watched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_three_digits() {
        let mut values = Values::default();
        assert!(values.read().is_none());
        for value in 1..=1000 {
            values.record(f64::from(value) / 1000.0);
        }
        let read = values.read().unwrap();
        for (found, right) in
            [(read.min, 0.001), (read.p50, 0.5), (read.p90, 0.9), (read.p99, 0.99), (read.max, 1.0)]
        {
            assert!((found - right).abs() <= right * 0.001, "{found} for {right}");
        }
        assert!((read.mean - 0.5005).abs() < 0.001, "{read:?}");
        // Latencies by two clocks that disagree.
        let mut values = Values::default();
        [-1.0, -0.5, 0.25].into_iter().for_each(|value| values.record(value));
        let read = values.read().unwrap();
        for (found, right) in [(read.min, -1.0), (read.p50, -0.5), (read.p99, 0.25)] {
            assert!((found - right).abs() <= 0.001, "{found} for {right}");
        }
        assert!((read.mean + 1.25 / 3.0).abs() < 0.001, "{read:?}");
    }

    #[test]
    fn totals_do_not_depend_on_the_order() {
        // The first three sum up to 0.6 or to 0.6000000000000001 as fractions.
        let values = [0.1, 0.2, 0.3, 1e9];
        let sum = |values: &mut dyn Iterator<Item = f64>| {
            let mut total = Total::default();
            values.for_each(|value| total.add(value));
            total.read()
        };
        let right = sum(&mut values.into_iter());
        assert_eq!(right.to_bits(), 1_000_000_000.6_f64.to_bits(), "{right}");
        assert_eq!(sum(&mut values.into_iter().rev()).to_bits(), right.to_bits());
        assert_eq!(sum(&mut [f64::NAN, -1.0].into_iter()).to_bits(), 0.0_f64.to_bits());
        assert!(sum(&mut [f64::MAX, f64::MAX].into_iter()) > 1e29);
    }

    fn report(id: u32, watched: f64, media_bytes: u64) -> Report {
        let mut stats = viewer::Viewer::join(&lane(), (id, 0), false, None).leave(None).report();
        stats.watched = watched;
        stats.media_bytes = media_bytes;
        stats
    }

    fn lane() -> std::rc::Rc<viewer::Lane> {
        let options = viewer::Options::default();
        viewer::Lane::new(viewer::Clock::start(), options, viewer::Totals::default().into())
    }

    #[test]
    fn viewers_without_anything_or_without_a_result_count_as_none_in_the_mean_of_all() {
        // 2 Mbit/s, 1 Mbit/s, nothing in ten seconds, nothing and no time, one that failed, and one that is lost.
        let mut sum = Sum::new(0.0, 6);
        for (id, watched, bytes) in
            [(0, 10.0, 2_500_000), (1, 8.0, 1_000_000), (2, 10.0, 0), (3, 0.0, 0)]
        {
            sum.add(&report(id, watched, bytes), 0.25);
        }
        let clock = Some(viewer::playback::CaptureClock::DateTime);
        let failed = Report { end: End::Error, clock, ..report(4, 0.05, 2_500_000) };
        sum.add(&failed, 0.25);
        assert_eq!(sum.served(), 4);
        let read = sum.finish();
        assert!((read.bit_rate_all_mean - 0.5).abs() < 1e-9, "{read:?}");
        assert!((read.watched_seconds - 28.05).abs() < 1e-9, "{read:?}");
        let (rate, delay) = (read.bit_rate.unwrap(), read.join_delay.unwrap());
        assert_eq!((rate.count, delay.count), (4, 5));
        assert!((delay.max - 0.25).abs() < 0.001, "{read:?}");
        assert_eq!(read.clocks, BTreeMap::from([("date-time".to_owned(), 1)]));
    }

    #[test]
    fn memory_does_not_grow_with_what_is_recorded() {
        let mut values = Values::default();
        let before = values.histogram().distinct_values();
        for value in 0..100_000 {
            values.record(f64::from(value) * 1e-3 + f64::from(value % 977));
        }
        values.record(f64::MAX);
        assert_eq!(values.histogram().distinct_values(), before);
        assert!(before * size_of::<u64>() < 300 << 10, "{before} counters");
    }
}
