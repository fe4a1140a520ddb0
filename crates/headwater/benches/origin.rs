//! Measures the whole origin from outside: how much it adds to a part's latency, and how much
//! processor time and memory one publisher costs.
//!
//! `cargo bench -p headwater --bench origin -- [--seconds N] [--file FILE.mp4] [--csv FILE]
//! [--server-core N --load-core N]`
//!
//! One publisher sends the file's video and audio over RTMP in real time. One viewer requests each
//! part of the video before it exists. A part's latency begins when the last of its frames has been
//! handed to the publisher's socket, and ends with the first byte of the part's response.
//! scripts/bench-origin.sh repeats the benchmark, with server and load on a core each, and keeps
//! the figures.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark fails by panicking")]

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::flv::{Message, Packetizer, TagKind};
use media::mp4;
use protocol::rtmp::{ClientConfig, ClientSession, PublishKind, Purpose, Url};
use testkit::Server;
use testkit::http::Client;

/// When each access unit of the video was handed to the socket, by a hash of its bytes.
type Sent = Arc<Mutex<HashMap<u64, Instant>>>;

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let seconds: u64 = option("--seconds").map_or(20, |text| text.parse().unwrap());
    let file = option("--file")
        .map_or_else(|| testkit::corpus_dir().join("bbb/bbb_60s_720p_h264_aac.mp4"), PathBuf::from);
    let limit = Duration::from_secs(seconds);

    let server = Server::start(env!("CARGO_BIN_EXE_headwater"), testkit::NO_ARGUMENTS);
    pin(option("--server-core"), server.id());
    pin(option("--load-core"), std::process::id());
    let sent: Sent = Arc::default();
    let publisher = {
        let (sent, url) = (Arc::clone(&sent), server.rtmp_url("live/bench"));
        let address = server.rtmp;
        std::thread::spawn(move || publish(&file, &url, address, limit, &sent))
    };
    // The first seconds are setup.
    let latencies = watch(&server, limit, &sent);
    let usage = Usage::of(server.id());
    publisher.join().unwrap();

    let mut sorted: Vec<f64> = latencies.iter().map(|(_, latency)| *latency).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
    println!("parts                    {}", sorted.len());
    println!("added latency, median    {:.3} ms", at(0.5));
    println!("added latency, 90 %      {:.3} ms", at(0.9));
    println!("added latency, 99 %      {:.3} ms", at(0.99));
    println!("added latency, maximum   {:.3} ms", at(1.0));
    println!("processor                {:.2} % of a core", usage.processor * 100.0);
    println!("resident                 {:.1} MiB", usage.resident as f64 / 1048576.0);
    if let Some(path) = option("--csv") {
        let mut out = File::create(path).unwrap();
        writeln!(out, "part,latency_ms").unwrap();
        for (part, latency) in &latencies {
            writeln!(out, "{part},{latency:.4}").unwrap();
        }
    }
}

/// Keeps all threads of a process on one core.
fn pin(core: Option<String>, process: u32) {
    if let Some(core) = core {
        let mut taskset = std::process::Command::new("taskset");
        let status = taskset.args(["-apc", &core, &process.to_string()]).output().unwrap().status;
        assert!(status.success(), "taskset: {status}");
    }
}

