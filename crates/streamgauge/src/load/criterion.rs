//! What a server must achieve: `p99<20ms`, written as its failure `p99>20ms`.

use std::str::FromStr;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use super::Outcome;
use crate::units;

/// A condition that makes a run fail, such as `p99>20ms`.
#[derive(Debug, Clone, PartialEq)]
pub struct Criterion {
    text: String,
    measure: Measure,
    above: bool,
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Measure {
    /// A quantile of the time to the last byte, in seconds.
    LastByte(Point),
    /// A quantile of the time to the first byte, in seconds.
    FirstByte(Point),
    /// Requests without a good answer.
    Errors,
    /// Requests without a good answer, as a share of all requests.
    ErrorShare,
    /// Answers per second.
    Rate,
    /// Bytes of bodies per second.
    Throughput,
    /// The share of answers with a status of 400 and above.
    Refusals,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Point {
    Quantile(f64),
    Mean,
    Max,
}

/// The result of a run for one criterion.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Verdict {
    /// The criterion as written.
    pub fail_if: String,
    /// The measured value: seconds, a share, a number, or a number per second.
    pub measured: f64,
    /// Whether the run failed this criterion.
    pub failed: bool,
}

impl FromStr for Criterion {
    type Err = String;

    /// Parses MEASURE, `>` or `<`, LIMIT. Measures: `p50`, `p99.9`, …, `mean`, `max` (time to the
    /// last byte; `first.p99` to the first byte), `errors` (a number, or a share: `1%`), `status`
    /// (share of answers of 400 and above), `rate` (answers per second), `throughput` (bytes of
    /// bodies per second: `100MB`).
    fn from_str(text: &str) -> Result<Self, String> {
        let place = text.find(['<', '>']).ok_or("no > or < in it")?;
        let (name, rest) = text.split_at(place);
        let (above, limit) = (rest.starts_with('>'), rest[1..].trim());
        let share = limit.strip_suffix('%');
        let number = |text: &str| {
            text.trim()
                .parse::<f64>()
                .ok()
                .filter(|n| n.is_finite() && *n >= 0.0)
                .ok_or_else(|| format!("{text:?} is not a number"))
        };
        let time = |text: &str| {
            units::time(text).map(|t| t.as_secs_f64()).map_err(|error| error.to_string())
        };
        let (measure, limit) = match (name.trim(), share) {
            ("errors", Some(share)) => (Measure::ErrorShare, number(share)? / 100.0),
            ("errors", None) => (Measure::Errors, number(limit)?),
            ("status", Some(share)) => (Measure::Refusals, number(share)? / 100.0),
            ("status", None) => return Err("status wants a share, such as status>1%".to_owned()),
            ("rate", None) => (Measure::Rate, number(limit)?),
            ("throughput", None) => {
                let size = units::size(limit).map_err(|error| error.to_string())?;
                (Measure::Throughput, size as f64)
            }
            (name, None) => match name.strip_prefix("first.") {
                Some(name) => (Measure::FirstByte(point(name)?), time(limit)?),
                None => (Measure::LastByte(point(name)?), time(limit)?),
            },
            (name, Some(_)) => return Err(format!("{name} is not measured in per cent")),
        };
        Ok(Self { text: text.to_owned(), measure, above, limit })
    }
}

fn point(name: &str) -> Result<Point, String> {
    match name {
        "mean" => Ok(Point::Mean),
        "max" => Ok(Point::Max),
        _ => name
            .strip_prefix('p')
            .and_then(|digits| digits.parse::<f64>().ok())
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(|percent| Point::Quantile(percent / 100.0))
            .ok_or_else(|| {
                format!("{name:?} is not p50, p99.9, mean, max, errors, status, rate or throughput")
            }),
    }
}

impl Criterion {
    /// Judges a run. A run without a single answer fails every limit on a time.
    pub fn judge(&self, outcome: &Outcome) -> Verdict {
        let total = &outcome.total;
        let counters = &total.counters;
        let per_second = |count: u64| count as f64 / outcome.elapsed.max(1e-9);
        let of = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let (measured, none) = match self.measure {
            Measure::LastByte(at) => (seconds(&total.last_byte, at), total.last_byte.is_empty()),
            Measure::FirstByte(at) => (seconds(&total.first_byte, at), total.first_byte.is_empty()),
            Measure::Errors => (counters.errors as f64, false),
            Measure::ErrorShare => (of(counters.errors, counters.requests), false),
            Measure::Rate => (per_second(counters.responses), false),
            Measure::Throughput => (per_second(counters.body_bytes), false),
            Measure::Refusals => {
                let refused = total.statuses.range(400..).map(|(_, count)| count).sum();
                (of(refused, counters.responses), false)
            }
        };
        let failed = none || if self.above { measured > self.limit } else { measured < self.limit };
        Verdict { fail_if: self.text.clone(), measured, failed }
    }

