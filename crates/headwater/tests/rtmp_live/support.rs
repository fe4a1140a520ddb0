//! A publisher whose access units all differ, players that read as the test says, and checks of
//! what they receive.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use media::flv::TagKind;
use protocol::rtmp::{ClientConfig, ClientEvent, PlayStart, PublishKind, Purpose, Url};
use testkit::rtmp::{self, Client};
use testkit::{NO_ARGUMENTS, Server};

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Time between frames of video, in milliseconds.
const VIDEO_INTERVAL: u32 = 40;

/// When an access unit of audio begins, in milliseconds. It has 1,024 samples of 48,000 a second.
fn audio_at(number: u32) -> u32 {
    number * 64 / 3
}

/// Number of frames from one keyframe to the next.
const GROUP: u32 = 25;

/// Mean size of a frame in bytes. This makes some 4 Mbit/s, which fill a socket in a fraction of a
/// second.
const SIZE: usize = 20_000;

/// Starts a server that keeps everything for players that are behind. A stream ends
/// soon after its publisher has left.
#[track_caller]
pub(crate) fn server(options: &str) -> Server {
    server_waiting(options, "2s")
}

/// Like [`server`], with a stream that ends only so long after its publisher has left.
#[track_caller]
pub(crate) fn server_waiting(options: &str, reconnect: &str) -> Server {
    let configuration = format!(
        "{options}\n[http]\nsend_timeout = \"1m\"\n\
         [live]\nwindow = \"2m\"\nreconnect = \"{reconnect}\"\nsilence = \"1m\"\nviewer_queue = \"1GiB\"\nviewer_patience = \"1m\"\n"
    );
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &configuration, NO_ARGUMENTS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Video,
    Audio,
}

/// One access unit, as published or as played.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) kind: Kind,
    pub(crate) time: u32,
    pub(crate) payload: Bytes,
    /// The configuration that decodes it.
    pub(crate) config: Bytes,
}

impl Unit {
    fn is_keyframe(&self) -> bool {
        self.kind == Kind::Video && self.payload[0] == 0x17
    }
}

/// Connects and asks for a stream. `buffer` bounds the receive buffer, in bytes.
#[track_caller]
fn connect(address: SocketAddr, name: &str, purpose: Purpose, buffer: Option<usize>) -> Client {
    let socket = match buffer {
        Some(buffer) => testkit::narrow_socket(address, buffer),
        None => TcpStream::connect(address),
    };
    let url = Url::parse(&format!("rtmp://{address}/{name}")).unwrap();
    let client = Client::over(socket.unwrap(), ClientConfig::new(&url, purpose));
    client.socket.set_read_timeout(Some(LIMIT)).unwrap();
    client.socket.set_write_timeout(Some(LIMIT)).unwrap();
    client
}

/// Reads once, at most `size` bytes. Returns false at the end.
#[track_caller]
fn read(client: &mut Client, size: usize, mut each: impl FnMut(ClientEvent)) -> bool {
    let read = match client.read(size) {
        Ok(read) => read,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
        Err(error) => panic!("{error}"),
    };
    while let Some(event) = client.poll() {
        each(event);
    }
    read > 0
}

/// Publishes in real time, and keeps the access units that it sent.
pub(crate) struct Publisher {
    client: Client,
    began: Instant,
    /// Time published so far, in milliseconds.
    at: u32,
    /// Number of access units of audio so far.
    audio_units: u32,
    /// Distinguishes this publication's units from those of others.
    mark: u8,
    configs: [Bytes; 2],
    pub(crate) sent: Vec<Unit>,
}

impl Publisher {
    #[track_caller]
    pub(crate) fn start(address: SocketAddr, name: &str, mark: u8) -> Self {
        let purpose = Purpose::Publish(PublishKind::Live);
        let mut client = connect(address, name, purpose, None);
        client.until(rtmp::is_started).expect("it may publish");
        let (began, configs, sent) = (Instant::now(), Default::default(), Vec::new());
        let mut publisher = Self { client, began, at: 0, audio_units: 0, mark, configs, sent };
        publisher.configure(31);
        publisher.send(Kind::Audio, 0, Bytes::from_static(&[0xaf, 0, 0x11, 0x90]));
        publisher
    }

    /// Changes the level of the video from here on, before a keyframe. `level` is ten times the
    /// level.
    pub(crate) fn configure(&mut self, level: u8) {
        let mut payload = vec![0x17, 0, 0, 0, 0];
        payload.extend(testkit::avc_record(level));
        self.send(Kind::Video, self.at, payload.into());
    }

    /// Publishes this many groups of pictures, a second each, and the audio beside them.
    pub(crate) fn run(&mut self, groups: u32) {
        let end = self.at + groups * GROUP * VIDEO_INTERVAL;
        while self.at < end {
            let due = Duration::from_millis(self.at.into());
            thread::sleep(due.saturating_sub(self.began.elapsed()));
            self.send(Kind::Video, self.at, self.video());
            self.at += VIDEO_INTERVAL;
            while audio_at(self.audio_units) < self.at {
                self.send(Kind::Audio, audio_at(self.audio_units), self.audio());
                self.audio_units += 1;
            }
        }
    }

