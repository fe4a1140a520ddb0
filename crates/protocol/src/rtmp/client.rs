use bytes::Bytes;

use super::amf0::{self, Value};
use super::chunk::Measured;
use super::command::{self, Command};
use super::connection::{Connection, Incoming};
use super::inbox::{Inbox, Media};
use super::message::{self, Message, UserControl};
use super::{Capabilities, Error, PlayStart, PublishKind, Url, code};

/// What a client is there for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Purpose {
    /// Send a stream.
    Publish(PublishKind),
    /// Receive one, from there on.
    Play(PlayStart),
}

/// What a client says and wants.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Application.
    pub app: String,
    /// Stream name, with its query.
    pub name: String,
    /// URL up to the application.
    pub tc_url: String,
    /// Publish or play.
    pub purpose: Purpose,
    /// Name of the client's program. Servers expect publishers to use the form
    /// `FMLE/3.0 (compatible; …)`.
    pub flash_ver: String,
    /// Size of outgoing chunks in bytes, 1..=16,777,215.
    pub chunk_size: usize,
    /// Bytes after which the server is to acknowledge (5.4.4).
    pub window_ack_size: u32,
    /// How much a player buffers, in milliseconds; servers may send that much at once.
    pub buffer_length: u32,
    /// How many milliseconds to play; `None` for all there is (7.2.2.1).
    pub duration: Option<f64>,
    /// Enhanced RTMP capabilities told to the server.
    pub capabilities: Capabilities,
    /// Whether audio and video are reported as [`ClientEvent::Measured`], without their payloads:
    /// for players that only count, so that thousands of them need little memory.
    pub measure_media: bool,
}

impl ClientConfig {
    /// The usual settings for a URL. The capabilities are those for forwarding without reconnecting
    /// on request, because only the caller knows whether it does that.
    pub fn new(url: &Url, purpose: Purpose) -> Self {
        Self {
            app: url.app.clone(),
            name: url.name.clone(),
            tc_url: url.tc_url.clone(),
            purpose,
            flash_ver: "FMLE/3.0 (compatible; headwater)".to_owned(),
            chunk_size: 64 << 10,
            window_ack_size: 2_500_000,
            buffer_length: 3000,
            duration: None,
            capabilities: Capabilities {
                caps_ex: Capabilities::MULTITRACK | Capabilities::MODEX,
                ..Capabilities::forward_all()
            },
            measure_media: false,
        }
    }
}

/// What a server did.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// `connect` was accepted. The session sends the next requests by itself.
    Connected {
        /// Enhanced RTMP, as the server says; empty for plain RTMP.
        capabilities: Capabilities,
    },
    /// Publishing or playing begins.
    Started,
    /// The server refuses; the caller closes the connection.
    Rejected {
        /// As in [`code`], or whatever the server made up; may be empty.
        code: String,
        /// For people.
        description: String,
    },
    /// A status that is neither of the above: a pause, a seek, a publisher that appeared.
    Status {
        /// `status`, `warning` or `error`.
        level: String,
        /// As in [`code`].
        code: String,
        /// For people.
        description: String,
    },
    /// Audio of the stream played.
    Audio {
        /// Milliseconds, wrapping after 2^32.
        timestamp: u32,
        /// An FLV audio tag's body; not empty.
        payload: Bytes,
    },
    /// Video of the stream played.
    Video {
        /// Milliseconds, wrapping after 2^32.
        timestamp: u32,
        /// An FLV video tag's body; not empty.
        payload: Bytes,
    },
    /// Audio or video of the stream played, where [`ClientConfig::measure_media`] is set.
    Measured(Measured),
    /// A data message of the stream played: `onMetaData`, `|RtmpSampleAccess`, anything.
    Metadata {
        /// Milliseconds, wrapping after 2^32.
        timestamp: u32,
        /// The name, then what belongs to it.
        values: Vec<Value>,
        /// The same values in AMF0: an FLV script tag's body.
        payload: Bytes,
    },
    /// The server wants the client to connect again (Enhanced RTMP v2, "Reconnect Request").
    Reconnect {
        /// The URL to connect to; `None` for the same as before.
        tc_url: Option<String>,
        /// For people.
        description: String,
    },
    /// The answer to [`ClientSession::ask_stream_length`].
    StreamLength {
        /// How long the stream is.
        seconds: f64,
    },
    /// A message was dropped because of this; the session goes on.
    Ignored(Error),
    /// The stream is over: everything was played, its publisher left, or the server ended
    /// publishing.
    Ended {
        /// As in [`code`].
        code: String,
        /// For people: why, where the server says so; may be empty.
        description: String,
    },
}

