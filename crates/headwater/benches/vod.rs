//! Measures how soon a segment that is packaged on the fly begins to arrive: the time from a
//! request on an open connection to the first bytes of the answer, over loopback.
//!
//! `cargo bench -p headwater --bench vod -- [--file FILE.mp4] [--requests N] [--csv FILE]
//! [--server-core N --load-core N]`
//!
//! The very first request builds the index; the others find it. The requests go through the
//! segments of the first video and the first audio track. They name the title's version, as players
//! do. A second pass leaves out the version, so that each request asks the file system.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark fails by panicking")]

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::Server;
use testkit::http::Client;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let requests: usize = option("--requests").map_or(2000, |text| text.parse().unwrap());
    let file = option("--file")
        .map_or_else(|| testkit::corpus_dir().join("bbb/bbb_60s_720p_h264_aac.mp4"), PathBuf::from);
    let root = file.parent().unwrap().to_str().unwrap();
    let title = format!("/vod/{}", file.file_name().unwrap().to_str().unwrap());

    let server = Server::start(env!("CARGO_BIN_EXE_headwater"), ["--vod", root]);
    pin(option("--server-core"), server.id());
    pin(option("--load-core"), std::process::id());
    let mut client = Client::connect(server.http, Duration::from_secs(60)).unwrap();
    let (first, _) = ask(&mut client, &format!("{title}/index.m3u8"));
    println!("index built, first playlist   {:.3} ms", first * 1000.0);

    let mut csv = String::from("case,first_byte_ms\n");
    for track in ["v0", "a0"] {
        let (_, playlist) = ask(&mut client, &format!("{title}/{track}/media.m3u8"));
        let playlist = String::from_utf8(playlist).unwrap();
        let names: Vec<&str> = playlist.lines().filter(|line| !line.starts_with('#')).collect();
        for (case, versioned) in [("named", true), ("unnamed", false)] {
            let mut times: Vec<f64> = (0..requests)
                .map(|n| {
                    let name = names[n % names.len()];
                    let name = if versioned { name } else { name.split('?').next().unwrap() };
                    ask(&mut client, &format!("{title}/{track}/{name}")).0 * 1000.0
                })
                .collect();
            for time in &times {
                csv.push_str(&format!("{track} {case},{time:.4}\n"));
            }
            times.sort_by(f64::total_cmp);
            let at = |q: f64| times[((times.len() - 1) as f64 * q).round() as usize];
            println!(
                "{track} {case:8} {} segments   median {:.3} ms   99 % {:.3} ms   max {:.3} ms",
                names.len(),
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
    }
    if let Some(path) = option("--csv") {
        std::fs::File::create(path).unwrap().write_all(csv.as_bytes()).unwrap();
    }
}

/// Seconds until the answer began, and its body.
fn ask(client: &mut Client, path: &str) -> (f64, Vec<u8>) {
    let start = Instant::now();
    client.send("GET", path, &[], b"").unwrap();
    let (head, mut body) = client.begin().unwrap();
    let first = start.elapsed().as_secs_f64();
    assert_eq!(head.status, 200, "{path}");
    let mut bytes = Vec::new();
    body.read_to_end(&mut bytes).unwrap();
    (first, bytes)
}

/// Keeps a process on one core.
fn pin(core: Option<String>, process: u32) {
    if let Some(core) = core {
        let process = process.to_string();
        let pinned = Command::new("taskset").args(["-a", "-p", "-c", &core, &process]).output();
        assert!(pinned.unwrap().status.success(), "taskset");
    }
}
