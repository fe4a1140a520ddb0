//! Slow viewers of every endless delivery. They are skipped, then disconnected, and the log and
//! metrics tell it. A viewer beside them gets everything.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use media::flv::{Reader, TagKind};
use testkit::http::Client as Http;
use testkit::{SlowReader, eventually};

use testkit::is_closed_within;
use testkit::rtmp::Client;

use crate::support::{LIMIT, Origin, clip};

/// A viewer may be 3 MiB behind, two seconds of the stream, for two seconds.
const CONFIG: &str = r#"
[http]
send_timeout = "2s"
[live]
segment_target = "1s"
target_duration = "1s"
window = "4s"
viewer_queue = "3MiB"
viewer_patience = "2s"
"#;

/// A request for the stream over WebSocket.
const PUSH: &[u8] = b"GET /live/torrent/push HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Bytes added to each frame: at 30 frames a second about 12 Mbit/s.
const PADDING: usize = 48 << 10;

/// Publishes the clip in real time with larger frames, repeatedly, until dropped.
struct Torrent {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Torrent {
    fn start(origin: &Origin, name: &str) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let mut client = Client::publish(origin.rtmp, name);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let (headers, samples) = clip().split_at(2);
            for header in headers {
                client.send(header);
            }
            for turn in 0.. {
                for message in samples {
                    let time = turn * 16_000 + message.timestamp();
                    while start.elapsed() < Duration::from_millis(time.into()) {
                        if stopped.load(Ordering::Acquire) {
                            return;
                        }
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    let payload = match message.kind() {
                        TagKind::Video => padded(&message.payload()),
                        _ => message.payload(),
                    };
                    client.tag(message.kind(), time, payload);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Torrent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The frame with filler data (H.264, 7.3.2.7: NAL unit type 12) after it.
fn padded(picture: &[u8]) -> Bytes {
    let mut bytes = BytesMut::from(picture);
    bytes.put_u32(u32::try_from(PADDING).expect("it is short"));
    bytes.put_u8(12);
    bytes.put_bytes(0xff, PADDING - 2);
    bytes.put_u8(0x80);
    bytes.freeze()
}

/// A viewer of `live.flv` that reads everything and notices if anything is missing.
struct Attentive {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Attentive {
    fn start(address: SocketAddr, path: &str) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let (stopped, path) = (Arc::clone(&stop), path.to_owned());
        let thread = std::thread::spawn(move || {
            // `LIMIT` is for answers that end. This one does not.
            let mut client = Http::connect(address, 3 * LIMIT).expect("the server listens");
            client.send("GET", &path, &[], b"").expect("the server listens");
            let (head, mut body) = client.begin().expect("the server answers");
            assert_eq!(head.status, 200);
            let (mut reader, mut buffer) = (Reader::new(), vec![0; 256 << 10]);
            let (mut last, mut pictures) = (None::<u32>, 0);
            while !stopped.load(Ordering::Acquire) {
                let read = body.read(&mut buffer).expect("the stream goes on");
                assert!(read > 0, "the response ended");
                reader.handle_bytes(&buffer[..read]);
                while let Some(tag) = reader.poll_tag().expect("FLV") {
                    // A configuration has the time from which it applies.
                    if tag.kind != TagKind::Video || tag.payload.get(1) == Some(&0) {
                        continue;
                    }
                    let step = last.map_or(33, |last| tag.timestamp.wrapping_sub(last));
                    assert!((32..=35).contains(&step), "{step} ms after {last:?}");
                    last = Some(tag.timestamp);
                    pictures += 1;
                }
            }
            pictures
        });
        Self { stop, thread }
    }

    #[track_caller]
    fn finish(self, at_least: usize) {
        self.stop.store(true, Ordering::Release);
        let pictures = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(pictures >= at_least, "{pictures} pictures");
    }
}

fn start() -> (Origin, Torrent, Attentive) {
    let origin = Origin::start(CONFIG);
    let torrent = Torrent::start(&origin, "live/torrent");
    origin.playlist("live/torrent", "v0");
    let attentive = Attentive::start(origin.http, "/live/torrent/live.flv");
    (origin, torrent, attentive)
}

/// Limits the bytes that the kernel receives for a player that does not read.
fn limit_buffer(player: &Client, bytes: usize) {
    let socket = socket2::SockRef::from(&player.socket);
    socket.set_recv_buffer_size(bytes).expect("it is a socket");
}

/// A player that asks to play and then reads nothing. Its receive buffer is as small as possible.
fn silent_player(origin: &Origin) -> Client {
    let player = Client::play(origin.rtmp, "live/torrent");
    limit_buffer(&player, 4096);
    player
}

#[track_caller]
fn assert_metric(origin: &Origin, name: &str, labels: &[&str]) {
    origin.get_until("/metrics", LIMIT, |response| {
        response.text().lines().any(|line| {
            let value = line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok());
            line.starts_with(&format!("headwater_{name}{{"))
                && labels.iter().all(|label| line.contains(label))
                && value.is_some_and(|value| value >= 1)
        })
    });
}

#[test]
fn viewer_that_reads_nothing() {
    let (origin, torrent, attentive) = start();
    let before = origin.memory();
    let mp4 = SlowReader::get(origin.http, "/live/torrent/live.mp4", 0).unwrap();
    let flv = SlowReader::get(origin.http, "/live/torrent/live.flv", 0).unwrap();
    let push = SlowReader::start(origin.http, PUSH, 0).unwrap();
    let mut rtmp = silent_player(&origin);
    for delivery in ["mp4", "flv", "push"] {
        let line = origin.log_line(LIMIT, |line| {
            line.contains("takes nothing") && line.contains(&format!("delivery=\"{delivery}\""))
        });
        assert!(line.contains(" WARN ") && line.contains("stream=\"torrent\""), "{line}");
        assert!(line.contains("peer=127.0.0.1:"), "{line}");
        let labels = [&format!("delivery=\"{delivery}\"")[..], "reason=\"stalled\""];
        assert_metric(&origin, "slow_viewers_closed_total", &labels);
    }
    let line = origin.warning(rtmp.address());
    assert!(line.contains("stream=\"torrent\"") && line.contains("no byte accepted"), "{line}");
    assert_metric(&origin, "slow_viewers_closed_total", &["\"rtmp\"", "\"stalled\""]);
    // The media that waited for the four viewers are in the window anyway.
    let after = origin.memory();
    assert!(after < before + (32 << 10), "{before} KiB before, {after} KiB after");
    for viewer in [mp4, flv, push] {
        viewer.hurry();
        assert_ne!(viewer.finish(LIMIT).0, testkit::Ended::Open);
    }
    assert!(is_closed_within(&mut rtmp.socket, LIMIT));
    attentive.finish(60);
    drop(torrent);
}

#[test]
fn viewer_that_reads_too_slowly_for_too_long() {
    let (origin, torrent, attentive) = start();
    // A fifteenth of the published rate. This is far less than even an overloaded machine
    // publishes.
    let rate = 250_000;
    let mp4 = SlowReader::get(origin.http, "/live/torrent/live.mp4", rate).unwrap();
    let flv = SlowReader::get(origin.http, "/live/torrent/live.flv", rate).unwrap();
    let push = SlowReader::start(origin.http, PUSH, rate).unwrap();
    let mut rtmp = Client::play(origin.rtmp, "live/torrent");
    limit_buffer(&rtmp, 128 << 10);
    let peer = rtmp.address();
    let player = std::thread::spawn(move || {
        let (begun, mut taken) = (Instant::now(), 0);
        let mut buffer = vec![0; 10_000];
        while begun.elapsed() < LIMIT {
            match rtmp.socket.read(&mut buffer) {
                Ok(read) if read > 0 => taken += read,
                _ => return true,
            }
            let due = Duration::from_micros(taken as u64 * 1_000_000 / rate);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        false
    });
    for delivery in ["mp4", "flv", "push", "rtmp"] {
        let label = format!("delivery=\"{delivery}\"");
        let line = origin.log_line(LIMIT, |line| {
            line.contains("skipped to the newest keyframe") && line.contains(&label)
        });
        assert!(line.contains("stream=\"torrent\"") && line.contains("peer=127.0.0.1:"), "{line}");
        assert_metric(&origin, "slow_viewers_skipped_total", &[&label]);
        let line = if delivery == "rtmp" {
            origin.warning(peer)
        } else {
            origin.log_line(LIMIT, |line| line.contains("viewer closed") && line.contains(&label))
        };
        assert!(line.contains("stream=\"torrent\"") && line.contains("reads too slowly"), "{line}");
        assert_metric(&origin, "slow_viewers_closed_total", &[&label, "reason=\"behind\""]);
    }
    for viewer in [mp4, flv, push] {
        viewer.hurry();
        assert_ne!(viewer.finish(LIMIT).0, testkit::Ended::Open);
    }
    assert!(player.join().unwrap(), "the player is still served");
    attentive.finish(60);
    drop(torrent);
}

/// The socket becomes writable again only after the time-out.
#[test]
fn viewer_that_reads_slowly_takes_something_all_the_time() {
    let config = CONFIG.replace("patience = \"2s\"", "patience = \"1m\"");
    let origin = Origin::start(&config);
    let _torrent = Torrent::start(&origin, "live/torrent");
    origin.playlist("live/torrent", "v0");
    let rate = 20_000;
    let mp4 = SlowReader::get(origin.http, "/live/torrent/live.mp4", rate).unwrap();
    let flv = SlowReader::get(origin.http, "/live/torrent/live.flv", rate).unwrap();
    let push = SlowReader::start(origin.http, PUSH, rate).unwrap();
    let deadline = Instant::now() + LIMIT;
    for viewer in [mp4, flv, push] {
        while viewer.received() < 200_000 {
            assert!(!viewer.is_ended() && Instant::now() < deadline, "{}", origin.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(!origin.log().contains("closed"), "{}", origin.log());
}

#[test]
fn viewer_that_pauses_is_skipped_and_goes_on() {
    let config = CONFIG.replace("patience = \"2s\"", "patience = \"30s\"");
    let config = config.replace("timeout = \"2s\"", "timeout = \"30s\"");
    let origin = Origin::start(&config);
    let _torrent = Torrent::start(&origin, "live/torrent");
    origin.playlist("live/torrent", "v0");
    let viewer = SlowReader::get(origin.http, "/live/torrent/live.mp4", 1).unwrap();
    eventually(LIMIT, "the answer has begun", || viewer.received() > 0);
    // The viewer began with this segment or an earlier one. When the segment is no longer listed,
    // 4 s of media came after it: more than the connection holds, and more than 1 MiB besides.
    let began = origin.playlist("live/torrent", "v0").open_msn();
    eventually(LIMIT, "its first segment is no longer listed", || {
        origin.playlist("live/torrent", "v0").first_msn() > began
    });
    viewer.hurry();
    origin.log_line(LIMIT, |line| line.contains("skipped to the newest keyframe"));
    let skipped = viewer.received();
    let deadline = Instant::now() + LIMIT;
    while viewer.received() < skipped + (2 << 20) {
        assert!(!viewer.is_ended() && Instant::now() < deadline, "it does not go on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!origin.log().contains("viewer closed"), "{}", origin.log());
}
