//! Tests sessions against foreign programs over loopback: ffmpeg, rtmpdump, GStreamer and
//! nginx-rtmp, each as publisher, player or server.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use protocol::rtmp::chunk::{csid, shared_message};
use protocol::rtmp::{
    ClientConfig, ClientEvent, ClientSession, Error, PlayStart, PublishKind, Purpose, ServerConfig,
    ServerEvent, ServerSession, Url, code, message,
};
use testkit::{Program, uninterrupted};

/// Time limit of a test.
const LIMIT: Duration = Duration::from_secs(60);

trait Session {
    type Event;
    fn handle_input(&mut self, input: &[u8]) -> Result<usize, Error>;
    fn poll_event(&mut self) -> Option<Self::Event>;
    fn poll_output(&mut self) -> Option<Bytes>;
}

macro_rules! session {
    ($type:ty, $event:ty) => {
        impl Session for $type {
            type Event = $event;
            fn handle_input(&mut self, input: &[u8]) -> Result<usize, Error> {
                self.handle_input(input)
            }
            fn poll_event(&mut self) -> Option<$event> {
                self.poll_event()
            }
            fn poll_output(&mut self) -> Option<Bytes> {
                self.poll_output()
            }
        }
    };
}
session!(ServerSession, ServerEvent);
session!(ClientSession, ClientEvent);

/// A session on a blocking socket.
struct Driver<S> {
    session: S,
    socket: TcpStream,
    /// Input that the session has not taken yet.
    held: Vec<u8>,
    deadline: Instant,
}

impl<S: Session> Driver<S> {
    fn new(session: S, socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        Self { session, socket, held: Vec::new(), deadline: Instant::now() + LIMIT }
    }

