//! Slow viewers of every endless delivery. They are skipped, then disconnected, and the log and
//! metrics tell it. A viewer beside them gets everything.

use std::io::Read;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use media::flv::{Message, Reader, TagKind};
use testkit::http::Client as Http;
use testkit::{SlowReader, eventually};

use testkit::rtmp::Client;
use testkit::{is_closed_within, uninterrupted};

use crate::support::{LIMIT, Origin, clip};

/// A viewer may be 3 MiB behind, two seconds of the stream. Each test shortens the limit that it is
/// about; the others are longer than any test.
const CONFIG: &str = r#"
[http]
send_timeout = "10m"
[live]
segment_target = "1s"
target_duration = "1s"
window = "4s"
viewer_queue = "3MiB"
viewer_patience = "10m"
"#;

/// A request for the stream over WebSocket.
const PUSH: &[u8] = b"GET /live/torrent/push HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Bytes added to each frame: at 30 frames a second about 12 Mbit/s.
const PADDING: usize = 48 << 10;

/// Milliseconds of media that are published before anybody watches: two segments and more.
const FIRST: u32 = 2100;

/// Most frames by which the viewer in a [`Torrent`] is behind. They are far fewer than a viewer may
/// be behind.
const BEHIND: u32 = 30;

/// Publishes the clip in real time with larger frames, repeatedly. The same thread is a viewer of
/// `live.flv` that reads everything and notices if anything is missing. A busy machine holds up both,
/// so it never makes this viewer too slow.
struct Torrent {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Torrent {
    fn start(origin: &Origin) -> Self {
        let mut publisher = Client::publish(origin.rtmp, "live/torrent");
        clip()[..2].iter().for_each(|header| publisher.send(header));
        let (mut messages, mut published) = (messages(), 0);
        let mut publish = move |until: u32| {
            while let Some((kind, time, payload)) = messages.next_if(|(_, time, _)| *time < until) {
                published += u32::from(kind == TagKind::Video);
                publisher.tag(kind, time, payload);
            }
            published
        };
        publish(FIRST);
        eventually(LIMIT, "nearly all has arrived", || {
            origin.playlist("live/torrent", "v0").segments().len() == 2
        });
        // `LIMIT` is for answers that end. This one does not.
        let mut viewer = Http::connect(origin.http, 3 * LIMIT).expect("the server listens");
        viewer.send("GET", "/live/torrent/live.flv", &[], b"").expect("the server listens");
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (head, mut body) = viewer.begin().expect("the server answers");
            assert_eq!(head.status, 200);
            let (mut reader, mut buffer) = (Reader::new(), vec![0; 256 << 10]);
            let (mut first, mut last, mut time) = (None, 0, 0);
            let begun = Instant::now();
            while !stopped.load(Ordering::Acquire) {
                let now = FIRST + u32::try_from(begun.elapsed().as_millis()).expect("minutes");
                // A late thread publishes a little at a time.
                let published = publish(now.min((last + BEHIND) * 1000 / 30));
                if first.is_some() && last + BEHIND / 2 > published {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                let read = body.read(&mut buffer).expect("the stream goes on");
                assert!(read > 0, "the response ended");
                reader.handle_bytes(&buffer[..read]);
                while let Some(tag) = reader.poll_tag().expect("FLV") {
                    // A configuration has no frame.
                    if tag.kind == TagKind::Video && tag.payload.get(1) != Some(&0) {
                        let number = number_of(&tag.payload);
                        let step = tag.timestamp.wrapping_sub(time);
                        assert!(
                            first.is_none() || (32..=35).contains(&step),
                            "{number}: {step} ms"
                        );
                        time = tag.timestamp;
                        assert!(first.is_none() || number == last + 1, "{number} after {last}");
                        first.get_or_insert(number);
                        last = number;
                    }
                }
            }
            first.map_or(0, |first| last - first)
        });
        Self { stop, thread }
    }

    /// Ends both. Asserts that the viewer got at least so many frames, and that none was missing.
    #[track_caller]
    fn finish(self, at_least: u32) {
        self.stop.store(true, Ordering::Release);
        let frames = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(frames >= at_least, "{frames} frames");
    }
}

/// The clip's media with larger frames, again and again: kind, time and payload of each message.
fn messages() -> Peekable<impl Iterator<Item = (TagKind, u32, Bytes)>> {
    let again = |turn: u32| clip()[2..].iter().map(move |m| (turn * 16_000 + m.timestamp(), m));
    let mut frames = 0;
    let larger = move |(time, message): (u32, &Message)| {
        let payload = match message.kind() {
            TagKind::Video => {
                frames += 1;
                padded(&message.payload(), frames)
            }
            _ => message.payload(),
        };
        (message.kind(), time, payload)
    };
    (0..).flat_map(again).map(larger).peekable()
}

/// The frame with filler data (H.264, 7.3.2.7: NAL unit type 12) after it. Its number is near the
/// end.
fn padded(picture: &[u8], number: u32) -> Bytes {
    let mut bytes = BytesMut::from(picture);
    bytes.put_u32(u32::try_from(PADDING).expect("it is short"));
    bytes.put_u8(12);
    bytes.put_bytes(0xff, PADDING - 6);
    bytes.put_u32(number);
    bytes.put_u8(0x80);
    bytes.freeze()
}

/// The number in a padded frame.
fn number_of(frame: &[u8]) -> u32 {
    let (_, end) = frame.split_last_chunk::<5>().expect("it is padded");
    u32::from_be_bytes(*end.first_chunk().expect("five bytes"))
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
    let origin = Origin::start(&CONFIG.replace("timeout = \"10m\"", "timeout = \"10s\""));
    let torrent = Torrent::start(&origin);
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
    torrent.finish(60);
}

#[test]
fn viewer_that_reads_too_slowly_for_too_long() {
    let origin = Origin::start(&CONFIG.replace("patience = \"10m\"", "patience = \"2s\""));
    let torrent = Torrent::start(&origin);
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
            match uninterrupted(|| rtmp.socket.read(&mut buffer)) {
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
    torrent.finish(60);
}

/// The socket becomes writable again only after the time-out.
#[test]
fn viewer_that_reads_slowly_takes_something_all_the_time() {
    // Longer than a busy machine keeps the readers waiting, and shorter than the test.
    let origin = Origin::start(&CONFIG.replace("timeout = \"10m\"", "timeout = \"15s\""));
    let torrent = Torrent::start(&origin);
    let rate = 10_000;
    let mp4 = SlowReader::get(origin.http, "/live/torrent/live.mp4", rate).unwrap();
    let flv = SlowReader::get(origin.http, "/live/torrent/live.flv", rate).unwrap();
    let push = SlowReader::start(origin.http, PUSH, rate).unwrap();
    for viewer in [mp4, flv, push] {
        eventually(LIMIT, "all viewers have received much", || {
            assert!(!viewer.is_ended(), "{}", origin.log());
            viewer.received() >= 200_000
        });
    }
    assert!(!origin.whole_log().contains("closed"), "{}", origin.log());
    torrent.finish(60);
}

#[test]
fn viewer_that_pauses_is_skipped_and_goes_on() {
    let origin = Origin::start(CONFIG);
    let torrent = Torrent::start(&origin);
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
    eventually(LIMIT, "the viewer goes on", || {
        assert!(!viewer.is_ended(), "{}", origin.log());
        viewer.received() >= skipped + (2 << 20)
    });
    assert!(!origin.whole_log().contains("viewer closed"), "{}", origin.log());
    torrent.finish(60);
}
