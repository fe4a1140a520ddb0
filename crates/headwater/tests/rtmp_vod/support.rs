//! A server over a folder of files, ffmpeg as a judge of the media received, and a player that the
//! test directs.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::rtmp::{ClientConfig, ClientEvent, ClientSession, PlayStart, Purpose, Url};
pub(crate) use testkit::clip as media;
use testkit::rtmp::Client;
use testkit::{NO_ARGUMENTS, Server};

/// The longest wait in these tests, on a machine busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Starts a server of the files in `root`.
#[track_caller]
pub(crate) fn server(root: &Path) -> Server {
    let binary = env!("CARGO_BIN_EXE_headwater");
    Server::start(binary, [OsStr::new("--vod"), root.as_os_str()])
}

/// Starts a server of the test media with these options in `[vod]`.
#[track_caller]
pub(crate) fn server_with(vod: &str) -> Server {
    let configuration = format!("[vod]\nroot = {:?}\n{vod}\n", testkit::media_dir());
    Server::configured(env!("CARGO_BIN_EXE_headwater"), &configuration, NO_ARGUMENTS)
}

/// The access units of the first video and the first audio stream of a file or URL that ends, in
/// decode order, each as presentation time in milliseconds and MD5.
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

/// The MD5s of [`units`].
pub(crate) fn hashes(units: &[(i64, String)]) -> Vec<&str> {
    units.iter().map(|(_, md5)| md5.as_str()).collect()
}

/// A media message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) video: bool,
    pub(crate) timestamp: u32,
    pub(crate) payload: Bytes,
    /// When it came, counted from before the request to play. Playback begins after the request, so
    /// this is no less than the server's own time of playback.
    pub(crate) at: Duration,
}

impl Message {
    /// Whether it is a configuration and not an access unit (legacy AVC and AAC).
    pub(crate) fn is_header(&self) -> bool {
        self.payload.get(1) == Some(&0)
    }

    pub(crate) fn is_keyframe(&self) -> bool {
        self.video && !self.is_header() && self.payload.first().is_some_and(|b| b >> 4 == 1)
    }
}

/// A player on a connection of its own.
pub(crate) struct Player {
    client: Client,
    /// Before the request to play.
    began: Instant,
    /// Media received so far, headers included.
    pub(crate) media: Vec<Message>,
    /// Number of messages in `media` before the event that the test waited for last.
    pub(crate) mark: usize,
    /// Other events, each with the number of messages in `media` before it.
    events: VecDeque<(ClientEvent, usize)>,
    /// Values of the last `onMetaData`.
    pub(crate) metadata: Option<protocol::rtmp::amf0::Value>,
}

impl Player {
    /// Connects and asks for `vod/NAME`, for `duration` milliseconds from `start` on.
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

    /// Like [`Player::new`], on a connection that the test has made.
    #[track_caller]
    pub(crate) fn over(
        socket: TcpStream,
        server: &Server,
        name: &str,
        start: PlayStart,
        duration: Option<f64>,
    ) -> Self {
        let url = Url::parse(&server.rtmp_url(&format!("vod/{name}"))).unwrap();
        let config = ClientConfig { duration, ..ClientConfig::new(&url, Purpose::Play(start)) };
        let began = Instant::now();
        let client = Client::over(socket, config);
        client.socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (media, events) = (Vec::new(), VecDeque::new());
        Self { client, began, media, mark: 0, events, metadata: None }
    }

    /// Waits for the next event that is not media and that `wanted` accepts, and drops those before
    /// it. [`Player::mark`] then tells how many media messages came before it.
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

    /// Reads until `count` media messages have come.
    #[track_caller]
    pub(crate) fn until_media(&mut self, count: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.media.len() < count {
            assert!(Instant::now() < deadline, "{} messages of {count}", self.media.len());
            self.take_in();
        }
    }

    /// Reads everything that comes during `time`.
    pub(crate) fn listen(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            self.take_in();
        }
    }

    /// Reads once, and handles all events in the bytes.
    fn take_in(&mut self) {
        self.read(64 << 10);
    }

    /// Reads once, at most `most` bytes, and handles all events in them. Returns the number of
    /// bytes.
    #[track_caller]
    fn read(&mut self, most: usize) -> usize {
        let size = match self.client.read(most) {
            Ok(0) => panic!("closed by the server"),
            Ok(size) => size,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return 0;
            }
            Err(error) => panic!("{error}"),
        };
        while let Some(event) = self.client.poll() {
            self.handle(event);
        }
        size
    }

    fn handle(&mut self, event: ClientEvent) {
        let at = self.began.elapsed();
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
            event => self.events.push_back((event, self.media.len())),
        }
    }

    /// Makes a request of the session, and sends it at once.
    pub(crate) fn ask(
        &mut self,
        request: impl FnOnce(&mut ClientSession) -> Result<(), protocol::rtmp::Error>,
    ) {
        request(&mut self.client.session).unwrap();
        self.client.flush();
    }

    /// Reads to the end of the title.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        let end = self.until(|event| matches!(event, ClientEvent::Ended { .. }));
        let code = "NetStream.Play.Complete".to_owned();
        assert_eq!(end, ClientEvent::Ended { code, description: String::new() });
    }

    /// The video and audio messages received, without configurations.
    pub(crate) fn frames(&self) -> Vec<&Message> {
        self.media.iter().filter(|message| !message.is_header()).collect()
    }
}
