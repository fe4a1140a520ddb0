//! An RTMP client on a blocking socket. The test decides everything that it sends, and when it
//! reads.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use media::flv::{Message, TagKind};
use protocol::rtmp::{
    Capabilities, ClientConfig, ClientEvent, ClientSession, PlayStart, PublishKind, Purpose, Url,
};

use crate::{is_closed_within, uninterrupted};

/// How long a client waits for the server, unless the test sets another time limit on the socket.
const LIMIT: Duration = Duration::from_secs(60);

/// A publisher or a player.
#[derive(Debug)]
pub struct Client {
    /// The connection. Bytes written here go past the session.
    pub socket: TcpStream,
    /// The protocol. [`Client::flush`] sends its output.
    pub session: ClientSession,
    /// Bytes received that the session has not taken yet.
    unread: Vec<u8>,
}

/// The configuration of a client that publishes or plays `APP/NAME` on this server. It understands
/// all codecs, but no extension of the protocol.
pub fn config(address: SocketAddr, stream: &str, purpose: Purpose) -> ClientConfig {
    let url = Url::parse(&format!("rtmp://{address}/{stream}")).expect("a stream's name");
    let capabilities = Capabilities { caps_ex: 0, ..Capabilities::forward_all() };
    ClientConfig { capabilities, ..ClientConfig::new(&url, purpose) }
}

/// Whether an event says that the server has started to publish or play.
pub fn is_started(event: &ClientEvent) -> bool {
    matches!(event, ClientEvent::Started)
}

impl Client {
    /// Makes a client on a connection on which nothing was sent yet.
    ///
    /// # Panics
    /// The socket is not connected.
    #[track_caller]
    pub fn over(socket: TcpStream, config: ClientConfig) -> Self {
        socket.set_read_timeout(Some(LIMIT)).expect("not zero");
        socket.set_write_timeout(Some(LIMIT)).expect("not zero");
        socket.set_nodelay(true).expect("it is connected");
        Self { socket, session: ClientSession::new(config, 1), unread: Vec::new() }
    }

    /// Connects, and goes on until `done` accepts an event.
    ///
    /// # Errors
    /// The code of the refusal.
    ///
    /// # Panics
    /// The same as those of [`Client::until`].
    #[track_caller]
    pub fn connect(
        address: SocketAddr,
        config: ClientConfig,
        done: impl Fn(&ClientEvent) -> bool,
    ) -> Result<Self, String> {
        let socket = TcpStream::connect_timeout(&address, LIMIT).expect("the server listens");
        let mut client = Self::over(socket, config);
        client.until(done)?;
        Ok(client)
    }

    /// Connects a publisher, and waits until it may send media.
    ///
    /// # Panics
    /// The server refuses it, or does not answer.
    #[track_caller]
    pub fn publish(address: SocketAddr, stream: &str) -> Self {
        Self::try_publish(address, stream).expect("it may publish")
    }

    /// Like [`Client::publish`], for a publisher that the server may refuse.
    ///
    /// # Errors
    /// The code of the refusal.
    ///
    /// # Panics
    /// The server does not answer.
    #[track_caller]
    pub fn try_publish(address: SocketAddr, stream: &str) -> Result<Self, String> {
        let config = config(address, stream, Purpose::Publish(PublishKind::Live));
        Self::connect(address, config, is_started)
    }

    /// Connects a player of a live stream.
    ///
    /// # Panics
    /// The server refuses it, or does not answer.
    #[track_caller]
    pub fn play(address: SocketAddr, stream: &str) -> Self {
        let config = config(address, stream, Purpose::Play(PlayStart::Live));
        Self::connect(address, config, is_started).expect("it may play")
    }

    /// Reads until `done` accepts an event.
    ///
    /// # Errors
    /// The code of a refusal that comes before.
    ///
    /// # Panics
    /// The server closes the connection, sends nothing for too long, or breaks the protocol.
    #[track_caller]
    pub fn until(&mut self, done: impl Fn(&ClientEvent) -> bool) -> Result<(), String> {
        loop {
            match self.next() {
                Some(event) if done(&event) => return Ok(()),
                Some(ClientEvent::Rejected { code, .. }) => return Err(code),
                Some(_) => {}
                None => panic!("the server closed the connection"),
            }
        }
    }

