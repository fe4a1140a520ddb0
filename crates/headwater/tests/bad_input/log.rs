//! A log that nobody reads.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use media::flv::TagKind;
use protocol::rtmp::{PlayStart, Purpose};
use tempfile::TempDir;
use testkit::http::{Client as Http, get_with};
use testkit::rtmp::{self, Client};
use testkit::{Program, push};

use crate::support::{ALL, BINARY, LIMIT, announce, of_second, send_second};
use crate::viewers::{Media as Sent, next_of_push, next_of_rtmp};

/// A server whose standard error is a pipe that is full from the start, and that nobody empties.
struct Unread {
    program: Program,
    http: SocketAddr,
    rtmp: SocketAddr,
    reader: File,
    /// While it is open, the pipe has no end.
    filler: Option<File>,
    _folder: TempDir,
}

impl Unread {
    #[track_caller]
    fn start(configuration: &str) -> Self {
        const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let fifo = folder.path().join("log");
        std::fs::write(folder.path().join("headwater.toml"), configuration).expect("it is ours");
        Program::output(Command::new("mkfifo").arg(&fifo), LIMIT);
        let open = |write: bool| {
            let mut options = OpenOptions::new();
            options.read(!write).write(write).custom_flags(NONBLOCK);
            options.open(&fifo).expect("it is ours")
        };
        let reader = open(false);
        let mut filler = open(true);
        for size in [4096, 1] {
            while filler.write(&vec![b'\n'; size]).is_ok() {}
        }
        let script = "exec \"$0\" serve --config headwater.toml --workers 1 --http 127.0.0.1:0 \
                      --rtmp 127.0.0.1:0 2>log";
        let mut command = Command::new("sh");
        let program =
            Program::spawn(command.args(["-c", script, BINARY]).current_dir(folder.path()));
        let ready = program.stdout_line(LIMIT, |_| true);
        let address = |name: &str| {
            let address = ready.split(' ').find_map(|word| word.strip_prefix(name));
            address.and_then(|address| address.parse().ok()).expect("ready")
        };
        let (http, rtmp) = (address("http="), address("rtmp="));
        Self { program, http, rtmp, reader, filler: Some(filler), _folder: folder }
    }

    /// Reads what there is of the log. Returns false at its end.
    #[track_caller]
    fn read(&mut self, log: &mut String) -> bool {
        let mut buffer = [0; 4096];
        match self.reader.read(&mut buffer) {
            Ok(size) => {
                log.push_str(&String::from_utf8_lossy(&buffer[..size]));
                size > 0
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                std::thread::sleep(Duration::from_millis(1));
                true
            }
        }
    }

    /// Stops the server, and reads the rest of its log.
    #[track_caller]
    fn stop(mut self, log: &mut String) {
        self.program.terminate();
        self.filler = None;
        while self.read(log) {}
        assert_eq!(self.program.stop(LIMIT).status.code(), Some(0));
    }
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let server = Unread::start("");
    let http = server.http;
    // Each request makes one log line. There are more of them than the limit.
    for _ in 0..400 {
        let mut client = Http::connect(http, LIMIT).unwrap();
        client.send_raw(b"GET /live/../x HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(client.receive().expect("the event loop goes on").status(), 404);
    }
    let metrics = get_with(http, "/metrics", &[]);
    let held_back = metrics.text().lines().find_map(|line| {
        line.strip_prefix("headwater_log_lines_held_back_total ")?.parse::<u32>().ok()
    });
    let held_back = held_back.expect("it is counted");
    // On a slow machine this takes longer than the limit's period, and more lines are held back.
    assert!((1..=200).contains(&held_back), "{held_back}");

    // At last somebody reads. The lines that fitted in the queue are there, and the number of the
    // others.
    let mut log = String::new();
    server.stop(&mut log);
    assert_eq!(log.matches("/live/../x").count() + held_back as usize, 400, "{log}");
    assert!(log.contains("some were not logged lines="), "{log}");
}

/// Media one after the other, by kind.
#[derive(Default)]
struct Media {
    video: Vec<u8>,
    audio: Vec<u8>,
}

impl Media {
    /// The clip's first seconds, as messages of RTMP.
    fn messages(seconds: u32) -> Self {
        Self::of_clip(seconds, |_| 0)
    }

