//! What each metric of a trial tells about a server: whether more or less of it is better.
//! docs/scenarios.md says what each of them is.

use crate::lab::scenario::Better;

/// What a metric tells about a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// More is better.
    More,
    /// Less is better.
    Less,
    /// Less is better, but only of servers that did the same work: the metric grows with the
    /// answers that a server gives. The costs of an answer, a client or a byte do not.
    Used,
    /// How large the load was, or how quiet the machine: nothing about the server.
    Nothing,
}

use Tells::{Less, More, Nothing, Used};

/// All metrics of trials.
const METRICS: &[(&str, Tells)] = &[
    ("behind_live_mean_ms", Less),
    ("bit_rate_kbit", More),
    ("by_date_time", Nothing),
    ("by_prft", Nothing),
    ("by_stamp", Nothing),
    ("capacity", More),
    ("clients", Nothing),
    ("connect_p99_ms", Less),
    ("cpu_percent", Used),
    ("cpu_percent_per_client", Less),
    ("delivery_p50_ms", Less),
    ("delivery_p99_ms", Less),
    ("delivery_worst_ms", Less),
    ("errors", Used),
    ("first_byte_p99_ms", Less),
    // A hinted part is asked for before it exists, so its time depends on the stream.
    ("hinted_mean_ms", Nothing),
    ("hinted_p99_ms", Nothing),
    ("hit_percent", More),
    ("in_mbit_mean", Nothing),
    // The best server has no inflexion point. `capacity` says the same and is always there.
    ("inflexion", Nothing),
    ("kb_per_second", More),
    ("kib_per_client", Used),
    ("late_p50_ms", Less),
    ("late_p99_ms", Less),
    ("latency_max_ms", Less),
    ("latency_mean_ms", Less),
    ("latency_p50_ms", Less),
    ("latency_p90_ms", Less),
    ("latency_p99_99_ms", Less),
    ("latency_p99_9_ms", Less),
    ("latency_p99_ms", Less),
    ("load_seconds", Nothing),
    ("media_kib_per_client", Nothing),
    ("memory_grown_mib", Used),
    ("memory_mib_per_client", Less),
    ("mib_per_second", More),
    ("origin_cores", Used),
    ("origin_cpu_s", Used),
    ("origin_mbit_mean", Used),
    ("origin_requests", Used),
    ("origin_requests_per_second", Used),
    ("origin_us_per_client_second", Less),
    ("other_cpu_percent", Nothing),
    ("out_mbit_mean", Nothing),
    ("out_mbit_peak", Nothing),
    ("overhead_bytes", Used),
    ("overhead_bytes_per_chunk", Less),
    ("overhead_percent", Less),
    ("part_mean_ms", Less),
    ("part_p99_ms", Less),
    ("played", More),
    ("playlist_mean_ms", Less),
    ("playlist_p99_ms", Less),
    ("receive_prunes", Used),
    ("receive_queue_drops", Used),
    ("received_bytes", Nothing),
    ("received_mean_s", More),
    // A blocking reload is answered when the stream has something new.
    ("reload_mean_ms", Nothing),
    ("reload_p99_ms", Nothing),
    ("requests", Nothing),
    ("requests_per_second", More),
    ("responses", Nothing),
    ("satisfied", More),
    ("satisfied_percent", More),
    ("segment_mean_ms", Less),
    ("segment_p99_ms", Less),
    ("sent_bytes", Nothing),
    ("served", More),
    ("served_percent", More),
    ("server_anonymous_kib_per_client", Less),
    ("server_cores", Used),
    ("server_cores_peak", Used),
    ("server_cpu_s", Used),
    ("server_cpu_s_per_gb", Less),
    ("server_idle_cores", Less),
    ("server_idle_memory_mib", Less),
    ("server_memory_kib_per_client", Less),
    ("server_memory_mib", Less),
    ("server_requests_per_cpu_s", More),
    ("server_switches", Used),
    ("server_thread_cores", Used),
    ("server_threads_sending", Used),
    ("server_us_per_client_second", Less),
    ("server_us_per_request", Less),
    ("slab_kib_per_client", Less),
    ("socket_queues_kib_per_client", Less),
    ("stall_seconds", Less),
    ("stalled", Less),
    ("stalls", Less),
    ("startup_p50_ms", Less),
    ("startup_p99_ms", Less),
    ("switches", Nothing),
    ("tcp_retransmits", Used),
    ("unfinished", Less),
    ("watched_s", Nothing),
];

/// What a metric tells; `None` for one that no load of ours has.
pub(crate) fn tells(name: &str) -> Option<Tells> {
    METRICS.iter().find(|(known, _)| *known == name).map(|(_, tells)| *tells)
}

/// The metrics by which servers that did different work may be compared, in the order of names.
pub(crate) fn compared() -> impl Iterator<Item = (&'static str, Better)> {
    METRICS.iter().filter_map(|(name, tells)| match tells {
        More => Some((*name, Better::More)),
        Less => Some((*name, Better::Less)),
        Used | Nothing => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_metric_is_known_and_no_other() {
        let text = include_str!("../../../../docs/scenarios.md");
        let section = text.split("\n## Metrics\n").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let names = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let names = names.flat_map(|line| {
            let names = line.split(" | ").next().unwrap();
            names.split(", ").map(|name| name.trim_matches('`').to_owned()).collect::<Vec<_>>()
        });
        let mut documented: Vec<String> = names
            .flat_map(|name| match name.as_str() {
                "KIND_mean_ms" | "KIND_p99_ms" => {
                    ["playlist", "reload", "segment", "part", "hinted"]
                        .map(|kind| name.replace("KIND", kind))
                        .to_vec()
                }
                _ => vec![name],
            })
            .collect();
        documented.retain(|name| !name.starts_with("latency_{"));
        let latency = ["mean", "p50", "p90", "p99", "p99_9", "p99_99", "max"];
        documented.extend(latency.map(|point| format!("latency_{point}_ms")));
        documented.sort();
        let known: Vec<&str> = METRICS.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, documented);
    }

    #[test]
    fn scenarios_agree_on_what_is_better() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/scenarios");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let scenario = crate::lab::scenario::Scenario::read(&entry.unwrap().path()).unwrap();
            for shown in scenario.tables.iter().flat_map(|table| &table.values) {
                let known = tells(&shown.metric);
                let agrees = match (known, shown.better) {
                    (Some(More), Some(better)) => better == Better::More,
                    (Some(Less | Used), Some(better)) => better == Better::Less,
                    (known, _) => known.is_some(),
                };
                assert!(agrees, "{}: {}", scenario.name, shown.metric);
                seen += usize::from(shown.better.is_some());
            }
        }
        assert!(seen > 100, "{seen}");
    }
}
