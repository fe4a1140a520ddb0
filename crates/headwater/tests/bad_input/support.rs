//! A server with a configuration of the test's own, what it costs, and a publisher that sends what
//! it is told.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::flv::{Message, Packetizer, TagKind};
use media::mp4;
use protocol::rtmp::{
    Capabilities, ClientConfig, ClientEvent, ClientSession, PlayStart, PublishKind, Purpose,
};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use testkit::http::{Client as Http, Response};
use testkit::{Program, Server};

/// No wait in these tests is longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_headwater");

/// Short in everything, so that what takes three target durations takes three seconds.
pub(crate) const BRISK: &str = r#"
[live]
part_target = "200ms"
segment_target = "500ms"
target_duration = "1s"
window = "4s"
silence = "1s"
[rtmp]
setup_timeout = "1s"
"#;

pub(crate) struct Origin {
    server: Server,
    _folder: TempDir,
}

impl Deref for Origin {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Origin {
    #[track_caller]
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("headwater.toml");
        std::fs::write(&path, config).expect("it is ours");
        Self {
            server: Server::start(BINARY, [OsStr::new("--config"), path.as_os_str()]),
            _folder: folder,
        }
    }

    pub(crate) fn into_server(self) -> (Server, TempDir) {
        (self.server, self._folder)
    }

    /// Physical memory in KiB, as the kernel counts it.
    pub(crate) fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(path).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|number| number.trim().parse().ok()).expect("VmRSS in kB")
    }

    /// Log lines of level WARN or above that name this peer.
    pub(crate) fn warnings(&self, peer: SocketAddr) -> Vec<String> {
        let (log, peer) = (self.whole_log(), format!("peer={peer}"));
        let of_peer = |line: &&str| line.split(' ').any(|word| word == peer);
        let warns = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        log.lines().filter(warns).filter(of_peer).map(str::to_owned).collect()
    }

    /// The newest warning that names this peer, once there is one.
    #[track_caller]
    pub(crate) fn warning(&self, peer: SocketAddr) -> String {
        let peer = format!("peer={peer}");
        self.log_line(LIMIT, |line| {
            line.contains(" WARN ") && line.split(' ').any(|word| word == peer)
        })
    }

    /// `headwater publish` of the demo clip.
    #[track_caller]
    pub(crate) fn publish(&self, stream: &str, options: &[&str]) -> Program {
        publish(&testkit::demo_clip(), &self.rtmp_url(stream), options)
    }

    /// A whole media playlist.
    #[track_caller]
    pub(crate) fn playlist(&self, stream: &str, track: &str) -> Playlist {
        let path = format!("/{stream}/{track}/media.m3u8");
        let response = self.get_until(&path, LIMIT, |response| response.status() == 200);
        Playlist(response.text().to_owned())
    }

    /// Header and listed segments of a track, as one file.
    #[track_caller]
    pub(crate) fn fetch(&self, stream: &str, track: &str) -> Vec<u8> {
        let playlist = self.playlist(stream, track);
        let mut bytes = Vec::new();
        let header = playlist.value("#EXT-X-MAP:URI=").trim_matches('"').to_owned();
        for file in std::iter::once(header).chain(playlist.segments()) {
            let response = self.get(&format!("/{stream}/{track}/{file}"));
            assert_eq!(response.status(), 200, "{file}: {response:?}");
            bytes.extend_from_slice(&response.body);
        }
        bytes
    }

    /// What ffprobe makes of a track's listed segments; it must not complain.
    #[track_caller]
    pub(crate) fn probe(&self, stream: &str, track: &str) -> Vec<testkit::Packet> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("track.mp4");
        std::fs::write(&file, self.fetch(stream, track)).expect("it is ours");
        testkit::ffprobe_packets(&file)
    }
}

#[track_caller]
pub(crate) fn publish(input: &std::path::Path, url: &str, options: &[&str]) -> Program {
    Program::spawn(Command::new(BINARY).arg("publish").arg(input).arg(url).args(options))
}