    /// Explains a failure of this criterion that the generator's own lag has caused: without the
    /// lag the run would have passed.
    pub(super) fn failed_by_lag(&self, outcome: &Outcome) -> Option<String> {
        let total = &outcome.total;
        let (Measure::LastByte(at) | Measure::FirstByte(at)) = self.measure else { return None };
        if total.prompt.is_empty() || !self.above {
            return None;
        }
        let verdict = self.judge(outcome);
        let lag = seconds(&total.last_byte, at) - seconds(&total.prompt, at);
        let by_lag = verdict.failed && verdict.measured - lag <= self.limit;
        by_lag.then(|| {
            format!("{} is so by the generator's own lag of {:.1} ms", self.text, lag * 1e3)
        })
    }
}

fn seconds(histogram: &Histogram<u64>, at: Point) -> f64 {
    let nanoseconds = match at {
        Point::Quantile(quantile) => histogram.value_at_quantile(quantile) as f64,
        Point::Mean => histogram.mean(),
        Point::Max => histogram.max() as f64,
    };
    nanoseconds / 1e9
}

#[cfg(test)]
mod tests {
    use super::super::tally::{Fault, Tally};
    use super::*;
    use crate::meter::kernel::Kernel;

    fn outcome() -> Outcome {
        let mut total = Tally::default();
        for ms in 1..=100 {
            total.counters.requests += 1;
            let status = if ms <= 2 { 503 } else { 200 };
            total.answered(status, 0, None, 500_000, ms * 1_000_000);
        }
        total.counters.requests += 25;
        for _ in 0..25 {
            total.failed(Fault::Reset, String::new);
        }
        total.counters.body_bytes = 4_000_000;
        total.settle();
        Outcome {
            lost: Vec::new(),
            total,
            workers: Vec::new(),
            agents: Vec::new(),
            late: Vec::new(),
            elapsed: 2.0,
            interrupted: false,
            ticks: Vec::new(),
            kernel: Kernel::default(),
        }
    }

    #[test]
    fn each_measure_is_compared_with_its_limit() {
        let outcome = outcome();
        for (holds, fails) in [
            ("p99>100ms", "p99>98ms"),
            ("p50 > 51ms", "p50>49ms"),
            ("first.max>600us", "first.max>400us"),
            ("mean>51ms", "mean>50ms"),
            ("errors>25", "errors>24"),
            ("errors>20%", "errors>19.9%"),
            ("status>2%", "status>1.9%"),
            ("rate<50", "rate<51"),
            ("throughput<2MB", "throughput<2001000"),
            ("p0<0.9ms", "p0<1.1ms"),
        ] {
            assert!(!holds.parse::<Criterion>().unwrap().judge(&outcome).failed, "{holds}");
            assert!(fails.parse::<Criterion>().unwrap().judge(&outcome).failed, "{fails}");
        }
    }

    #[test]
    fn a_limit_that_only_the_generators_lag_exceeds_is_told() {
        let mut outcome = outcome();
        outcome.total = Tally::default();
        for _ in 0..100 {
            // Sent 30 ms late, answered within 10 ms and 20 ms after that.
            outcome.total.answered(200, 0, Some(30_000_000), 40_000_000, 50_000_000);
        }
        let by_lag = |text: &str| text.parse::<Criterion>().unwrap().failed_by_lag(&outcome);
        assert!(by_lag("p99>25ms").unwrap().contains("lag of 30.0 ms"));
        assert!(by_lag("first.mean>15ms").is_some());
        for text in ["p99>15ms", "p99>60ms", "first.p50>5ms", "p50<60ms", "rate<1000"] {
            assert_eq!(by_lag(text), None, "{text}");
        }
    }

    #[test]
    fn a_run_without_answers_has_no_good_latency() {
        let empty = Outcome { total: Tally::default(), ..outcome() };
        assert!("p99>1h".parse::<Criterion>().unwrap().judge(&empty).failed);
        assert!(!"errors>0".parse::<Criterion>().unwrap().judge(&empty).failed);
    }

    #[test]
    fn bad_criteria_are_refused() {
        for text in [
            "",
            "p99",
            "p99=1s",
            "p101>1s",
            "px>1s",
            "p99>20",
            "p99>5%",
            "errors>x",
            "status>1",
            "errors>-1",
        ] {
            assert!(text.parse::<Criterion>().is_err(), "{text}");
        }
    }
}
