//! A server over a folder of files, what ffmpeg makes of what is received, and a player that is told
//! what to do.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::rtmp::{ClientConfig, ClientEvent, ClientSession, PlayStart, Purpose, Url};
use testkit::Server;

/// Nothing that is waited for may take longer, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// A server whose files are those of `root`.
#[track_caller]
pub(crate) fn server(root: &Path) -> Server {
    let binary = env!("CARGO_BIN_EXE_headwater");
    Server::start(binary, [OsStr::new("--vod"), root.as_os_str()])
}

/// A server over the test media with these options in `[vod]`.
#[track_caller]
pub(crate) fn server_with(vod: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("headwater.toml");
    let root = testkit::media_dir();
    std::fs::write(&path, format!("[vod]\nroot = {:?}\n{vod}\n", root.to_str().unwrap())).unwrap();
    Server::start(env!("CARGO_BIN_EXE_headwater"), [OsStr::new("--config"), path.as_os_str()])
}

/// A file of the test media.
pub(crate) fn media(name: &str) -> PathBuf {
    testkit::clip(name)
}

/// The access units of the first video and the first audio stream of a file or URL that ends, in
/// decode order: presentation time in milliseconds, and MD5.
#[track_caller]
pub(crate) fn units(input: &str) -> [Vec<(i64, String)>; 2] {
    let mut streams = [Vec::new(), Vec::new()];
    let packets = testkit::ffprobe_packets(input);
    for (kind, units) in ["video", "audio"].into_iter().zip(&mut streams) {
        let Some(packet) = packets.iter().find(|packet| packet.kind == kind) else { continue };
        let index = packet.stream_index;
        let all = testkit::access_unit_hashes_with(input, &["-copyts"], &[]);
        let of_stream = all.into_iter().filter(|unit| unit.stream_index == index);
        *units = of_stream.map(|unit| ((unit.pts_time() * 1000.0) as i64, unit.md5)).collect();
    }
    streams
}

/// Only the bytes of [`units`].
pub(crate) fn hashes(units: &[(i64, String)]) -> Vec<&str> {
    units.iter().map(|(_, md5)| md5.as_str()).collect()
}

/// A media message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) video: bool,
    pub(crate) timestamp: u32,
    pub(crate) payload: Bytes,
    /// Since the player asked to play.
    pub(crate) at: Duration,
}

impl Message {
    /// Whether it says how to decode rather than what (legacy AVC and AAC).
    pub(crate) fn is_header(&self) -> bool {
        self.payload.get(1) == Some(&0)
    }

    pub(crate) fn is_keyframe(&self) -> bool {
        self.video && !self.is_header() && self.payload.first().is_some_and(|b| b >> 4 == 1)
    }
}

/// A player on a connection of its own.
pub(crate) struct Player {
    socket: TcpStream,
    session: ClientSession,
    started: Instant,
    /// Media received so far, headers included.
    pub(crate) media: Vec<Message>,
    /// How much of it had come before the event last waited for.
    pub(crate) mark: usize,
    /// What else came, and after how much media.
    events: VecDeque<(ClientEvent, usize)>,
    /// Values of `onMetaData`, the last received.
    pub(crate) metadata: Option<protocol::rtmp::amf0::Value>,
}

impl Player {
    /// Asks for `name` below `vod/`, `duration` milliseconds from `start` on.
    #[track_caller]
    pub(crate) fn new(
        server: &Server,
        name: &str,
        start: PlayStart,
        duration: Option<f64>,
    ) -> Self {
        let socket = TcpStream::connect(server.rtmp).unwrap();
        Self::over(socket, server, name, start, duration)
    }

    /// One by a connection of the test's own.
    #[track_caller]
    pub(crate) fn over(
        socket: TcpStream,
        server: &Server,
        name: &str,
        start: PlayStart,
        duration: Option<f64>,
    ) -> Self {
        let url = Url::parse(&server.rtmp_url(&format!("vod/{name}"))).unwrap();
        let mut config = ClientConfig::new(&url, Purpose::Play(start));
        config.duration = duration;
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let session = ClientSession::new(config, 1);
        let (started, media, events) = (Instant::now(), Vec::new(), VecDeque::new());
        Self { socket, session, started, media, mark: 0, events, metadata: None }
    }