    /// Reads until the server closes the connection. Before that it must report a failure with
    /// these words.
    ///
    /// # Panics
    /// It reports another failure or none, or sends nothing for too long.
    #[track_caller]
    pub fn until_failed(&mut self, why: &str) {
        let mut end = None;
        loop {
            while let Some(event) = self.poll() {
                if let ClientEvent::Ended { code, description } = event {
                    end.get_or_insert((code, description));
                }
            }
            match self.read(4096) {
                Ok(0) => break,
                // A server that has not read all that it was sent resets the connection. Its words have come
                // before that.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                read => drop(read.expect("the server answers")),
            }
        }
        let (code, description) = end.expect("the server says that it is over");
        assert_eq!(code, "NetStream.Failed");
        assert!(description.contains(why), "{description}");
    }

    /// Reads all events until the server closes the connection.
    ///
    /// # Panics
    /// The server sends nothing for too long, or breaks the protocol.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<ClientEvent> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Waits for the next event. `None` when the server has closed the connection.
    ///
    /// # Panics
    /// The server sends nothing for too long, or breaks the protocol.
    #[expect(clippy::should_implement_trait, reason = "a wait for the peer is no iteration")]
    #[track_caller]
    pub fn next(&mut self) -> Option<ClientEvent> {
        loop {
            if let Some(event) = self.poll() {
                return Some(event);
            }
            if self.read(4096).expect("the server answers") == 0 {
                return None;
            }
        }
    }

    /// The next event among the bytes already read.
    ///
    /// # Panics
    /// The server breaks the protocol.
    #[track_caller]
    pub fn poll(&mut self) -> Option<ClientEvent> {
        loop {
            if let Some(event) = self.session.poll_event() {
                return Some(event);
            }
            let taken = self.session.handle_input(&self.unread).expect("the server speaks RTMP");
            self.unread.drain(..taken);
            self.flush();
            if taken == 0 {
                return None;
            }
        }
    }

    /// Sends the session's output, then reads once, at most `most` bytes. Returns their number,
    /// which is 0 when the server has closed the connection. [`Client::poll`] has the events.
    ///
    /// # Errors
    /// Nothing came in time, or the connection is broken.
    pub fn read(&mut self, most: usize) -> io::Result<usize> {
        self.flush();
        let mut buffer = vec![0; most];
        let size = uninterrupted(|| self.socket.read(&mut buffer))?;
        self.unread.extend_from_slice(&buffer[..size]);
        Ok(size)
    }

    /// Sends the session's output. Here it is no error if the server has gone: a test notices that
    /// when it reads.
    pub fn flush(&mut self) {
        while let Some(piece) = self.session.poll_output() {
            let _ = self.socket.write_all(&piece);
        }
    }

    /// Publishes a message.
    ///
    /// # Panics
    /// This is not a publisher.
    #[track_caller]
    pub fn send(&mut self, message: &Message) {
        self.tag(message.kind(), message.timestamp(), message.payload());
    }

    /// Publishes a message of these parts.
    ///
    /// # Panics
    /// This is not a publisher.
    #[track_caller]
    pub fn tag(&mut self, kind: TagKind, timestamp: u32, payload: Bytes) {
        match kind {
            TagKind::Audio => self.session.send_audio(timestamp, payload),
            TagKind::Video => self.session.send_video(timestamp, payload),
            TagKind::Script => self.session.send_metadata(timestamp, &payload),
        }
        .expect("publishing");
        self.flush();
    }

    /// Sends bytes past the session. Returns false if the server has gone.
    pub fn raw(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// The client's own address, which the server's log names.
    ///
    /// # Panics
    /// The socket was not connected.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it was connected")
    }

    /// Whether the server closes the connection within `limit`. Bytes that come before are dropped.
    pub fn is_closed_within(&mut self, limit: Duration) -> bool {
        is_closed_within(&mut self.socket, limit)
    }

    /// Ends a publication in an orderly way, and waits until the server has taken everything.
    ///
    /// # Panics
    /// The server keeps the connection open.
    #[track_caller]
    pub fn finish(mut self) {
        self.session.close();
        self.flush();
        self.socket.shutdown(Shutdown::Write).expect("the server is there");
        assert!(self.is_closed_within(LIMIT), "the server keeps a publisher that is done");
    }
}