impl From<Media> for ClientEvent {
    fn from(media: Media) -> Self {
        match media {
            Media::Audio { timestamp, payload } => Self::Audio { timestamp, payload },
            Media::Video { timestamp, payload } => Self::Video { timestamp, payload },
            Media::Metadata { timestamp, values, payload } => {
                Self::Metadata { timestamp, values, payload }
            }
            Media::Ignored(error) => Self::Ignored(error),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Handshake,
    Connecting,
    CreatingStream,
    /// `publish` or `play` is sent.
    Starting,
    Started,
    /// Rejected, ended or closed.
    Over,
}

/// The transaction of `connect` (7.2.1.1) and those chosen for the rest.
const CONNECT: f64 = 1.0;
const RELEASE_STREAM: f64 = 2.0;
const FC_PUBLISH: f64 = 3.0;
const CREATE_STREAM: f64 = 4.0;
const START: f64 = 5.0;
const FC_UNPUBLISH: f64 = 6.0;
const DELETE_STREAM: f64 = 7.0;
const STREAM_LENGTH: f64 = 8.0;

/// The client's side of one connection, which publishes or plays one stream.
///
/// # Contract
/// - The session sends requests for its [`ClientConfig`] by itself. The first
///   [`poll_output`](Self::poll_output) returns the handshake.
/// - [`handle_input`](Self::handle_input) takes bytes in their order and returns how many it took.
///   It stops early when events wait to be polled or answers wait to be sent. The caller passes the
///   rest again after that.
/// - After each `handle_input`, call [`poll_event`](Self::poll_event) until `None`. After each call
///   that may have queued output, call `poll_output` until `None`.
/// - Media may be sent from [`ClientEvent::Started`] on.
/// - An error ends the session, as for a [`ServerSession`](super::ServerSession). The limit on
///   memory is also the same.
#[derive(Debug)]
pub struct ClientSession {
    config: ClientConfig,
    connection: Connection,
    inbox: Inbox<ClientEvent>,
    state: State,
    /// The stream ID from the answer to `createStream`.
    stream_id: u32,
}

impl ClientSession {
    /// Creates a session. `nonce` fills the handshake. It should differ from session to session,
    /// but protects nothing.
    pub fn new(config: ClientConfig, nonce: u64) -> Self {
        let mut connection = Connection::client(nonce);
        if config.measure_media {
            connection.measure_media();
        }
        Self { config, connection, inbox: Inbox::new(), state: State::Handshake, stream_id: 0 }
    }

    /// Takes bytes from the server and returns how many it took. See the contract above.
    ///
    /// # Errors
    /// Where the server broke the protocol or exceeded a limit; the session is over.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<usize, Error> {
        let mut left = input;
        while self.inbox.is_open() {
            let Some(incoming) = self.connection.next(&mut left)? else { break };
            let result = match incoming {
                Incoming::Ready => {
                    self.connect();
                    Ok(())
                }
                Incoming::UserControl(_) => Ok(()),
                Incoming::Message(message) => self.message(message),
                Incoming::Measured(measured) => {
                    // One at a time: a queue of them would be most of a session's memory.
                    self.inbox.push(ClientEvent::Measured(measured));
                    Ok(())
                }
                Incoming::Skipped(error) => {
                    self.inbox.push(ClientEvent::Ignored(error));
                    Ok(())
                }
            };
            if let Err(error) = result {
                self.connection.fail(error.clone());
                return Err(error);
            }
        }
        self.connection.acknowledge();
        Ok(input.len() - left.len())
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.inbox.poll()
    }

    /// The next piece to send.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        self.connection.poll_output()
    }

