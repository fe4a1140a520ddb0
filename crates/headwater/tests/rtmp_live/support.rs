//! A publisher of frames that are told apart, players that read as they like, and what is compared.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use protocol::rtmp::{
    ClientConfig, ClientEvent, ClientSession, PlayStart, PublishKind, Purpose, Url,
};
use socket2::{Domain, Socket, Type};
use testkit::Server;

/// No wait in these tests is longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Milliseconds between pictures.
const PICTURE: u32 = 40;

/// When an access unit of sound begins, in milliseconds: 1,024 samples of 48,000 a second.
fn sound_at(number: u32) -> u32 {
    number * 64 / 3
}

/// Pictures from one keyframe to the next.
const GROUP: u32 = 25;

/// Bytes of a picture: some 4 Mbit/s, which fill a socket in a fraction of a second.
const SIZE: usize = 20_000;

/// A server that keeps everything for players that are behind, and lets streams end soon.
#[track_caller]
pub(crate) fn server(options: &str) -> Server {
    server_with(options, "1m")
}

/// One that closes the connections of players that take nothing for `send_timeout`.
#[track_caller]
pub(crate) fn server_with(options: &str, send_timeout: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("headwater.toml");
    let config = format!(
        "{options}\n[http]\nsend_timeout = \"{send_timeout}\"\n\
         [live]\nwindow = \"2m\"\nreconnect = \"2s\"\nsilence = \"1s\"\nviewer_queue = \"1GiB\"\nviewer_patience = \"1m\"\n"
    );
    std::fs::write(&path, config).unwrap();
    Server::start(env!("CARGO_BIN_EXE_headwater"), [OsStr::new("--config"), path.as_os_str()])
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
    /// The configuration in force.
    pub(crate) config: Bytes,
}

impl Unit {
    fn is_keyframe(&self) -> bool {
        self.kind == Kind::Video && self.payload[0] == 0x17
    }
}

/// Pseudo-random numbers, the same in every run (xorshift64).
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

struct Client {
    socket: TcpStream,
    session: ClientSession,
}

impl Client {
    #[track_caller]
    fn connect(address: SocketAddr, name: &str, purpose: Purpose, buffer: Option<usize>) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        if let Some(buffer) = buffer {
            socket.set_recv_buffer_size(buffer).unwrap();
        }
        socket.connect(&address.into()).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        let url = Url::parse(&format!("rtmp://{address}/{name}")).unwrap();
        let session = ClientSession::new(ClientConfig::new(&url, purpose), 1);
        Self { socket, session }
    }

    /// Reads once, at most `size` bytes; false at the end.
    fn read(&mut self, size: usize, mut each: impl FnMut(ClientEvent)) -> bool {
        self.flush();
        let mut buffer = vec![0; size];
        let read = match self.socket.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("{error}"),
        };
        let mut input = &buffer[..read];
        while !input.is_empty() {
            let taken = self.session.handle_input(input).expect("the server speaks RTMP");
            input = &input[taken..];
            while let Some(event) = self.session.poll_event() {
                each(event);
            }
            self.flush();
        }
        read > 0
    }

    fn flush(&mut self) {
        while let Some(piece) = self.session.poll_output() {
            let _ = self.socket.write_all(&piece);
        }
    }

    #[track_caller]
    fn started(mut self) -> Self {
        let mut started = false;
        while !started {
            assert!(self.read(4096, |event| started |= matches!(event, ClientEvent::Started)));
        }
        self
    }
}

/// Publishes in real time, and remembers what.
pub(crate) struct Publisher {
    client: Client,
    began: Instant,
    /// Milliseconds so far, and access units of sound.
    at: u32,
    sounds: u32,
    /// Tells this publication's units from those of others.
    mark: u8,
    configs: [Bytes; 2],
    pub(crate) sent: Vec<Unit>,
}

impl Publisher {
    #[track_caller]
    pub(crate) fn start(address: SocketAddr, name: &str, mark: u8) -> Self {
        let purpose = Purpose::Publish(PublishKind::Live);
        let client = Client::connect(address, name, purpose, None).started();
        let (began, configs, sent) = (Instant::now(), Default::default(), Vec::new());
        let mut publisher = Self { client, began, at: 0, sounds: 0, mark, configs, sent };
        publisher.configure(31);
        publisher.send(Kind::Audio, 0, Bytes::from_static(&[0xaf, 0, 0x11, 0x90]));
        publisher
    }

