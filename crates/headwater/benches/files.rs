//! Measures how a download of a cold file affects the viewers of a warm file.
//!
//! `cargo bench -p headwater --bench files -- --address IP:PORT --folder DIR --beside
//! nothing|warm|cold [--seconds N] [--rate N] [--core N] [--csv FILE]`
//!
//! A running server already serves `DIR` below `/vod/`. Requests for 256 KiB of one file begin at a
//! fixed rate, whether or not earlier ones have been answered. A request's latency is the time from
//! when it was due to its last byte. Meanwhile another viewer downloads a second file again and
//! again at a limited rate. This second file is in memory (`warm`) or is taken out of the page
//! cache before each download (`cold`); with `nothing` there is no such viewer.
//! scripts/bench-files.sh runs the benchmark and keeps the figures.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark fails by panicking")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use testkit::http::Client;

const LIMIT: Duration = Duration::from_secs(20);

/// Bytes of one request, and of the two files.
const RANGE: u64 = 256 << 10;
const WARM: u64 = 64 << 20;
const BESIDE: u64 = 128 << 20;

/// Bytes evicted from the page cache at once.
const EVICT: u64 = 1 << 20;

/// Bytes per second of the other viewer's download.
const BESIDE_RATE: u64 = 40_000_000;

/// Most requests in progress. If this is not enough to keep the rate, the benchmark says so.
const VIEWERS: usize = 16;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    // `cargo test --benches` and similar commands run without a server.
    let Some(address) = option("--address") else { return };
    let address: SocketAddr = address.parse().unwrap();
    let folder = option("--folder").unwrap();
    let folder = Path::new(&folder);
    let beside = option("--beside").unwrap_or_else(|| "nothing".to_owned());
    let seconds: u64 = option("--seconds").map_or(10, |text| text.parse().unwrap());
    let rate: u64 = option("--rate").map_or(100, |text| text.parse().unwrap());
    if let Some(core) = option("--core") {
        let process = std::process::id().to_string();
        let mut taskset = std::process::Command::new("taskset");
        assert!(taskset.args(["-apc", &core, &process]).output().unwrap().status.success());
    }
    make(&folder.join("warm.bin"), WARM);
    let cold = folder.join("beside.bin");
    make(&cold, BESIDE);

    let (next, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (stop, downloaded) = (AtomicBool::new(false), AtomicU64::new(0));
    let total = (seconds * rate) as usize;
    let download = || {
        let file = File::open(&cold).unwrap();
        while beside != "nothing" && !stop.load(Ordering::Relaxed) {
            let mut client = Client::connect(address, LIMIT).unwrap();
            client.send("GET", "/vod/beside.bin", &[], b"").unwrap();
            let (_, mut body) = client.begin().unwrap();
            let (mut buffer, mut read, begun) = (vec![0; 64 << 10], 0, Instant::now());
            let mut evicted = 0;
            while !stop.load(Ordering::Relaxed) {
                let n = body.read(&mut buffer).unwrap() as u64;
                if n == 0 {
                    break;
                }
                read += n;
                downloaded.fetch_add(n, Ordering::Relaxed);
                // Evicts a little at a time, behind the bytes being sent, so that the eviction
                // itself is not measured.
                if beside == "cold" && read > evicted + 2 * EVICT {
                    evict(&file, evicted, EVICT);
                    evicted += EVICT;
                }
                let due = begun + Duration::from_nanos(read * 1_000_000_000 / BESIDE_RATE);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            if beside == "cold" {
                evict(&file, evicted, BESIDE - evicted);
            }
        }
    };
    if beside == "cold" {
        evict(&File::open(&cold).unwrap(), 0, BESIDE);
    }
    let start = Instant::now() + Duration::from_millis(200);
    let viewer = || {
        let mut client = Client::connect(address, LIMIT).unwrap();
        let mut latencies = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= total {
                return latencies;
            }
            let due = start + Duration::from_nanos(i as u64 * 1_000_000_000 / rate);
            // If all viewers were busy, the server caused the wait, and it counts. If a thread
            // sleeps longer than it asked for, that does not count.
            let begun = match due.checked_duration_since(Instant::now()) {
                Some(wait) => {
                    std::thread::sleep(wait);
                    Instant::now()
                }
                None => {
                    late.fetch_add(1, Ordering::Relaxed);
                    due
                }
            };
            let from = (i as u64 * 7919 * 4096) % (WARM - RANGE);
            let range = format!("bytes={from}-{}", from + RANGE - 1);
            client.send("GET", "/vod/warm.bin", &[("Range", &range)], b"").unwrap();
            let answer = client.receive().unwrap();
            assert_eq!((answer.status(), answer.body.len() as u64), (206, RANGE));
            latencies.push((i, begun.elapsed()));
        }
    };
    let mut latencies: Vec<(usize, Duration)> = std::thread::scope(|scope| {
        let beside = scope.spawn(download);
        let viewers: Vec<_> = (0..VIEWERS).map(|_| scope.spawn(viewer)).collect();
        let latencies = viewers.into_iter().flat_map(|viewer| viewer.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        beside.join().unwrap();
        latencies
    });
    let elapsed = start.elapsed().as_secs_f64();
    latencies.sort();
    if let Some(path) = option("--csv") {
        let mut out = File::create(path).unwrap();
        writeln!(out, "request,latency_us").unwrap();
        for (i, latency) in &latencies {
            writeln!(out, "{i},{}", latency.as_micros()).unwrap();
        }
    }
    let mut sorted: Vec<u128> = latencies.iter().map(|(_, latency)| latency.as_micros()).collect();
    sorted.sort_unstable();
    let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
    println!(
        "{} requests, {} late, p50 {} us, p90 {} us, p99 {} us, max {} us, beside {:.1} MB/s",
        sorted.len(),
        late.load(Ordering::Relaxed),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        downloaded.load(Ordering::Relaxed) as f64 / 1e6 / elapsed,
    );
}

/// Evicts a range from the page cache.
fn evict(file: &File, offset: u64, length: u64) {
    fadvise(file, offset, NonZeroU64::new(length), Advice::DontNeed).unwrap();
}

/// Makes a file of this length, on the disk and in memory.
fn make(path: &Path, length: u64) {
    if path.metadata().is_ok_and(|metadata| metadata.len() == length) {
        std::io::copy(&mut File::open(path).unwrap(), &mut std::io::sink()).unwrap();
        return;
    }
    let mut file = File::create(path).unwrap();
    let mut block = vec![0_u8; 1 << 20];
    for i in 0..length / block.len() as u64 {
        for (at, byte) in block.iter_mut().enumerate() {
            *byte = ((at as u64).wrapping_mul(31) >> (i % 11)) as u8;
        }
        file.write_all(&block).unwrap();
    }
    file.sync_all().unwrap();
}
