//! Both kinds of clients: a session of ours with its server, and a client written by hand.

use protocol::rtmp::amf0::{self, Value};
use protocol::rtmp::chunk::{self, Read, Reader, shared_message};
use protocol::rtmp::message::{self, Limits, Message};
use protocol::rtmp::{
    Capabilities, ClientConfig, ClientEvent, ClientSession, Error, PlayStart, PublishKind, Purpose,
    ServerConfig, ServerEvent, ServerSession, Url,
};

/// Both sides and the bytes between them.
pub(crate) struct Link {
    pub(crate) client: ClientSession,
    pub(crate) server: ServerSession,
    to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
    /// Everything that the client has sent.
    pub(crate) sent: Vec<u8>,
    /// How many bytes arrive at once.
    piece: usize,
}

impl Link {
    pub(crate) fn new(purpose: Purpose, piece: usize) -> Self {
        let url = Url::parse("rtmp://localhost/live/x?key=value").unwrap();
        Self {
            client: ClientSession::new(
                ClientConfig {
                    capabilities: Capabilities::forward_all(),
                    ..ClientConfig::new(&url, purpose)
                },
                1,
            ),
            server: ServerSession::new(ServerConfig::default(), 2),
            to_server: Vec::new(),
            to_client: Vec::new(),
            sent: Vec::new(),
            piece,
        }
    }

    pub(crate) fn publish(piece: usize) -> Self {
        Self::new(Purpose::Publish(PublishKind::Live), piece)
    }

    pub(crate) fn play(piece: usize) -> Self {
        Self::new(Purpose::Play(PlayStart::Live), piece)
    }

    /// Passes bytes on until nothing changes any more. Returns the events of both sides.
    pub(crate) fn run(&mut self) -> (Vec<ClientEvent>, Vec<ServerEvent>) {
        let (mut client_events, mut server_events) = (Vec::new(), Vec::new());
        loop {
            let mut moved = false;
            while let Some(piece) = self.client.poll_output() {
                self.to_server.extend_from_slice(&piece);
                self.sent.extend_from_slice(&piece);
            }
            while let Some(piece) = self.server.poll_output() {
                self.to_client.extend_from_slice(&piece);
            }
            assert_eq!((self.client.output_len(), self.server.output_len()), (0, 0));
            let offered = self.to_server.len().min(self.piece);
            let taken = self.server.handle_input(&self.to_server[..offered]).unwrap();
            self.to_server.drain(..taken);
            while let Some(event) = self.server.poll_event() {
                moved = true;
                server_events.push(event);
            }
            moved |= taken > 0;
            let offered = self.to_client.len().min(self.piece);
            let taken = self.client.handle_input(&self.to_client[..offered]).unwrap();
            self.to_client.drain(..taken);
            while let Some(event) = self.client.poll_event() {
                moved = true;
                client_events.push(event);
            }
            if !moved && taken == 0 {
                return (client_events, server_events);
            }
        }
    }

    /// Runs up to the request to publish or play, and returns it.
    pub(crate) fn connect(&mut self) -> ServerEvent {
        let (client, server) = self.run();
        assert_eq!(client, []);
        let [ServerEvent::Connect { app, query, tc_url, flash_ver, capabilities }] = &server[..]
        else {
            panic!("{server:?}");
        };
        assert_eq!((app.as_str(), query.as_str()), ("live", ""));
        assert_eq!(tc_url, "rtmp://localhost/live");
        assert!(flash_ver.starts_with("FMLE/"));
        assert_eq!(*capabilities, Capabilities::forward_all());
        self.server.accept_connect().unwrap();
        let (client, mut server) = self.run();
        assert_eq!(client, [ClientEvent::Connected { capabilities: Capabilities::forward_all() }]);
        assert_eq!(server.len(), 1, "{server:?}");
        server.remove(0)
    }
}

pub(crate) fn ended(code: &str, why: &str) -> ClientEvent {
    ClientEvent::Ended { code: code.to_owned(), description: why.to_owned() }
}

pub(crate) fn on_meta_data() -> Vec<u8> {
    amf0::encode_all(&[
        Value::string("onMetaData"),
        Value::EcmaArray(vec![("width".to_owned(), Value::Number(1280.0))]),
    ])
}

/// A client written by hand. It can do what a [`ClientSession`] cannot.
pub(crate) struct Hand {
    pub(crate) server: ServerSession,
    pub(crate) events: Vec<ServerEvent>,
    pub(crate) replies: Vec<Message>,
    reader: Reader,
}

impl Hand {
    /// A client after the handshake.
    pub(crate) fn new() -> Self {
        let mut hand = Self {
            server: ServerSession::new(ServerConfig::default(), 0),
            events: Vec::new(),
            replies: Vec::new(),
            reader: Reader::new(Limits::default(), 0),
        };
        let mut bytes = vec![3];
        bytes.extend_from_slice(&[0; 2 * 1536]);
        assert_eq!(hand.server.handle_input(&bytes), Ok(bytes.len()));
        let mut handshake = 0;
        while let Some(piece) = hand.server.poll_output() {
            handshake += piece.len();
        }
        assert_eq!(handshake, 1 + 2 * 1536);
        hand
    }

    pub(crate) fn connected() -> Self {
        let mut hand = Self::new();
        hand.command("connect", 1.0, &[Value::object([("app", Value::string("/live/?t=1"))])]);
        hand.server.accept_connect().unwrap();
        hand.offer(&[]).unwrap();
        hand
    }

    pub(crate) fn publishing() -> Self {
        let mut hand = Self::connected();
        hand.command("createStream", 2.0, &[Value::Null]);
        hand.command("publish", 3.0, &[Value::Null, Value::string("x"), Value::string("record")]);
        hand.server.accept_publish().unwrap();
        hand.offer(&[]).unwrap();
        hand.events.clear();
        hand.replies.clear();
        hand
    }

    /// Passes all bytes, or those up to the next decision.
    pub(crate) fn offer(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        loop {
            let taken = self.server.handle_input(bytes)?;
            bytes = &bytes[taken..];
            let before = self.events.len();
            while let Some(event) = self.server.poll_event() {
                self.events.push(event);
            }
            while let Some(piece) = self.server.poll_output() {
                let mut input = &piece[..];
                while let Some(read) = self.reader.read(&mut input).unwrap() {
                    let Read::Message(message) = read else { panic!("{read:?}") };
                    self.replies.push(message);
                }
            }
            if bytes.is_empty() || (taken == 0 && self.events.len() == before) {
                return Ok(());
            }
        }
    }

    pub(crate) fn command(&mut self, name: &str, transaction: f64, arguments: &[Value]) {
        let mut values = vec![Value::string(name), Value::Number(transaction)];
        values.extend_from_slice(arguments);
        self.message(message::COMMAND_AMF0, &amf0::encode_all(&values)).unwrap();
    }

    pub(crate) fn message(&mut self, kind: u8, payload: &[u8]) -> Result<(), Error> {
        let bytes = shared_message(3, kind, 0, payload, chunk::DEFAULT_SIZE);
        self.offer(&bytes)
    }

    /// Names and codes of the commands that were sent since the last call.
    pub(crate) fn answers(&mut self) -> Vec<String> {
        let replies = std::mem::take(&mut self.replies);
        let commands = replies.iter().filter(|reply| reply.kind == message::COMMAND_AMF0);
        commands
            .map(|reply| {
                let values = amf0::decode(&reply.payload).unwrap();
                let code = values.iter().find_map(|value| value.property("code")?.as_str());
                format!("{} {}", values[0].as_str().unwrap(), code.unwrap_or_default())
            })
            .collect()
    }
}