/// Reads the whole file into memory and publishes it in real time.
fn publish(file: &PathBuf, url: &str, address: SocketAddr, limit: Duration, sent: &Sent) {
    let bytes = Bytes::from(std::fs::read(file).unwrap());
    let index = mp4::Index::read(&bytes).unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let config = ClientConfig::new(&Url::parse(url).unwrap(), Purpose::Publish(PublishKind::Live));
    let mut session = ClientSession::new(config, 1);
    let mut buffer = [0; 4096];
    while !session.is_started() {
        flush(&mut session, &mut socket);
        let read = socket.read(&mut buffer).unwrap();
        let mut input = &buffer[..read];
        while !input.is_empty() {
            let taken = session.handle_input(input).unwrap();
            input = &input[taken..];
            while session.poll_event().is_some() {}
            flush(&mut session, &mut socket);
        }
    }
    let packetizers: Vec<Packetizer> = index
        .tracks
        .iter()
        .map(|track| Packetizer::new(0, &track.track.codec, track.track.timescale).unwrap())
        .collect();
    for packetizer in &packetizers {
        send(&mut session, &packetizer.sequence_header(0).unwrap());
    }
    let start = Instant::now();
    for read in mp4::Reader::new(index.merge(0..index.tracks.len()), &bytes) {
        let read = read.unwrap();
        let message = packetizers[read.track].sample(&read.sample).unwrap();
        let due = Duration::from_millis(message.timestamp().into());
        if due > limit {
            return;
        }
        std::thread::sleep((start + due).saturating_duration_since(Instant::now()));
        send(&mut session, &message);
        let key = hash(&read.sample.data);
        if message.kind() == TagKind::Video {
            // The time is noted before the write: when the write returns, the server may already
            // have answered.
            sent.lock().unwrap().insert(key, Instant::now());
        }
        flush(&mut session, &mut socket);
        if message.kind() == TagKind::Video {
            let mut sent = sent.lock().unwrap();
            // The last byte is handed over now. The entry is gone if the part has already arrived.
            if let Some(at) = sent.get_mut(&key) {
                *at = Instant::now();
            }
        }
    }
}

fn send(session: &mut ClientSession, message: &Message) {
    match message.kind() {
        TagKind::Audio => session.send_audio(message.timestamp(), message.payload()).unwrap(),
        _ => session.send_video(message.timestamp(), message.payload()).unwrap(),
    }
}

fn flush(session: &mut ClientSession, socket: &mut TcpStream) {
    while let Some(piece) = session.poll_output() {
        socket.write_all(&piece).unwrap();
    }
}

/// Requests each part before it exists. Returns the names of the parts and their latencies in
/// milliseconds.
fn watch(server: &Server, limit: Duration, sent: &Sent) -> Vec<(String, f64)> {
    let end = Instant::now() + limit - Duration::from_secs(1);
    let playlist = server.get_until("/live/bench/v0/media.m3u8", limit, |r| r.status() == 200);
    let hint = playlist.text().split("PRELOAD-HINT:TYPE=PART,URI=\"").nth(1).unwrap();
    let mut name = hint.split('"').next().unwrap().trim_end_matches(".m4s").split('.');
    let mut next = || name.next().unwrap().parse::<u64>().unwrap();
    let (mut msn, mut part) = (next(), next());
    let header = server.get("/live/bench/v0/init.mp4");
    let header = media::cmaf::read_header(&header.body).unwrap();
    let mut client = Client::connect(server.http, Duration::from_secs(10)).unwrap();
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let path = format!("/live/bench/v0/{msn}.{part}.m4s");
        client.send("GET", &path, &[], b"").unwrap();
        let (head, mut body) = client.begin().unwrap();
        let arrived = Instant::now();
        let status = head.status;
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes).unwrap();
        if status == 404 {
            (msn, part) = (msn + 1, 0);
            continue;
        }
        assert_eq!(status, 200, "{path}");
        part += 1;
        let bytes = Bytes::from(bytes);
        let chunk = media::cmaf::chunks(&bytes, Some(&header)).next().unwrap().unwrap();
        let last = hash(&chunk.samples.last().unwrap().data);
        if let Some(at) = sent.lock().unwrap().get(&last) {
            let latency = arrived.saturating_duration_since(*at);
            latencies.push((format!("{msn}.{}", part - 1), latency.as_secs_f64() * 1000.0));
        }
    }
    latencies
}

/// Resources that a process has used so far.
struct Usage {
    /// Processor seconds per second of the process's life.
    processor: f64,
    /// Bytes.
    resident: u64,
}

impl Usage {
    fn of(id: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
        // proc(5): utime, stime and starttime are fields 14, 15 and 22. The fields here begin with
        // field 3.
        let hertz = 100.0;
        let used = (ticks(11) + ticks(12)) / hertz;
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let resident = status.split("VmRSS:").nth(1).unwrap().split_whitespace().next().unwrap();
        Self {
            processor: used / (uptime - ticks(19) / hertz),
            resident: resident.parse::<u64>().unwrap() * 1024,
        }
    }
}
