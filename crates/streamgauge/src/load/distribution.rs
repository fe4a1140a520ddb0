//! A summary of many times.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// A distribution of times in seconds. Each is exact to a thousandth of its value.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "percentiles are named by themselves")]
pub struct Distribution {
    /// How many values.
    pub count: u64,
    pub min: f64,
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub max: f64,
}

impl Distribution {
    /// Reads a histogram of nanoseconds; `None` if it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e9;
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            min: histogram.min() as f64 / 1e9,
            mean: histogram.mean() / 1e9,
            deviation: histogram.stdev() / 1e9,
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: histogram.max() as f64 / 1e9,
        })
    }
}
