//! Which percentiles a number of values has. The 99.9th percentile of 150 requests is just the
//! slowest of them: another run would tell another. Such figures are not shown.

/// Whether at least one of so many values lies beyond a quantile (0 to 1).
pub(crate) fn has(count: u64, quantile: f64) -> bool {
    // A quantile is not exact in binary.
    count as f64 * (1.0 - quantile) >= 1.0 - 1e-6
}

/// The quantile that a name states, which ends in it: `latency_p99_9` states 0.999.
pub(crate) fn stated(name: &str) -> Option<f64> {
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)]
        .into_iter()
        .chain([("p99_9", 0.999), ("p99_99", 0.9999)])
        .find_map(|(ending, quantile)| {
            let before = name.strip_suffix(ending)?;
            (before.is_empty() || before.ends_with(['_', '/'])).then_some(quantile)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_a_value_beyond_it() {
        for (least, quantile) in [(2, 0.5), (10, 0.9), (100, 0.99), (1000, 0.999), (10_000, 0.9999)]
        {
            assert!(has(least, quantile) && !has(least - 1, quantile), "{quantile}");
        }
    }

    #[test]
    fn names_state_their_quantile_at_the_end() {
        for (name, quantile) in [
            ("p50", Some(0.5)),
            ("/last_byte/p99_9", Some(0.999)),
            ("latency_p99_99", Some(0.9999)),
            ("startup_p99", Some(0.99)),
            ("latency_mean", None),
            ("latency_p9", None),
            ("loop99", None),
        ] {
            assert_eq!(stated(name), quantile, "{name}");
        }
    }
}
