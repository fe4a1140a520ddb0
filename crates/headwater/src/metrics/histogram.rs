//! Histograms of counts that others keep.
//!
//! They have classic buckets. The client library has native ones, but only for the protobuf format; the text format has
//! none, and it is what people read. Prometheus can make native histograms of these
//! (`convert_classic_histograms_to_nhcb`).

use std::fmt;
use std::sync::OnceLock;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::counts::{BOUNDS, Distribution};

/// A histogram of times. It is set once.
#[derive(Debug, Default)]
pub(super) struct Histogram(pub(super) OnceLock<Distribution>);

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let none = Distribution::default();
        let Distribution { buckets, micros } = self.0.get().unwrap_or(&none);
        let seconds = |micros: u64| micros as f64 / 1e6;
        let bounds = BOUNDS.iter().map(|&bound| seconds(bound)).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(buckets.iter().copied()).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(seconds(*micros), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
