//! Measures what many publishers cost the origin: processor time, memory, descriptors, mappings.
//!
//! `cargo bench -p headwater --bench streams -- --streams N --file FILE.mp4 [--seconds N]
//! [--batch MS] [--config FILE.toml] [--binary HEADWATER] [--server-core N --load-core N]`
//!
//! The file's video and audio are published under N names over RTMP, in real time and in a loop.
//! Each name has its own connection, and each write carries `--batch` of media (200 ms). The
//! publishers begin one after the other, so that writes are spread over time. There are no viewers.
//! The benchmark measures the last third of the time. A process may open some 20,000 files, and
//! each publisher needs one at either end. scripts/bench-streams.sh runs the benchmark with several
//! numbers of streams, with server and load on a core each.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark fails by panicking")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use media::flv::{Message, Packetizer, TagKind};
use media::mp4;
use protocol::rtmp::{ClientConfig, ClientSession, PublishKind, Purpose, Url};
use testkit::Server;
use testkit::http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str| option(name).map(|text| text.parse::<u32>().unwrap());
    let (Some(streams), Some(file)) = (number("--streams"), option("--file")) else {
        println!("streams: needs --streams N --file FILE.mp4, see its source");
        return;
    };
    let seconds = number("--seconds").unwrap_or(60);
    let batch = Duration::from_millis(number("--batch").unwrap_or(200).into());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit.maximum, ..limit },
    )
    .unwrap();

    let folder = tempfile::tempdir().unwrap();
    let config = option("--config").map_or_else(
        || {
            let path = folder.path().join("headwater.toml");
            std::fs::write(
                &path,
                "workers = 1\n[rtmp]\nmax_publishers = 0\nmax_connections_per_address = 0\n",
            )
            .unwrap();
            path
        },
        PathBuf::from,
    );
    let binary = option("--binary").unwrap_or_else(|| env!("CARGO_BIN_EXE_headwater").to_owned());
    let server = Server::start(&binary, [std::ffi::OsStr::new("--config"), config.as_os_str()]);
    pin(option("--server-core"), server.id());
    pin(option("--load-core"), std::process::id());
    let idle = Usage::of(server.id());

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let (before, after, metrics, outcome) =
        local.block_on(&runtime, run(&server, &file, streams, seconds, batch));
    let span = (after.at - before.at).as_secs_f64();
    let used = (after.processor - before.processor).as_secs_f64() / span;
    let own = (after.own - before.own).as_secs_f64() / span;
    let each = |bytes: u64| bytes as f64 / f64::from(streams) / 1024.0;
    let metric = |name: &str| {
        let mut lines = metrics.text().lines();
        lines.find_map(|line| line.strip_prefix(name)).map_or("?", str::trim).to_owned()
    };
    println!("streams                  {streams}, alive {}", outcome.alive);
    println!("bitrate                  {:.1} kbit/s each", outcome.bitrate / 1000.0);
    println!("sent late, median        {:.1} ms", outcome.late(0.5));
    println!("sent late, 99 %          {:.1} ms", outcome.late(0.99));
    println!("sent late, maximum       {:.1} ms", outcome.late(1.0));
    println!(
        "processor                {:.2} % of a core, {:.1} us a stream and second",
        used * 100.0,
        used * 1e6 / f64::from(streams)
    );
    println!("processor of the load    {:.2} % of a core", own * 100.0);
    println!(
        "resident                 {:.1} MiB, {:.1} KiB a stream",
        after.resident as f64 / 1048576.0,
        each(after.resident - idle.resident)
    );
    println!(
        "  of it shared memory    {:.1} MiB, {:.1} KiB a stream",
        after.shared as f64 / 1048576.0,
        each(after.shared - idle.shared)
    );
    println!("live memory, as counted  {} B", metric("headwater_live_memory_bytes "));
    println!("segments given up        {}", metric("headwater_live_segments_given_up_total "));
    println!(
        "descriptors              {} ({} without streams)",
        after.descriptors, idle.descriptors
    );
    println!("mappings                 {} ({} without streams)", after.mappings, idle.mappings);
}

/// Keeps all threads of a process on one core.
fn pin(core: Option<String>, process: u32) {
    if let Some(core) = core {
        let mut taskset = std::process::Command::new("taskset");
        let status = taskset.args(["-apc", &core, &process.to_string()]).output().unwrap().status;
        assert!(status.success(), "taskset: {status}");
    }
}

struct Outcome {
    alive: usize,
    bitrate: f64,
    /// How late writes were during the measured time, in milliseconds.
    lateness: Vec<f64>,
}

impl Outcome {
    fn late(&self, q: f64) -> f64 {
        let Some(last) = self.lateness.len().checked_sub(1) else { return f64::NAN };
        self.lateness[(last as f64 * q).round() as usize]
    }
}