    /// Bytes queued and not polled yet; 0 at a message boundary.
    pub fn output_len(&self) -> usize {
        self.connection.output_len()
    }

    /// Bytes taken so far.
    pub fn position(&self) -> u64 {
        self.connection.position()
    }

    /// Bytes of media among those taken so far: the payloads of audio and video, as far as they have
    /// arrived. Of an aggregate message they are the whole payload, with the headers of its tags.
    pub fn media_bytes(&self) -> u64 {
        self.connection.media_bytes()
    }

    /// The first bytes, at most 192, of the video whose [`ClientEvent::Measured`] was polled last.
    /// They are available until more input is handled.
    pub fn measured_front(&self) -> &[u8] {
        self.connection.front()
    }

    /// Bytes allocated for messages that are not complete yet.
    pub fn allocated(&self) -> usize {
        self.connection.allocated()
    }

    /// Whether publishing or playing has begun and not ended.
    pub fn is_started(&self) -> bool {
        self.state == State::Started
    }

    /// Queues audio: an FLV audio tag's body, at `timestamp` milliseconds.
    ///
    /// # Errors
    /// Where nothing is published, or the payload exceeds 16,777,215 bytes.
    pub fn send_audio(&mut self, timestamp: u32, payload: Bytes) -> Result<(), Error> {
        self.send(message::AUDIO, timestamp, payload)
    }

    /// Queues video: an FLV video tag's body, at `timestamp` milliseconds.
    ///
    /// # Errors
    /// As [`ClientSession::send_audio`].
    pub fn send_video(&mut self, timestamp: u32, payload: Bytes) -> Result<(), Error> {
        self.send(message::VIDEO, timestamp, payload)
    }

    /// Queues a data message: an FLV script tag's body (`onMetaData` and its values in AMF0), at
    /// `timestamp` milliseconds. The server is told to keep it for players (`@setDataFrame`).
    ///
    /// # Errors
    /// As [`ClientSession::send_audio`].
    pub fn send_metadata(&mut self, timestamp: u32, payload: &[u8]) -> Result<(), Error> {
        let mut framed = amf0::encode_all([&Value::string("@setDataFrame")]);
        framed.extend_from_slice(payload);
        self.send(message::DATA_AMF0, timestamp, framed.into())
    }

    fn send(&mut self, kind: u8, timestamp: u32, payload: Bytes) -> Result<(), Error> {
        if self.state != State::Started || !matches!(self.config.purpose, Purpose::Publish(_)) {
            return Err(self.connection.refuse("sending media where nothing is published"));
        }
        self.connection.send_media(kind, self.stream_id, timestamp, payload)
    }

    /// Pauses, or goes on; `position` is where the player is, in milliseconds.
    ///
    /// # Errors
    /// Where nothing is played.
    pub fn pause(&mut self, paused: bool, position: f64) -> Result<(), Error> {
        self.ask("pause", &[Value::Null, Value::Boolean(paused), Value::Number(position)])
    }

    /// Asks to be sent what is at `position`, in milliseconds.
    ///
    /// # Errors
    /// Where nothing is played.
    pub fn seek(&mut self, position: f64) -> Result<(), Error> {
        self.ask("seek", &[Value::Null, Value::Number(position)])
    }

    /// Asks for the duration of the stream in the [`ClientConfig`]. Some servers answer, which
    /// causes [`ClientEvent::StreamLength`].
    ///
    /// # Errors
    /// Before [`ClientEvent::Connected`].
    pub fn ask_stream_length(&mut self) -> Result<(), Error> {
        if matches!(self.state, State::Handshake | State::Connecting) {
            return Err(self.connection.refuse("asking before the connection is accepted"));
        }
        let arguments = [Value::Null, Value::string(&self.config.name)];
        self.connection.send_command(0, "getStreamLength", STREAM_LENGTH, &arguments);
        Ok(())
    }

