//! A run with everything that a report can show: the tables and figures of all five studies,
//! saturated and failed trials, absent peers, and names from hostile people.

use std::path::Path;

use crate::fixture::{Folder, HOSTILE, Noise, histogram, meter, trial};

pub const SCENARIO: &str = include_str!("rich.toml");

pub const PEERS: [(&str, &str, &str); 5] = [
    ("nginx-rtmp", "nginx-rtmp", "nginx version: nginx/1.22.1"),
    ("headwater", "Headwater", "headwater 0.1.0"),
    ("node", "Node.js", "v20.11.0"),
    ("threadpool", "Thread pool", "1.0"),
    ("hostile", HOSTILE, "</style><b>1.0"),
];

/// Writes the run.
pub fn write(path: &Path, scale: f64) -> Folder {
    let folder = Folder::new(path, SCENARIO, scale, &PEERS);
    let mut run = folder.read_run();
    run.absent.insert("deno".to_owned(), "no deno in PATH".to_owned());
    run.warnings.push("perf is not allowed here: no profiles".to_owned());
    folder.run(&run);
    runs(&folder);
    pull(&folder);
    rates(&folder);
    longer(&folder);
    folder
}

/// The clients of a study over RTMP, measured once a second.
fn runs(folder: &Folder) {
    for clients in [400.0, 800.0, 1200.0] {
        for duration in [60.0, 300.0, 600.0] {
            for (index, peer) in ["nginx-rtmp", "headwater"].into_iter().enumerate() {
                let lost = if index == 0 { (clients * duration / 4000.0_f64).floor() } else { 0.0 };
                let of =
                    [("batches", clients / 50.0), ("clients", clients), ("duration", duration)];
                let metrics = [
                    ("satisfied", clients - lost),
                    ("kib_per_client", 51_518.0 / (index + 1) as f64),
                ];
                let mut one = trial("runs", &of, peer, 1, &metrics);
                if peer == "nginx-rtmp" && clients == 1200.0 && duration == 600.0 {
                    one.saturated = true;
                    one.warnings.push("a loop was busy for 97 % of the time".to_owned());
                }
                let kept = folder.keep(&one);
                let mut noise = Noise::new(clients as u64 + duration as u64 + index as u64);
                meter(&kept, duration as u32 + 12, |at| {
                    let busy = if index == 0 { 60.0 * (-at / 40.0).exp() + 4.0 } else { 9.0 };
                    let busy = busy * clients / 1200.0 + 3.0 * noise.next();
                    (busy, busy * 3e7)
                });
            }
        }
    }
}

/// Mean bit rates that fall as clients are added.
fn pull(folder: &Folder) {
    for step in 1..=20 {
        let clients = f64::from(step) * 100.0;
        for (index, (peer, at_most)) in
            [("nginx-rtmp", 122_800.0), ("headwater", 190_000.0), ("node", 104_000.0)]
                .into_iter()
                .enumerate()
        {
            for repetition in 1..=3 {
                let mut noise = Noise::new(step as u64 * 31 + repetition * 7 + index as u64);
                let rate = at_most / clients * (0.93 + 0.14 * noise.next());
                let mut one = trial(
                    "pull",
                    &[("clients", clients)],
                    peer,
                    repetition as u32,
                    &[("bit_rate_kbit", rate)],
                );
                one.saturated = peer == "headwater" && clients >= 1900.0;
                if peer == "node" && clients == 700.0 && repetition == 2 {
                    one.failed = Some(format!("it died: {HOSTILE}"));
                    one.metrics.clear();
                }
                folder.keep(&one);
            }
        }
    }
}

/// Latencies of five servers at three rates. Those of one server reach far.
fn rates(folder: &Folder) {
    for rate in [100.0, 1000.0, 10_000.0] {
        for (index, (peer, ..)) in PEERS.iter().enumerate() {
            for repetition in 1..=2_u32 {
                let mut noise = Noise::new(rate as u64 + index as u64 * 17 + u64::from(repetition));
                let millis: Vec<f64> = (0..(rate * 5.0) as usize)
                    .map(|_| {
                        0.12 * (index + 1) as f64
                            * (1.0 - noise.next()).powf(-0.35 - 0.1 * index as f64)
                    })
                    .map(|millis| millis.min(3000.0))
                    .collect();
                let mut sorted = millis.clone();
                sorted.sort_by(f64::total_cmp);
                let at = |share: f64| sorted[(sorted.len() as f64 * share) as usize];
                let metrics = [
                    ("latency_p50_ms", at(0.5)),
                    ("latency_p99_ms", at(0.99)),
                    ("latency_p99_9_ms", at(0.999)),
                    ("server_memory_mib", 4.2 * 3_f64.powi(index as i32)),
                ];
                let kept =
                    folder.keep(&trial("rates", &[("rate", rate)], peer, repetition, &metrics));
                histogram(&kept, "latency", millis, index % 2 == 0);
            }
        }
    }
}

/// Requests per second of all servers, with and without keep-alive.
fn longer(folder: &Folder) {
    for (place, connections) in [1.0, 10.0].into_iter().enumerate() {
        for (index, (peer, ..)) in PEERS.iter().enumerate() {
            for repetition in 1..=3 {
                let each = 4200.0 * (place + 1) as f64 * (index + 1) as f64;
                let each = each * (1.0 + 0.02 * f64::from(repetition));
                let mut one = trial(
                    "longer",
                    &[("connections", connections)],
                    peer,
                    repetition,
                    &[("requests_per_second", each)],
                );
                one.saturated = *peer == "hostile";
                folder.keep(&one);
            }
        }
    }
}