/// Publishes. Returns the server's usage at the beginning and at the end of the last third.
async fn run(
    server: &Server,
    file: &str,
    streams: u32,
    seconds: u32,
    each: Duration,
) -> (Usage, Usage, Response, Outcome) {
    let address = server.rtmp;
    // All sessions are in the same state when publishing begins, so all can send the same bytes.
    let batches = Rc::new(batches(address, file, seconds, each).await);
    let bytes: usize = batches.iter().map(Bytes::len).sum();
    let start = Instant::now();
    let duration = Duration::from_secs(seconds.into());
    // All publishers begin within the first third.
    let apart = duration / 3 / streams;
    let measured = start + duration * 2 / 3;
    let mut publishers = JoinSet::new();
    for number in 0..streams {
        let batches = Rc::clone(&batches);
        publishers.spawn_local(async move {
            let begin = start + apart * number;
            sleep_until(begin).await;
            let mut late = Vec::new();
            let mut socket = match connect(address, &format!("live/s{number}")).await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    println!("s{number}: {error}");
                    return (None, late);
                }
            };
            for (due, batch) in batches.iter().enumerate() {
                let due = begin + each * u32::try_from(due).unwrap();
                if due > start + duration {
                    break;
                }
                sleep_until(due).await;
                if socket.write_all(batch).await.is_err() {
                    return (None, late);
                }
                if due >= measured {
                    late.push(due.elapsed().as_secs_f64() * 1000.0);
                }
            }
            (Some(socket), late)
        });
    }
    sleep_until(measured).await;
    let before = Usage::of(server.id());
    sleep_until(start + duration).await;
    let after = Usage::of(server.id());
    // Metrics are read now: media that late publishers have yet to send are not resident either.
    let metrics = server.metrics();
    let (mut alive, mut lateness) = (Vec::new(), Vec::new());
    while let Some(publisher) = publishers.join_next().await {
        let (socket, late) = publisher.unwrap();
        alive.extend(socket);
        lateness.extend(late);
    }
    lateness.sort_by(f64::total_cmp);
    let bitrate = bytes as f64 * 8.0 / f64::from(seconds);
    (before, after, metrics, Outcome { alive: alive.len(), bitrate, lateness })
}

/// The wire bytes of a publisher, cut into batches of `each` of media. The first batch contains the
/// sequence headers.
async fn batches(address: SocketAddr, file: &str, seconds: u32, each: Duration) -> Vec<Bytes> {
    let bytes = Bytes::from(std::fs::read(file).unwrap());
    let index = mp4::Index::read(&bytes).unwrap();
    let packetizers: Vec<Packetizer> = index
        .tracks
        .iter()
        .map(|track| Packetizer::new(0, &track.track.codec, track.track.timescale).unwrap())
        .collect();
    let (_socket, mut session) = connect(address, "live/batches").await.unwrap();
    let mut batches = vec![BytesMut::new()];
    for packetizer in &packetizers {
        send(&mut session, &packetizer.sequence_header(0).unwrap(), 0, &mut batches[0]);
    }
    // Edit lists may place audio before 0. It is sent at 0.
    let time = |message: &Message| message.timestamp().cast_signed().max(0).unsigned_abs();
    let messages: Vec<(u32, Message)> =
        mp4::Reader::new(index.merge(0..index.tracks.len()), &bytes)
            .map(|read| {
                let read = read.unwrap();
                let message = packetizers[read.track].sample(&read.sample).unwrap();
                (time(&message), message)
            })
            .collect();
    // The last frame lasts about this long; then the file begins again.
    let turn = messages.iter().map(|(time, _)| *time).max().unwrap() + 40;
    let turns = seconds * 1000 / turn + 1;
    let of_batch = u32::try_from(each.as_millis()).unwrap();
    for (turn, (time, message)) in
        (0..turns).flat_map(|n| messages.iter().map(move |message| (n * turn, message)))
    {
        let at = turn + time;
        let batch = (at / of_batch) as usize;
        if batch >= batches.len() {
            batches.resize_with(batch + 1, BytesMut::new);
        }
        send(&mut session, message, at, batches.last_mut().unwrap());
    }
    batches.truncate((seconds * 1000 / of_batch) as usize);
    batches.into_iter().map(BytesMut::freeze).collect()
}

fn send(session: &mut ClientSession, message: &Message, at: u32, out: &mut BytesMut) {
    let payload = message.payload();
    match message.kind() {
        TagKind::Audio => session.send_audio(at, payload).unwrap(),
        TagKind::Video => session.send_video(at, payload).unwrap(),
        TagKind::Script => session.send_metadata(at, &payload).unwrap(),
    }
    while let Some(piece) = session.poll_output() {
        out.extend_from_slice(&piece);
    }
}

/// A connection that may publish.
async fn connect(address: SocketAddr, name: &str) -> std::io::Result<(TcpStream, ClientSession)> {
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let url = Url::parse(&format!("rtmp://{address}/{name}")).unwrap();
    let config = ClientConfig::new(&url, Purpose::Publish(PublishKind::Live));
    let mut session = ClientSession::new(config, 1);
    let mut buffer = [0; 4096];
    loop {
        while let Some(piece) = session.poll_output() {
            socket.write_all(&piece).await?;
        }
        if session.is_started() {
            return Ok((socket, session));
        }
        let size = socket.read(&mut buffer).await?;
        if size == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut input = &buffer[..size];
        while !input.is_empty() {
            let taken = session.handle_input(input).unwrap();
            input = &input[taken..];
            while let Some(event) = session.poll_event() {
                if let protocol::rtmp::ClientEvent::Rejected { description, .. } = event {
                    return Err(std::io::Error::other(description));
                }
            }
        }
    }
}

struct Usage {
    at: Instant,
    /// Processor time of the server so far, and of this process.
    processor: Duration,
    own: Duration,
    /// Bytes.
    resident: u64,
    shared: u64,
    descriptors: usize,
    mappings: usize,
}

impl Usage {
    fn of(process: u32) -> Self {
        let text = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
        let status = text("status");
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap()
        };
        Self {
            at: Instant::now(),
            processor: processor(&text("stat")),
            own: processor(&std::fs::read_to_string("/proc/self/stat").unwrap()),
            resident: kib("VmRSS:") * 1024,
            shared: kib("RssShmem:") * 1024,
            descriptors: std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count(),
            mappings: text("maps").lines().count(),
        }
    }
}

/// User and system time from `/proc/PID/stat`.
fn processor(stat: &str) -> Duration {
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    let tick = rustix::param::clock_ticks_per_second();
    Duration::from_secs_f64(ticks as f64 / tick as f64)
}