    fn ask(&mut self, name: &str, arguments: &[Value]) -> Result<(), Error> {
        if self.state != State::Started || !matches!(self.config.purpose, Purpose::Play(_)) {
            return Err(self.connection.refuse("steering where nothing is played"));
        }
        self.connection.send_command(self.stream_id, name, 0.0, arguments);
        Ok(())
    }

    /// Ends publishing or playing in good order; the caller closes the connection once the
    /// output is sent.
    pub fn close(&mut self) {
        if matches!(self.state, State::Starting | State::Started) {
            if matches!(self.config.purpose, Purpose::Publish(_)) {
                let arguments = [Value::Null, Value::string(&self.config.name)];
                self.connection.send_command(0, "FCUnpublish", FC_UNPUBLISH, &arguments);
            }
            let arguments = [Value::Null, Value::Number(f64::from(self.stream_id))];
            self.connection.send_command(0, "deleteStream", DELETE_STREAM, &arguments);
        }
        self.over();
    }

    fn over(&mut self) {
        self.state = State::Over;
        self.connection.set_discard_media(true);
    }

    fn connect(&mut self) {
        self.state = State::Connecting;
        self.connection.send_window(self.config.window_ack_size);
        self.connection.send_chunk_size(self.config.chunk_size);
        let config = &self.config;
        let mut properties = vec![
            ("app".to_owned(), Value::string(&config.app)),
            ("flashVer".to_owned(), Value::string(&config.flash_ver)),
            ("tcUrl".to_owned(), Value::string(&config.tc_url)),
        ];
        match config.purpose {
            Purpose::Publish(_) => {
                properties.push(("type".to_owned(), Value::string("nonprivate")));
            }
            Purpose::Play(_) => {
                // Every codec of 2008, as Flash Player says (7.2.1.1).
                for (name, number) in [
                    ("capabilities", 239.0),
                    ("audioCodecs", 3575.0),
                    ("videoCodecs", 252.0),
                    ("videoFunction", 1.0),
                ] {
                    properties.push((name.to_owned(), Value::Number(number)));
                }
                properties.push(("fpad".to_owned(), Value::Boolean(false)));
            }
        }
        properties.push(("objectEncoding".to_owned(), Value::Number(0.0)));
        properties.extend(config.capabilities.properties());
        self.connection.send_command(0, "connect", CONNECT, &[Value::Object(properties)]);
    }

    fn message(&mut self, message: Message) -> Result<(), Error> {
        if !matches!(message.kind, message::COMMAND_AMF0 | message::COMMAND_AMF3) {
            // The end of a recording arrives as a data message.
            if matches!(message.kind, message::DATA_AMF0 | message::DATA_AMF3) {
                self.play_status(&message);
            }
            self.inbox.message(message);
            return Ok(());
        }
        let command = Command::read(&message)?;
        match command.name.as_str() {
            "_result" => self.result(&command),
            "_error" => self.error(&command),
            "onStatus" => self.status(&command),
            // Connection closed by the server (7.2.1).
            "close" => self.end(String::new(), String::new()),
            _ => {}
        }
        Ok(())
    }

    fn result(&mut self, command: &Command) {
        if command.transaction == STREAM_LENGTH {
            if let Some(seconds) = command.number(0) {
                self.inbox.push(ClientEvent::StreamLength { seconds });
            }
            return;
        }
        match self.state {
            State::Connecting if command.transaction == CONNECT => {
                let mut said = command.arguments.iter().map(Capabilities::read);
                let capabilities = said.find(|said| !said.is_empty()).unwrap_or_default();
                self.inbox.push(ClientEvent::Connected { capabilities });
                self.state = State::CreatingStream;
                if matches!(self.config.purpose, Purpose::Publish(_)) {
                    let arguments = [Value::Null, Value::string(&self.config.name)];
                    self.connection.send_command(0, "releaseStream", RELEASE_STREAM, &arguments);
                    self.connection.send_command(0, "FCPublish", FC_PUBLISH, &arguments);
                }
                self.connection.send_command(0, "createStream", CREATE_STREAM, &[Value::Null]);
            }
            State::CreatingStream if command.transaction == CREATE_STREAM => {
                // Servers without several message streams answer without an ID.
                self.stream_id = command.number(0).unwrap_or(1.0) as u32;
                self.start();
            }
            _ => {}
        }
    }