    /// Pictures are of this level from here on, ten times the number; to be said at a keyframe.
    pub(crate) fn configure(&mut self, level: u8) {
        let mut payload = vec![0x17, 0, 0, 0, 0];
        payload.extend(testkit::avc_record(level));
        self.send(Kind::Video, self.at, payload.into());
    }

    /// Publishes groups of pictures, a second each, and the sound that goes with them.
    pub(crate) fn run(&mut self, groups: u32) {
        let end = self.at + groups * GROUP * PICTURE;
        while self.at < end {
            let due = Duration::from_millis(self.at.into());
            thread::sleep(due.saturating_sub(self.began.elapsed()));
            self.send(Kind::Video, self.at, self.picture());
            self.at += PICTURE;
            while sound_at(self.sounds) < self.at {
                self.send(Kind::Audio, sound_at(self.sounds), self.sound());
                self.sounds += 1;
            }
        }
    }

    fn picture(&self) -> Bytes {
        let number = self.at / PICTURE;
        let (frame, nal) = if number.is_multiple_of(GROUP) { (0x17, 0x65) } else { (0x27, 0x41) };
        let mut payload = BytesMut::from(&[frame, 1, 0, 0, 0][..]);
        // Not all are of one size.
        let size = SIZE / 2 + (number as usize * 7919) % SIZE;
        payload.put_u32(u32::try_from(size).unwrap());
        payload.put_slice(&[nal, self.mark]);
        payload.put_u32(number);
        payload.put_bytes(number.to_le_bytes()[0] | 0x80, size - 6);
        payload.freeze()
    }

    fn sound(&self) -> Bytes {
        let mut payload = BytesMut::from(&[0xaf, 1, self.mark][..]);
        payload.put_u32(self.sounds);
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
        match kind {
            Kind::Video => self.client.session.send_video(time, payload),
            Kind::Audio => self.client.session.send_audio(time, payload),
        }
        .unwrap();
        self.client.flush();
    }

    /// Says that it is over, and waits until the server has taken everything; what was sent.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Vec<Unit> {
        self.client.session.close();
        self.client.flush();
        self.client.socket.shutdown(std::net::Shutdown::Write).unwrap();
        while self.client.read(4096, |_| {}) {}
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
    /// One that is answered, with so large a receive buffer, if that is to be bounded.
    #[track_caller]
    pub(crate) fn start(address: SocketAddr, name: &str, buffer: Option<usize>) -> Self {
        let purpose = Purpose::Play(PlayStart::Live);
        let client = Client::connect(address, name, purpose, buffer);
        let (configs, got) = (Default::default(), Vec::new());
        let mut player = Self { client, started: false, configs, got };
        while !player.started {
            assert!(player.read(4096), "the server closed the connection");
        }
        player
    }

    /// Reads once, at most `size` bytes; false at the end.
    pub(crate) fn read(&mut self, size: usize) -> bool {
        let (started, configs, got) = (&mut self.started, &mut self.configs, &mut self.got);
        self.client.read(size, |event| {
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

    /// Pauses or goes on.
    pub(crate) fn pause(&mut self, paused: bool) {
        self.client.session.pause(paused, 0.0).unwrap();
        self.client.flush();
    }

    /// All up to the stream's end.
    pub(crate) fn read_all(mut self) -> Vec<Unit> {
        while self.read(64 << 10) {}
        self.got
    }
}

/// Where the units of one kind that a player got are among those sent: a run without gaps.
#[track_caller]
pub(crate) fn assert_run(who: &str, sent: &[Unit], got: &[Unit], kind: Kind) -> (usize, usize) {
    let sent: Vec<_> = sent.iter().filter(|unit| unit.kind == kind).collect();
    let got: Vec<_> = got.iter().filter(|unit| unit.kind == kind).collect();
    let first = got.first().unwrap_or_else(|| panic!("{who}: no {kind:?}"));
    let from = sent.iter().position(|unit| unit.payload == first.payload);
    let from = from.unwrap_or_else(|| panic!("{who}: {kind:?} that was not sent"));
    assert!(kind == Kind::Audio || sent[from].is_keyframe(), "{who}: begins at picture {from}");
    assert!(from + got.len() <= sent.len(), "{who}: {} {kind:?} from {from}", got.len());
    for (index, (got, sent)) in got.iter().zip(&sent[from..]).enumerate() {
        let at = from + index;
        assert!(got.payload == sent.payload, "{who}: {kind:?} {at} is another");
        assert!(got.config == sent.config, "{who}: {kind:?} {at} has another configuration");
    }
    (from, from + got.len())
}

/// Asserts that each player got a run of what was sent, at the same times as all others; those that
/// stayed, up to the end.
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
