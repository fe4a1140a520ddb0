//! A server with a configuration of the test's own, its warnings and its media, and publishers.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use media::flv::{Message, Packetizer, TagKind};
use media::mp4;
use protocol::rtmp::{ClientEvent, PublishKind, Purpose};
use socket2::{Domain, Socket, Type};
use testkit::http::Response;
use testkit::rtmp::{self, Client};
use testkit::{NO_ARGUMENTS, Program, Server, playlist};

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_headwater");

/// A configuration with short durations: three target durations take three seconds. Its time-outs
/// are the defaults, because a busy machine may hold up a publisher for seconds.
pub(crate) const BRISK: &str = r#"
[live]
part_target = "200ms"
segment_target = "500ms"
target_duration = "1s"
window = "4s"
"#;

/// [`BRISK`] with these lines in `[live]`.
pub(crate) fn brisk(live: &str) -> String {
    BRISK.replace("[live]\n", &format!("[live]\n{live}\n"))
}

pub(crate) struct Origin(Server);

impl Deref for Origin {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Origin {
    #[track_caller]
    pub(crate) fn start(configuration: &str) -> Self {
        Self(Server::configured(BINARY, configuration, NO_ARGUMENTS))
    }

    pub(crate) fn into_server(self) -> Server {
        self.0
    }

    /// Log lines of level WARN or above that name this peer.
    pub(crate) fn warnings(&self, peer: SocketAddr) -> Vec<String> {
        let (log, peer) = (self.whole_log(), format!("peer={peer}"));
        let of_peer = |line: &&str| line.split(' ').any(|word| word == peer);
        let warns = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        log.lines().filter(warns).filter(of_peer).map(str::to_owned).collect()
    }

    /// Waits for the first warning that names this peer.
    #[track_caller]
    pub(crate) fn warning(&self, peer: SocketAddr) -> String {
        let peer = format!("peer={peer}");
        self.log_line(LIMIT, |line| {
            line.contains(" WARN ") && line.split(' ').any(|word| word == peer)
        })
    }

    /// Starts `headwater publish` with the demo clip.
    #[track_caller]
    pub(crate) fn publish(&self, stream: &str, options: &[&str]) -> Program {
        self.0.publish(testkit::demo_clip(), &self.rtmp_url(stream), options)
    }

    /// Waits for a track's media playlist.
    #[track_caller]
    pub(crate) fn playlist(&self, stream: &str, track: &str) -> Playlist {
        let path = format!("/{stream}/{track}/media.m3u8");
        let response = self.get_until(&path, LIMIT, |response| response.status() == 200);
        Playlist(response.text().to_owned())
    }

    /// Fetches the header and the listed segments of a track. Returns them as one file.
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

    /// The packets that ffprobe finds in a track's listed segments. Fails if ffprobe complains.
    #[track_caller]
    pub(crate) fn probe(&self, stream: &str, track: &str) -> Vec<testkit::Packet> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("track.mp4");
        std::fs::write(&file, self.fetch(stream, track)).expect("it is ours");
        testkit::ffprobe_packets(&file)
    }
}

/// A media playlist's text.
#[derive(Debug)]
pub(crate) struct Playlist(pub(crate) String);

impl Playlist {
    /// The rest of the first line that begins with `prefix`.
    #[track_caller]
    pub(crate) fn value(&self, prefix: &str) -> &str {
        let found = self.0.lines().find_map(|line| line.strip_prefix(prefix));
        found.unwrap_or_else(|| panic!("no {prefix}: {}", self.0))
    }

    pub(crate) fn first_msn(&self) -> u64 {
        self.value("#EXT-X-MEDIA-SEQUENCE:").parse().expect("a number")
    }

    /// File names of the complete segments.
    pub(crate) fn segments(&self) -> Vec<String> {
        playlist::listed(&self.0).map(str::to_owned).collect()
    }

    /// Number of the segment being made, or of the next one.
    pub(crate) fn open_msn(&self) -> u64 {
        self.first_msn() + self.segments().len() as u64
    }

    /// Number of every part, with the number of its segment before it.
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

/// The demo clip as RTMP messages, with times in milliseconds.
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

/// Video and audio, for [`send_second`].
pub(crate) const ALL: &[TagKind] = &[TagKind::Video, TagKind::Audio];

/// Sends only the configurations.
pub(crate) fn announce(client: &mut Client) {
    clip()[..2].iter().for_each(|header| client.send(header));
}

/// The clip's media of one second, with their times. The clip repeats every 16 seconds.
pub(crate) fn of_second(second: u32) -> impl Iterator<Item = (u32, &'static Message)> {
    let (turn, second) = (second / 16 * 16_000, second % 16);
    let messages = clip()[2..].iter().filter(move |message| message.timestamp() / 1000 == second);
    messages.map(move |message| (turn + message.timestamp(), message))
}

/// Publishes one second of the clip, which repeats every 16 seconds.
pub(crate) fn send_second(client: &mut Client, second: u32, kinds: &[TagKind]) {
    for (time, message) in of_second(second).filter(|(_, one)| kinds.contains(&one.kind())) {
        client.tag(message.kind(), time, message.payload());
    }
}

/// Connects a publisher from the address `from`. The error is the code and reason of the refusal.
#[track_caller]
pub(crate) fn try_publish_from(
    from: [u8; 4],
    address: SocketAddr,
    name: &str,
) -> Result<Client, (String, String)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("an address of this machine");
    socket.connect_timeout(&address.into(), LIMIT).expect("the server listens");
    let config = rtmp::config(address, name, Purpose::Publish(PublishKind::Live));
    let mut client = Client::over(socket.into(), config);
    loop {
        match client.next() {
            Some(ClientEvent::Started) => return Ok(client),
            Some(ClientEvent::Rejected { code, description }) => return Err((code, description)),
            Some(_) => {}
            None => panic!("the server closed the connection"),
        }
    }
}

/// Asserts that an answer is an error with this status, and a short plain text.
#[track_caller]
pub(crate) fn assert_refused(response: &Response, status: u16) {
    assert_eq!(response.status(), status, "{response:?}");
    assert!(response.body.len() < 256, "{response:?}");
    let kind = response.header("Content-Type").expect("a body has a type");
    assert!(kind.starts_with("text/plain"), "{response:?}");
}