    fn start(&mut self) {
        self.state = State::Starting;
        let name = Value::string(&self.config.name);
        match self.config.purpose {
            Purpose::Publish(kind) => {
                let kind = match kind {
                    PublishKind::Live => "live",
                    PublishKind::Record => "record",
                    PublishKind::Append => "append",
                };
                let arguments = [Value::Null, name, Value::string(kind)];
                self.connection.send_command(self.stream_id, "publish", START, &arguments);
            }
            Purpose::Play(start) => {
                let start = match start {
                    PlayStart::Any => -2000.0,
                    PlayStart::Live => -1000.0,
                    PlayStart::At(milliseconds) => milliseconds,
                };
                let mut arguments = vec![Value::Null, name, Value::Number(start)];
                arguments.extend(self.config.duration.map(Value::Number));
                self.connection.send_command(self.stream_id, "play", START, &arguments);
                self.connection.send_user_control(UserControl::SetBufferLength {
                    stream_id: self.stream_id,
                    milliseconds: self.config.buffer_length,
                });
                // Some servers send media before they report the start.
                self.connection.set_discard_media(false);
            }
        }
    }

    fn error(&mut self, command: &Command) {
        // Not every server knows releaseStream and FCPublish, so refusing them is not fatal.
        let fatal = match self.state {
            State::Connecting => command.transaction == CONNECT,
            State::CreatingStream => command.transaction == CREATE_STREAM,
            State::Starting => command.transaction == START,
            _ => false,
        };
        if fatal {
            let information = command.argument(0).unwrap_or(&Value::Null);
            self.reject(text(information, "code"), text(information, "description"));
        }
    }

    fn status(&mut self, command: &Command) {
        let information = command.argument(0).unwrap_or(&Value::Null);
        let (level, code) = (text(information, "level"), text(information, "code"));
        let description = text(information, "description");
        match code.as_str() {
            code::PUBLISH_START | code::PLAY_START if self.state == State::Starting => {
                self.state = State::Started;
                self.inbox.push(ClientEvent::Started);
            }
            code::RECONNECT_REQUEST => {
                let tc_url =
                    information.property("tcUrl").and_then(Value::as_str).map(str::to_owned);
                self.inbox.push(ClientEvent::Reconnect { tc_url, description });
            }
            code::PLAY_STOP | code::PLAY_UNPUBLISH_NOTIFY | code::UNPUBLISH_SUCCESS => {
                self.end(code, description);
            }
            _ if level == "error" && self.state == State::Starting => {
                self.reject(code, description);
            }
            // An error later on ends what was begun, unless it answers a wish to seek.
            _ if level == "error" && self.state == State::Started && code != code::SEEK_FAILED => {
                self.end(code, description);
            }
            _ => self.inbox.push(ClientEvent::Status { level, code, description }),
        }
    }

    fn play_status(&mut self, message: &Message) {
        if let Ok(values) = command::values(message)
            && values.first().and_then(Value::as_str) == Some("onPlayStatus")
            && values.iter().any(|value| text(value, "code") == code::PLAY_COMPLETE)
        {
            self.end(code::PLAY_COMPLETE.to_owned(), String::new());
        }
    }

    fn reject(&mut self, code: String, description: String) {
        self.over();
        self.inbox.push(ClientEvent::Rejected { code, description });
    }

    /// Tells the caller once that the stream is over, and why. A stream that has not begun counts
    /// as refused.
    fn end(&mut self, code: String, description: String) {
        match self.state {
            State::Started => {
                self.over();
                self.inbox.push(ClientEvent::Ended { code, description });
            }
            State::Over => {}
            _ if description.is_empty() => self.reject(code, "closed by the server".to_owned()),
            _ => self.reject(code, description),
        }
    }
}

fn text(object: &Value, name: &str) -> String {
    object.property(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