    fn video(&self) -> Bytes {
        let number = self.at / VIDEO_INTERVAL;
        let (frame, nal) = if number.is_multiple_of(GROUP) { (0x17, 0x65) } else { (0x27, 0x41) };
        let mut payload = BytesMut::from(&[frame, 1, 0, 0, 0][..]);
        // The sizes of frames differ.
        let size = SIZE / 2 + (number as usize * 7919) % SIZE;
        payload.put_u32(u32::try_from(size).unwrap());
        payload.put_slice(&[nal, self.mark]);
        payload.put_u32(number);
        payload.put_bytes(number.to_le_bytes()[0] | 0x80, size - 6);
        payload.freeze()
    }

    fn audio(&self) -> Bytes {
        let mut payload = BytesMut::from(&[0xaf, 1, self.mark][..]);
        payload.put_u32(self.audio_units);
        payload.put_bytes(0x5a, 200);
        payload.freeze()
    }

    fn send(&mut self, kind: Kind, time: u32, payload: Bytes) {
        let config = &mut self.configs[kind as usize];
        if payload[1] == 0 {
            *config = payload.clone();
        } else {
            let (payload, config) = (payload.clone(), config.clone());
            self.sent.push(Unit { kind, time, payload, config });
        }
        let kind = match kind {
            Kind::Video => TagKind::Video,
            Kind::Audio => TagKind::Audio,
        };
        self.client.tag(kind, time, payload);
    }

    /// Ends the publication, and waits until the server has taken everything. Returns the units
    /// sent.
    #[track_caller]
    pub(crate) fn finish(self) -> Vec<Unit> {
        self.client.finish();
        self.sent
    }
}

/// A player and what it has received.
pub(crate) struct Player {
    client: Client,
    started: bool,
    configs: [Bytes; 2],
    pub(crate) got: Vec<Unit>,
}

impl Player {
    /// Starts a player, and waits for the server's answer. `buffer` bounds the receive buffer, in
    /// bytes.
    #[track_caller]
    pub(crate) fn start(address: SocketAddr, name: &str, buffer: Option<usize>) -> Self {
        let purpose = Purpose::Play(PlayStart::Live);
        let client = connect(address, name, purpose, buffer);
        let (configs, got) = (Default::default(), Vec::new());
        let mut player = Self { client, started: false, configs, got };
        while !player.started {
            assert!(player.read(4096), "the server closed the connection");
        }
        player
    }

    /// Reads once, at most `size` bytes. Returns false at the end.
    pub(crate) fn read(&mut self, size: usize) -> bool {
        let (started, configs, got) = (&mut self.started, &mut self.configs, &mut self.got);
        read(&mut self.client, size, |event| {
            let (kind, time, payload) = match event {
                ClientEvent::Audio { timestamp, payload } => (Kind::Audio, timestamp, payload),
                ClientEvent::Video { timestamp, payload } => (Kind::Video, timestamp, payload),
                ClientEvent::Started => return *started = true,
                _ => return,
            };
            let config = &mut configs[kind as usize];
            if payload[1] == 0 {
                *config = payload;
            } else {
                got.push(Unit { kind, time, payload, config: config.clone() });
            }
        })
    }

    /// Asks the server to pause or to go on.
    pub(crate) fn pause(&mut self, paused: bool) {
        self.client.session.pause(paused, 0.0).unwrap();
        self.client.flush();
    }

    /// Reads to the stream's end. Returns all units received.
    pub(crate) fn read_all(mut self) -> Vec<Unit> {
        while self.read(64 << 10) {}
        self.got
    }
}

/// Asserts that the units of one kind that a player got are a run of those sent, without gaps.
/// Returns the run's indices among those sent.
#[track_caller]
pub(crate) fn assert_run(who: &str, sent: &[Unit], got: &[Unit], kind: Kind) -> (usize, usize) {
    let sent: Vec<_> = sent.iter().filter(|unit| unit.kind == kind).collect();
    let got: Vec<_> = got.iter().filter(|unit| unit.kind == kind).collect();
    let first = got.first().unwrap_or_else(|| panic!("{who}: no {kind:?}"));
    let from = sent.iter().position(|unit| unit.payload == first.payload);
    let from = from.unwrap_or_else(|| panic!("{who}: {kind:?} that was not sent"));
    assert!(kind == Kind::Audio || sent[from].is_keyframe(), "{who}: begins at frame {from}");
    assert!(from + got.len() <= sent.len(), "{who}: {} {kind:?} from {from}", got.len());
    for (index, (got, sent)) in got.iter().zip(&sent[from..]).enumerate() {
        let at = from + index;
        assert!(got.payload == sent.payload, "{who}: {kind:?} {at} is another");
        assert!(got.config == sent.config, "{who}: {kind:?} {at} has another configuration");
    }
    (from, from + got.len())
}

/// Asserts that each player got a run of the units sent, at the same times as all other players.
/// For a player that stayed, the run must reach the end.
#[track_caller]
pub(crate) fn assert_all_got(sent: &[Unit], players: &[(String, bool, Vec<Unit>)]) {
    let mut times: HashMap<Bytes, u32> = HashMap::new();
    for (who, stayed, got) in players {
        for kind in [Kind::Video, Kind::Audio] {
            let (_, end) = assert_run(who, sent, got, kind);
            let all = sent.iter().filter(|unit| unit.kind == kind).count();
            assert!(!stayed || end == all, "{who}: {kind:?} to {end} of {all}");
        }
        for unit in got {
            let time = *times.entry(unit.payload.clone()).or_insert(unit.time);
            assert_eq!(unit.time, time, "{who}: {:?} at another time", unit.kind);
        }
    }
}