/// A media playlist's text.
#[derive(Debug)]
pub(crate) struct Playlist(pub(crate) String);

impl Playlist {
    /// What follows `prefix` on the first line that begins with it.
    #[track_caller]
    pub(crate) fn value(&self, prefix: &str) -> &str {
        let found = self.0.lines().find_map(|line| line.strip_prefix(prefix));
        found.unwrap_or_else(|| panic!("no {prefix}: {}", self.0))
    }

    pub(crate) fn first_msn(&self) -> u64 {
        self.value("#EXT-X-MEDIA-SEQUENCE:").parse().expect("a number")
    }

    /// Names of the complete segments.
    pub(crate) fn segments(&self) -> Vec<String> {
        self.0
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }

    /// Number of the segment being made, or to be made next.
    pub(crate) fn open_msn(&self) -> u64 {
        self.first_msn() + self.segments().len() as u64
    }

    /// Segment and number of every part.
    pub(crate) fn parts(&self) -> Vec<(u64, u64)> {
        let part = |line: &str| {
            let (_, rest) = line.split_once("URI=\"")?;
            let name = rest.split_once(".m4s")?.0;
            let (msn, part) = name.split_once('.')?;
            Some((msn.parse().ok()?, part.parse().ok()?))
        };
        let lines = self.0.lines().filter(|line| line.starts_with("#EXT-X-PART:"));
        lines.map(|line| part(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    pub(crate) fn discontinuities(&self) -> usize {
        self.0.lines().filter(|line| *line == "#EXT-X-DISCONTINUITY").count()
    }
}

/// The demo clip as RTMP messages, the times in milliseconds.
pub(crate) fn clip() -> &'static [Message] {
    static CLIP: OnceLock<Vec<Message>> = OnceLock::new();
    CLIP.get_or_init(|| {
        let file = Bytes::from(std::fs::read(testkit::demo_clip()).expect("the demo clip"));
        let index = mp4::Index::read(&file).expect("the demo clip is an MP4");
        let packetizers: Vec<_> = index
            .tracks
            .iter()
            .map(|track| Packetizer::new(0, &track.track.codec, track.track.timescale))
            .collect::<Result<_, _>>()
            .expect("FLV has its codecs");
        let headers = packetizers.iter().map(|packetizer| packetizer.sequence_header(0));
        let samples = mp4::Reader::new(index.merge(0..index.tracks.len()), &file).map(|read| {
            let read = read.expect("the demo clip is whole");
            packetizers[read.track].sample(&read.sample)
        });
        headers.chain(samples).collect::<Result<_, _>>().expect("they fit in messages")
    })
}

/// An RTMP client whose every byte is the test's.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    pub(crate) session: ClientSession,
    /// Received, and not yet taken in.
    unread: Vec<u8>,
}

impl Client {
    /// Connects, and does as much as `until` wants done.
    #[track_caller]
    pub(crate) fn connect(
        address: SocketAddr,
        name: &str,
        purpose: Purpose,
        until: impl Fn(&ClientEvent) -> bool,
    ) -> Result<Self, String> {
        let capabilities = Capabilities { caps_ex: 0, ..Capabilities::forward_all() };
        Self::connect_as(address, name, purpose, capabilities, until)
    }

    /// The same as a client that says this of itself.
    #[track_caller]
    pub(crate) fn connect_as(
        address: SocketAddr,
        name: &str,
        purpose: Purpose,
        capabilities: Capabilities,
        until: impl Fn(&ClientEvent) -> bool,
    ) -> Result<Self, String> {
        let socket = TcpStream::connect_timeout(&address, LIMIT).expect("the server listens");
        let mut client = Self::over(socket, name, purpose, capabilities);
        client.until(until)?;
        Ok(client)
    }