    /// The access units in these messages.
    fn units(seconds: u32) -> Self {
        Self::of_clip(seconds, |kind| if kind == TagKind::Video { 5 } else { 2 })
    }

    fn of_clip(seconds: u32, head: impl Fn(TagKind) -> usize) -> Self {
        let mut media = Self::default();
        for (_, message) in (0..seconds).flat_map(of_second) {
            media.add(message.kind(), &message.payload()[head(message.kind())..]);
        }
        media
    }

    fn add(&mut self, kind: TagKind, bytes: &[u8]) {
        let of_kind = if kind == TagKind::Video { &mut self.video } else { &mut self.audio };
        of_kind.extend_from_slice(bytes);
    }

    /// Adds what a viewer is sent until it has the video of `wanted`. It must be what there is in
    /// `published`, in order.
    #[track_caller]
    fn take(&mut self, wanted: &Self, published: &Self, mut next: impl FnMut() -> Option<Sent>) {
        let begun = Instant::now();
        while self.video.len() < wanted.video.len() {
            assert!(begun.elapsed() < LIMIT, "{} bytes of video", self.video.len());
            let sent = next().expect("it goes on");
            self.add(sent.kind, &sent.bytes);
        }
        assert!(published.video.starts_with(&self.video), "{} bytes of video", self.video.len());
        assert!(published.audio.starts_with(&self.audio), "{} bytes of audio", self.audio.len());
    }
}

/// While nobody reads the log, it has lines about a publisher and its tracks, and about publishers
/// and players that are refused. Those who watch are sent all media, in order.
#[test]
fn media_go_on_while_nobody_reads_the_log() {
    const SECONDS: u32 = 12;
    // On a slow machine, publisher and viewer are not given up.
    let mut server = Unread::start(
        "[rtmp]\nmax_players = 1\n[live]\nsilence = \"5m\"\n[push]\nping_interval = \"5m\"\n",
    );
    let rtmp = server.rtmp;
    let mut publisher = Client::publish(rtmp, "live/x");
    announce(&mut publisher);
    send_second(&mut publisher, 0, ALL);
    let mut player = Client::play(rtmp, "live/x");
    let mut viewer = push::Client::connect(server.http, "/live/x/push");
    let (messages, units) = (Media::messages(SECONDS), Media::units(SECONDS));
    let (mut played, mut pushed) = (Media::default(), Media::default());
    for second in 1..SECONDS {
        let refused = Client::try_publish(rtmp, "live/x").err();
        assert_eq!(refused.as_deref(), Some("NetStream.Publish.BadName"));
        let config = rtmp::config(rtmp, "live/x", Purpose::Play(PlayStart::Live));
        let refused = Client::connect(rtmp, config, rtmp::is_started).err();
        assert_eq!(refused.as_deref(), Some("NetStream.Play.Failed"));

        send_second(&mut publisher, second, ALL);
        // The last part of this second may wait for the next frame.
        let next = || next_of_rtmp(&mut player);
        played.take(&Media::messages(second), &messages, next);
        let next = || next_of_push(&mut viewer, |_| {});
        pushed.take(&Media::units(second), &units, next);
    }
    assert!(played.audio.len() > messages.audio.len() / 2);
    assert!(pushed.audio.len() > units.audio.len() / 2);
    publisher.finish();
    drop((player, viewer));

    // All of that was logged.
    let (mut log, begun) = (String::new(), Instant::now());
    while !log.contains(" publisher left ") {
        assert!(begun.elapsed() < LIMIT, "{log}");
        assert!(server.read(&mut log), "{log}");
    }
    server.stop(&mut log);
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(lines(": publisher peer="), 1, "{log}");
    assert_eq!(lines(": track "), 2, "{log}");
    let refused = SECONDS as usize - 1;
    assert_eq!(lines(": publish refused peer="), refused, "{log}");
    assert_eq!(lines(": play refused: too many players peer="), refused, "{log}");
}