    /// The next event that is not media and that `wanted` accepts; those before it are dropped. What
    /// media came before it is told by [`Player::mark`].
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: impl Fn(&ClientEvent) -> bool) -> ClientEvent {
        let deadline = Instant::now() + LIMIT;
        loop {
            while let Some((event, mark)) = self.events.pop_front() {
                if wanted(&event) {
                    self.mark = mark;
                    return event;
                }
            }
            assert!(Instant::now() < deadline, "no such event in time");
            self.take_in();
        }
    }

    /// Takes in what comes until there are so many media messages.
    #[track_caller]
    pub(crate) fn until_media(&mut self, count: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.media.len() < count {
            assert!(Instant::now() < deadline, "{} messages of {count}", self.media.len());
            self.take_in();
        }
    }

    /// What comes during so long is taken in.
    pub(crate) fn listen(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            self.take_in();
        }
    }

    /// What comes during so long is taken in, so many bytes a second.
    #[track_caller]
    pub(crate) fn listen_slowly(&mut self, time: Duration, rate: f64) {
        let (began, mut taken) = (Instant::now(), 0);
        while began.elapsed() < time {
            let due = (rate * began.elapsed().as_secs_f64()) as usize;
            taken += self.read(due.saturating_sub(taken).max(1));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One read, and all that is in it.
    fn take_in(&mut self) {
        self.read(64 << 10);
    }

    /// One read of at most so many bytes, and all that is in it; how many there were.
    #[track_caller]
    fn read(&mut self, most: usize) -> usize {
        self.flush();
        let mut buffer = vec![0; most];
        let size = match self.socket.read(&mut buffer) {
            Ok(0) => panic!("closed by the server"),
            Ok(size) => size,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return 0;
            }
            Err(error) => panic!("{error}"),
        };
        let mut input = &buffer[..size];
        while !input.is_empty() {
            let taken = self.session.handle_input(input).unwrap();
            input = &input[taken..];
            while let Some(event) = self.session.poll_event() {
                self.handle(event);
            }
            self.flush();
        }
        size
    }

    fn handle(&mut self, event: ClientEvent) {
        let at = self.started.elapsed();
        match event {
            ClientEvent::Video { timestamp, payload } => {
                self.media.push(Message { video: true, timestamp, payload, at });
            }
            ClientEvent::Audio { timestamp, payload } => {
                self.media.push(Message { video: false, timestamp, payload, at });
            }
            ClientEvent::Metadata { mut values, .. } => {
                if values.first().and_then(|name| name.as_str()) == Some("onMetaData") {
                    self.metadata = values.pop();
                }
            }
            event => {
                if matches!(event, ClientEvent::Started) {
                    self.started = Instant::now();
                }
                self.events.push_back((event, self.media.len()));
            }
        }
    }

    fn flush(&mut self) {
        while let Some(piece) = self.session.poll_output() {
            self.socket.write_all(&piece).unwrap();
        }
    }

    /// What a client may ask for; it is sent at once.
    pub(crate) fn ask(
        &mut self,
        request: impl FnOnce(&mut ClientSession) -> Result<(), protocol::rtmp::Error>,
    ) {
        request(&mut self.session).unwrap();
        self.flush();
    }

    /// Takes in everything up to the end of the film.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        let end = self.until(|event| matches!(event, ClientEvent::Ended { .. }));
        let code = "NetStream.Play.Complete".to_owned();
        assert_eq!(end, ClientEvent::Ended { code, description: String::new() });
    }

    /// The pictures and sounds received, without headers.
    pub(crate) fn frames(&self) -> Vec<&Message> {
        self.media.iter().filter(|message| !message.is_header()).collect()
    }
}