    /// One that has a connection, and has heard nothing yet.
    #[track_caller]
    fn over(socket: TcpStream, name: &str, purpose: Purpose, capabilities: Capabilities) -> Self {
        let address = socket.peer_addr().expect("it is connected");
        socket.set_read_timeout(Some(LIMIT)).expect("not zero");
        socket.set_write_timeout(Some(LIMIT)).expect("not zero");
        socket.set_nodelay(true).expect("it is a TCP socket");
        let url = protocol::rtmp::Url::parse(&format!("rtmp://{address}/{name}")).expect("a URL");
        let config = ClientConfig { capabilities, ..ClientConfig::new(&url, purpose) };
        let session = ClientSession::new(config, 1);
        Self { socket, session, unread: Vec::new() }
    }

    /// A publisher that has this address of its own; code and reason of the refusal where it may not.
    #[track_caller]
    pub(crate) fn try_publish_from(
        from: [u8; 4],
        address: SocketAddr,
        name: &str,
    ) -> Result<Self, (String, String)> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((from, 0)).into()).expect("an address of this machine");
        socket.connect_timeout(&address.into(), LIMIT).expect("the server listens");
        let capabilities = Capabilities { caps_ex: 0, ..Capabilities::forward_all() };
        let purpose = Purpose::Publish(PublishKind::Live);
        let mut client = Self::over(socket.into(), name, purpose, capabilities);
        loop {
            match client.next() {
                Some(ClientEvent::Started) => return Ok(client),
                Some(ClientEvent::Rejected { code, description }) => {
                    return Err((code, description));
                }
                Some(_) => {}
                None => panic!("the server closed the connection"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn publish(address: SocketAddr, name: &str) -> Self {
        Self::try_publish(address, name).expect("it may publish")
    }

    /// The code of the refusal where it may not.
    #[track_caller]
    pub(crate) fn try_publish(address: SocketAddr, name: &str) -> Result<Self, String> {
        let started = |event: &ClientEvent| matches!(event, ClientEvent::Started);
        Self::connect(address, name, Purpose::Publish(PublishKind::Live), started)
    }

    #[track_caller]
    pub(crate) fn play(address: SocketAddr, name: &str) -> Self {
        let started = |event: &ClientEvent| matches!(event, ClientEvent::Started);
        Self::connect(address, name, Purpose::Play(PlayStart::Live), started).expect("it may play")
    }

    /// Reads until `done`, or a refusal: its code.
    pub(crate) fn until(&mut self, done: impl Fn(&ClientEvent) -> bool) -> Result<(), String> {
        loop {
            match self.next() {
                Some(event) if done(&event) => return Ok(()),
                Some(ClientEvent::Rejected { code, .. }) => return Err(code),
                Some(_) => {}
                None => panic!("the server closed the connection"),
            }
        }
    }

    /// Reads until the server says that this cannot go on, and why: with these words.
    #[track_caller]
    pub(crate) fn until_failed(&mut self, why: &str) {
        let end = self.rest().into_iter().find_map(|event| match event {
            ClientEvent::Ended { code, description } => Some((code, description)),
            _ => None,
        });
        let (code, description) = end.expect("the server says that it is over");
        assert_eq!(code, "NetStream.Failed");
        assert!(description.contains(why), "{description}");
    }

    /// What the server says until it closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<ClientEvent> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// The next event; `None` when the server has closed the connection.
    pub(crate) fn next(&mut self) -> Option<ClientEvent> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(event) = self.session.poll_event() {
                return Some(event);
            }
            let taken = self.session.handle_input(&self.unread).expect("the server speaks RTMP");
            self.unread.drain(..taken);
            self.flush();
            if taken == 0 {
                let size = self.socket.read(&mut buffer).expect("the server answers");
                self.unread.extend_from_slice(&buffer[..size]);
                if size == 0 {
                    return None;
                }
            }
        }
    }

    /// Sends what the session has to say; that the server may have gone is the test's to find out.
    pub(crate) fn flush(&mut self) {
        while let Some(piece) = self.session.poll_output() {
            let _ = self.socket.write_all(&piece);
        }
    }

    pub(crate) fn send(&mut self, message: &Message) {
        self.tag(message.kind(), message.timestamp(), message.payload());
    }

    pub(crate) fn tag(&mut self, kind: TagKind, time: u32, payload: Bytes) {
        match kind {
            TagKind::Audio => self.session.send_audio(time, payload),
            TagKind::Video => self.session.send_video(time, payload),
            TagKind::Script => self.session.send_metadata(time, &payload),
        }
        .expect("publishing");
        self.flush();
    }

    /// Sends bytes past the session; false if the server has gone.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it was connected")
    }