    /// The next event; `None` once the peer has closed the connection.
    fn next(&mut self) -> Option<S::Event> {
        let mut buffer = [0; 16 << 10];
        loop {
            let taken = self.session.handle_input(&self.held).unwrap();
            self.held.drain(..taken);
            let event = self.session.poll_event();
            self.flush();
            if event.is_some() {
                return event;
            }
            if taken > 0 && !self.held.is_empty() {
                continue;
            }
            match uninterrupted(|| self.socket.read(&mut buffer)) {
                Ok(0) => return None,
                Ok(length) => self.held.extend_from_slice(&buffer[..length]),
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) =>
                {
                    assert!(Instant::now() < self.deadline, "nothing came in {LIMIT:?}");
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn flush(&mut self) {
        while let Some(piece) = self.session.poll_output() {
            self.write(&piece);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        match self.socket.write_all(bytes) {
            Ok(()) => {}
            // A peer that is done may leave. The next read notices this.
            Err(error)
                if [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Tag {
    kind: u8,
    timestamp: u32,
    payload: Bytes,
}

/// The tags of an FLV file.
fn tags(file: &[u8]) -> Vec<Tag> {
    let mut rest = Bytes::copy_from_slice(file);
    rest.advance(9 + 4);
    let mut tags = Vec::new();
    while rest.len() >= 11 {
        let kind = rest[0];
        let length = u32::from_be_bytes([0, rest[1], rest[2], rest[3]]) as usize;
        let timestamp = u32::from_be_bytes([rest[7], rest[4], rest[5], rest[6]]);
        rest.advance(11);
        if rest.len() < length {
            break;
        }
        tags.push(Tag { kind, timestamp, payload: rest.split_to(length) });
        rest.advance(rest.len().min(4));
    }
    tags
}

fn source() -> String {
    testkit::clip("flv/legacy.flv").to_str().unwrap().to_owned()
}

/// The source in the form that ffmpeg's FLV muxer writes, which ffmpeg also sends over RTMP.
fn remuxed() -> Vec<Tag> {
    let source = source();
    let args = ["-v", "error", "-i", &source, "-c", "copy", "-f", "flv", "-"];
    tags(&Program::output(Command::new("ffmpeg").args(args), LIMIT))
}

/// The same without the H.264 end of sequence. librtmp and GStreamer drop it on purpose, because
/// they ignore video messages of five bytes and fewer.
fn remuxed_without_end() -> Vec<Tag> {
    remuxed().into_iter().filter(|tag| tag.kind != 9 || tag.payload.len() > 5).collect()
}

fn media(tags: &[Tag]) -> Vec<Tag> {
    tags.iter().filter(|tag| [8, 9].contains(&tag.kind)).cloned().collect()
}

/// Payloads of one kind, without their times.
fn payloads(tags: &[Tag], kind: u8) -> Vec<&Bytes> {
    tags.iter().filter(|tag| tag.kind == kind).map(|tag| &tag.payload).collect()
}

fn assert_same_media(found: &[Tag], expected: &[Tag]) {
    let (found, expected) = (media(found), media(expected));
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!(
            found == expected,
            "tag {index}: kind {} at {} of {} bytes, not kind {} at {} of {} bytes",
            found.kind,
            found.timestamp,
            found.payload.len(),
            expected.kind,
            expected.timestamp,
            expected.payload.len()
        );
    }
    assert_eq!(found.len(), expected.len());
}

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/live/x", listener.local_addr().unwrap());
    (listener, url)
}

/// Accepts a connection, within the time that a program may take to start.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + LIMIT;
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false).unwrap();
                return socket;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(Instant::now() < deadline, "nobody connected in {LIMIT:?}");
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Connects to a program that is still starting.
fn connect(port: u16) -> TcpStream {
    let deadline = Instant::now() + LIMIT;
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(socket) => return socket,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Accepts a publisher, and returns its tags once it has left.
fn take_publisher(listener: &TcpListener) -> Vec<Tag> {
    let session = ServerSession::new(ServerConfig::default(), 11);
    let mut driver = Driver::new(session, accept(listener));
    let (mut tags, mut closed) = (Vec::new(), false);
    while let Some(event) = driver.next() {
        match event {
            ServerEvent::Connect { app, .. } => {
                assert_eq!(app, "live");
                driver.session.accept_connect().unwrap();
            }
            ServerEvent::PublishRequest { app, name, .. } => {
                assert_eq!((app.as_str(), name.as_str()), ("live", "x"));
                driver.session.accept_publish().unwrap();
            }
            ServerEvent::Audio { timestamp, payload } => {
                tags.push(Tag { kind: 8, timestamp, payload });
            }
            ServerEvent::Video { timestamp, payload } => {
                tags.push(Tag { kind: 9, timestamp, payload });
            }
            ServerEvent::Metadata { timestamp, payload, values } => {
                assert_eq!(values[0].as_str(), Some("onMetaData"));
                tags.push(Tag { kind: 18, timestamp, payload });
            }
            ServerEvent::Close { .. } => closed = true,
            ServerEvent::Ignored(error) => panic!("{error}"),
            _ => {}
        }
        driver.flush();
    }
    assert!(closed, "the publisher did not say that it was leaving");
    tags
}

/// Serves `tags` to a player until it leaves, every other one as a shared message.
fn serve_player(listener: &TcpListener, tags: &[Tag]) {
    let config = ServerConfig::default();
    let chunk_size = config.chunk_size;
    let mut driver = Driver::new(ServerSession::new(config, 12), accept(listener));
    while let Some(event) = driver.next() {
        match event {
            ServerEvent::Connect { .. } => driver.session.accept_connect().unwrap(),
            ServerEvent::PlayRequest { app, name, .. } => {
                assert_eq!((app.as_str(), name.as_str()), ("live", "x"));
                driver.session.accept_play(false).unwrap();
                driver.flush();
                for (index, tag) in tags.iter().enumerate() {
                    let (session, payload) = (&mut driver.session, tag.payload.clone());
                    let csid = match tag.kind {
                        message::AUDIO => csid::SHARED_AUDIO,
                        message::VIDEO => csid::SHARED_VIDEO,
                        _ => csid::SHARED_DATA,
                    };
                    match tag.kind {
                        _ if index % 2 == 0 => {
                            let bytes =
                                shared_message(csid, tag.kind, tag.timestamp, &payload, chunk_size);
                            driver.write(&bytes);
                        }
                        message::AUDIO => session.send_audio(tag.timestamp, payload).unwrap(),
                        message::VIDEO => session.send_video(tag.timestamp, payload).unwrap(),
                        _ => session.send_metadata(tag.timestamp, payload).unwrap(),
                    }
                    driver.flush();
                }
                driver.session.play_unpublished().unwrap();
            }
            ServerEvent::Ignored(error) => panic!("{error}"),
            _ => {}
        }
        driver.flush();
    }
}

fn program(name: &str, args: &[&str]) -> Program {
    Program::spawn(Command::new(name).args(args))
}

#[test]
fn ffmpeg_publishes() {
    let (listener, url) = listener();
    let publisher =
        program("ffmpeg", &["-v", "error", "-i", &source(), "-c", "copy", "-f", "flv", &url]);
    let found = take_publisher(&listener);
    let finished = publisher.wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    assert_same_media(&found, &remuxed());
    assert!(found.iter().any(|tag| tag.kind == 18));
}

#[test]
fn gstreamer_publishes() {
    let (listener, url) = listener();
    let (source, sink) = (format!("location={}", source()), format!("location={url}"));
    let pipeline = [
        "-e",
        "-q",
        "filesrc",
        &source,
        "!",
        "flvdemux",
        "name=d",
        "d.video",
        "!",
        "queue",
        "!",
        "h264parse",
        "!",
        "m.",
        "d.audio",
        "!",
        "queue",
        "!",
        "aacparse",
        "!",
        "m.",
        "flvmux",
        "name=m",
        "streamable=true",
        "!",
        "rtmp2sink",
        "timeout=60",
        &sink,
    ];
    let publisher = program("gst-launch-1.0", &pipeline);
    let found = take_publisher(&listener);
    let finished = publisher.wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    // GStreamer has its own muxer, but it must send the same pictures.
    let expected = tags(&std::fs::read(self::source()).unwrap());
    let length = |tags: &[Tag], kind| -> usize {
        payloads(tags, kind).iter().map(|payload| payload.len()).sum()
    };
    for kind in [8, 9] {
        let (found, expected) = (length(&found, kind), length(&expected, kind));
        assert!(found.abs_diff(expected) < expected / 50 + 200, "{kind}: {found} of {expected}");
    }
}

#[test]
fn rtmpdump_plays() {
    let (listener, url) = listener();
    let folder = tempdir();
    let out = folder.join("out.flv");
    let player = program("rtmpdump", &["-q", "-v", "-r", &url, "-o", out.to_str().unwrap()]);
    let sent = remuxed_without_end();
    serve_player(&listener, &sent);
    player.wait(LIMIT);
    assert_same_media(&tags(&std::fs::read(out).unwrap()), &sent);
}

#[test]
fn ffmpeg_plays() {
    let (listener, url) = listener();
    let player = program("ffmpeg", &["-v", "error", "-i", &url, "-c", "copy", "-f", "flv", "-"]);
    let sent = remuxed();
    serve_player(&listener, &sent);
    let finished = player.wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    let found = tags(&finished.stdout);
    for kind in [8, 9] {
        assert!(payloads(&found, kind) == payloads(&sent, kind), "payloads of {kind} differ");
    }
}

#[test]
fn gstreamer_plays() {
    let (listener, url) = listener();
    let folder = tempdir();
    let out = folder.join("out.flv");
    let (location, sink) =
        (format!("location={url}"), format!("location={}", out.to_str().unwrap()));
    let player = program(
        "gst-launch-1.0",
        &["-q", "rtmp2src", "timeout=60", &location, "!", "filesink", &sink],
    );
    let sent = remuxed_without_end();
    serve_player(&listener, &sent);
    player.wait(LIMIT);
    let found = tags(&std::fs::read(out).unwrap());
    // When it is told that the stream is over, it drops a message that it still holds.
    let (found, sent) = (media(&found), media(&sent));
    assert!(found.len() + 1 >= sent.len(), "{} of {}", found.len(), sent.len());
    assert_same_media(&found, &sent[..found.len()]);
}

#[test]
fn a_refused_ffmpeg_says_so() {
    for publish in [true, false] {
        let (listener, url) = listener();
        let source = source();
        let peer = if publish {
            program("ffmpeg", &["-v", "error", "-i", &source, "-c", "copy", "-f", "flv", &url])
        } else {
            program("ffmpeg", &["-v", "error", "-i", &url, "-f", "null", "-"])
        };
        let session = ServerSession::new(ServerConfig::default(), 13);
        let mut driver = Driver::new(session, accept(&listener));
        while let Some(event) = driver.next() {
            match event {
                ServerEvent::Connect { .. } => driver.session.accept_connect().unwrap(),
                ServerEvent::PublishRequest { .. } => driver
                    .session
                    .reject_publish(code::PUBLISH_BAD_NAME, "x is taken already")
                    .unwrap(),
                ServerEvent::PlayRequest { .. } => driver
                    .session
                    .reject_play(code::PLAY_STREAM_NOT_FOUND, "no stream called x")
                    .unwrap(),
                _ => {}
            }
            driver.flush();
        }
        let finished = peer.wait(LIMIT);
        assert!(!finished.status.success());
        let told = if publish { "x is taken already" } else { "no stream called x" };
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
}

fn client(port: u16, purpose: Purpose) -> Driver<ClientSession> {
    let url = Url::parse(&format!("rtmp://127.0.0.1:{port}/live/x")).unwrap();
    let session = ClientSession::new(ClientConfig::new(&url, purpose), 14);
    let mut driver = Driver::new(session, connect(port));
    driver.flush();
    driver
}

fn publish(port: u16, tags: &[Tag]) {
    let mut driver = client(port, Purpose::Publish(PublishKind::Live));
    loop {
        match driver.next().expect("the server left") {
            ClientEvent::Started => break,
            ClientEvent::Rejected { code, description } => panic!("{code}: {description}"),
            _ => {}
        }
    }
    for tag in tags {
        let payload = tag.payload.clone();
        match tag.kind {
            8 => driver.session.send_audio(tag.timestamp, payload).unwrap(),
            9 => driver.session.send_video(tag.timestamp, payload).unwrap(),
            _ => driver.session.send_metadata(tag.timestamp, &payload).unwrap(),
        }
        driver.flush();
    }
    driver.session.close();
    driver.flush();
    // The server closes once it has read everything.
    driver.socket.shutdown(std::net::Shutdown::Write).unwrap();
    while driver.next().is_some() {}
}

/// Plays from a server, up to the end or the `wanted`-th tag.
fn play(port: u16, start: PlayStart, wanted: usize, started: impl FnOnce()) -> Vec<Tag> {
    let mut driver = client(port, Purpose::Play(start));
    let mut started = Some(started);
    let mut tags = Vec::new();
    while tags.len() < wanted
        && let Some(event) = driver.next()
    {
        match event {
            ClientEvent::Started => started.take().expect("started twice")(),
            ClientEvent::Rejected { code, description } => panic!("{code}: {description}"),
            ClientEvent::Audio { timestamp, payload } => {
                tags.push(Tag { kind: 8, timestamp, payload });
            }
            ClientEvent::Video { timestamp, payload } => {
                tags.push(Tag { kind: 9, timestamp, payload });
            }
            ClientEvent::Ended { .. } => break,
            ClientEvent::Ignored(error) => panic!("{error}"),
            _ => {}
        }
    }
    assert!(started.is_none(), "it never started");
    driver.session.close();
    driver.flush();
    tags
}

#[test]
fn publishes_to_ffmpeg() {
    let port = testkit::Port::find();
    let url = format!("rtmp://127.0.0.1:{port}/live/x");
    let args = ["-v", "error", "-listen", "1", "-i", &url, "-c", "copy", "-f", "flv", "-"];
    let server = program("ffmpeg", &args);
    let sent = remuxed();
    publish(port.number(), &sent);
    let finished = server.wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    let found = tags(&finished.stdout);
    for kind in [8, 9] {
        assert!(payloads(&found, kind) == payloads(&sent, kind), "payloads of {kind} differ");
    }
}

#[test]
fn plays_from_ffmpeg() {
    let port = testkit::Port::find();
    let url = format!("rtmp://127.0.0.1:{port}/live/x");
    let source = source();
    let args = ["-v", "error", "-i", &source, "-c", "copy", "-listen", "1", "-f", "flv", &url];
    let server = program("ffmpeg", &args);
    let found = play(port.number(), PlayStart::Any, usize::MAX, || {});
    let finished = server.wait(LIMIT);
    assert!(finished.status.success(), "{}", finished.stderr);
    assert_same_media(&found, &remuxed());
}

#[test]
fn publishes_to_nginx_and_plays_from_it() {
    let port = testkit::Port::find();
    let number = port.number();
    let folder = tempdir();
    let config = format!(
        "load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;
         error_log stderr;
         events {{}}
         rtmp {{ server {{
             listen 127.0.0.1:{port};
             # By default nginx drops pictures of a player that has not taken 128 messages.
             out_queue 4096;
             application live {{ live on; }}
         }} }}"
    );
    let _server = testkit::nginx(&folder, &port, &config);
    let sent = remuxed();
    let expected = media(&sent);
    let mut publisher = None;
    // It begins a player's stream at a keyframe, and the first picture is one. It repeats sequence
    // headers; apart from these, everything must come through.
    let found = play(number, PlayStart::Live, expected.len(), || {
        let sent = sent.clone();
        publisher = Some(thread::spawn(move || publish(number, &sent)));
    });
    let frames = |tags: &[Tag]| -> Vec<Bytes> {
        payloads(tags, 9).into_iter().filter(|payload| payload[1] == 1).cloned().collect()
    };
    let (found, expected) = (frames(&found), frames(&expected));
    assert!(found.len() + 5 > expected.len(), "{} of {}", found.len(), expected.len());
    assert!(found[..] == expected[..found.len()], "pictures differ");
    publisher.expect("it was played").join().unwrap();
}

/// A folder of this test run, which is removed at its end.
struct Folder(std::path::PathBuf);

impl std::ops::Deref for Folder {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tempdir() -> Folder {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("rtmp-foreign-{}-{count}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    Folder(folder)
}