    /// Whether the server closes the connection within `limit`; what it says before is dropped.
    pub(crate) fn is_closed_within(&mut self, limit: Duration) -> bool {
        is_closed_within(&mut self.socket, limit)
    }

    /// Says that it is over, and waits until the server has taken everything.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        self.session.close();
        self.flush();
        self.socket.shutdown(std::net::Shutdown::Write).expect("the server is there");
        assert!(self.is_closed_within(LIMIT), "the server keeps a publisher that is done");
    }
}

pub(crate) fn is_closed_within(socket: &mut TcpStream, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let mut buffer = [0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        socket.set_read_timeout(Some(left)).expect("not zero");
        match socket.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return error.kind() != ErrorKind::Interrupted,
        }
    }
}

/// A viewer of push, which hears what it is sent.
pub(crate) struct Push {
    socket: TcpStream,
    input: Vec<u8>,
}

impl Push {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr, path: &str) -> Self {
        let mut client = Http::connect(address, LIMIT).expect("the server listens");
        let fields = [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Sec-WebSocket-Protocol", "headwater.v1"),
        ];
        client.send("GET", path, &fields, b"").expect("the server is there");
        let (head, _) = client.begin().expect("the server answers");
        assert_eq!(head.status, 101, "{head:?}");
        let (socket, input) = client.into_parts();
        socket.set_read_timeout(Some(LIMIT)).expect("not zero");
        Self { socket, input }
    }

    /// The next message: its opcode (RFC 6455 5.2), and what is in it; `None` when the server has closed
    /// the connection.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(message) = self.take() {
                return Some(message);
            }
            let size = self.socket.read(&mut buffer).expect("the server goes on");
            self.input.extend_from_slice(&buffer[..size]);
            if size == 0 {
                return None;
            }
        }
    }

    fn take(&mut self) -> Option<(u8, Vec<u8>)> {
        let (&first, &second) = (self.input.first()?, self.input.get(1)?);
        let (head, size) = match second {
            126 => (4, usize::from(u16::from_be_bytes(*self.input.get(2..4)?.first_chunk()?))),
            127 => (10, u64::from_be_bytes(*self.input.get(2..10)?.first_chunk()?) as usize),
            short => (2, usize::from(short)),
        };
        let payload = self.input.get(head..head + size)?.to_vec();
        self.input.drain(..head + size);
        Some((first & 0x0f, payload))
    }
}

/// Number of the track that a chunk is of, and the decode time of its first sample in the track's timescale
/// (14496-12, 8.8.7 and 8.8.12).
#[track_caller]
pub(crate) fn place_of(chunk: &[u8]) -> (u32, u64) {
    let find = |name: &[u8; 4]| {
        let at = chunk.windows(4).position(|four| four == name).expect("a chunk");
        &chunk[at + 4..]
    };
    let number = |bytes: &[u8]| u32::from_be_bytes(*bytes.first_chunk().expect("a number"));
    let (header, time) = (find(b"tfhd"), find(b"tfdt"));
    let time = match time[0] {
        0 => number(&time[4..]).into(),
        _ => u64::from_be_bytes(*time[4..].first_chunk().expect("a time")),
    };
    (number(&header[4..]), time)
}

/// Pseudo-random bytes, the same in every run (xorshift64).
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

/// Whether an answer is an error as a player should see it: short and plain.
#[track_caller]
pub(crate) fn assert_refused(response: &Response, status: u16) {
    assert_eq!(response.status(), status, "{response:?}");
    assert!(response.body.len() < 256, "{response:?}");
    let kind = response.header("Content-Type").expect("a body has a type");
    assert!(kind.starts_with("text/plain"), "{response:?}");
}
