mod event;

use bytes::Bytes;

use super::amf0::{self, Value};
use super::command::{self, Command, split_query};
use super::connection::{Connection, Incoming};
use super::inbox::Inbox;
use super::message::{self, Message, UserControl};
use super::{Capabilities, Error, code};

pub use event::{PlayStart, PublishKind, ServerConfig, ServerEvent, Why};

/// The message stream in every answer to `createStream`. It is the same for all, so that media
/// messages of [`shared_message`](super::chunk::shared_message) suit every player.
const STREAM: u32 = 1;

/// A request on which the caller must decide.
#[derive(Debug)]
enum Pending {
    Connect { transaction: f64, enhanced: bool },
    Publish { name: String },
    Play { name: String, reset: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Neither publishes nor plays.
    None,
    Publish,
    Play,
}

/// The server's side of one connection.
///
/// # Contract
/// - [`handle_input`](Self::handle_input) takes bytes in their order and returns how many it took.
///   It stops early when events wait to be polled, when answers wait to be sent, and while a
///   request ([`Connect`](ServerEvent::Connect), [`PublishRequest`](ServerEvent::PublishRequest),
///   [`PlayRequest`](ServerEvent::PlayRequest)) waits for its answer. The caller keeps the rest and
///   passes it again after that.
/// - After each `handle_input`, call [`poll_event`](Self::poll_event) until `None`. After each call
///   that may have queued output, call [`poll_output`](Self::poll_output) until `None`.
/// - Only whole messages are queued. So when `poll_output` has returned `None`, and all its output
///   has been written, the connection is at a message boundary. Then shared messages
///   ([`shared_message`](super::chunk::shared_message)) may follow, if
///   [`is_playing`](Self::is_playing).
/// - An error ends the session. Events and output queued before it may still be polled, and every
///   further `handle_input` returns the same error.
///
/// # Memory
/// Output that was not yet polled counts separately: the caller can limit it by
/// [`output_len`](Self::output_len), and answers stop growing at 64 KiB. Besides, a session holds
/// one message of up to 16 MiB, for which it allocates at most twice what has arrived, or 256 KiB.
/// Everything else takes less than 4 MiB: other incomplete messages (2 MiB), one data message with
/// its values (256 KiB on the wire), and 32 events. Media of clients that do not publish are not
/// kept.
#[derive(Debug)]
pub struct ServerSession {
    /// Used in the only answer to `connect`.
    config: Option<Box<ServerConfig>>,
    connection: Connection,
    inbox: Inbox<ServerEvent>,
    pending: Option<Pending>,
    /// Set by a successful `connect`.
    app: Option<String>,
    role: Role,
    /// Whether the client understands requests to reconnect.
    reconnects: bool,
}

impl ServerSession {
    /// Creates a session that waits for the client's first byte. `nonce` fills the handshake. It
    /// should differ from session to session, but protects nothing.
    pub fn new(config: ServerConfig, nonce: u64) -> Self {
        Self {
            config: Some(Box::new(config)),
            connection: Connection::server(nonce),
            inbox: Inbox::new(),
            pending: None,
            app: None,
            role: Role::None,
            reconnects: false,
        }
    }

    /// Takes bytes from the client and returns how many it took. See the contract above.
    ///
    /// # Errors
    /// The client broke the protocol or exceeded a limit; the session is over.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<usize, Error> {
        let mut left = input;
        while self.pending.is_none() && self.inbox.is_open() {
            let Some(incoming) = self.connection.next(&mut left)? else { break };
            let result = match incoming {
                // A server keeps the media it is sent, so it measures none.
                Incoming::Ready | Incoming::Measured(_) => Ok(()),
                Incoming::UserControl(event) => {
                    self.user_control(event);
                    Ok(())
                }
                Incoming::Message(message) => self.message(message),
                Incoming::Skipped(error) => {
                    self.inbox.push(ServerEvent::Ignored(error));
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
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.inbox.poll()
    }

    /// The next piece to send.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        self.connection.poll_output()
    }

    /// Bytes that are queued and not polled yet; 0 at a message boundary.
    pub fn output_len(&self) -> usize {
        self.connection.output_len()
    }

    /// Bytes taken so far.
    pub fn position(&self) -> u64 {
        self.connection.position()
    }

    /// Bytes allocated for messages that arrived in part.
    pub fn allocated(&self) -> usize {
        self.connection.allocated()
    }

    /// Releases memory that is kept for further input. This suits a client that will not send much
    /// more, such as a player that has begun to play. If it does send more, memory is allocated
    /// again.
    pub fn shrink(&mut self) {
        self.connection.shrink();
        self.inbox.shrink();
    }

    /// Whether the client has said what it connects to. Before that it understands no status.
    pub fn is_connected(&self) -> bool {
        self.app.is_some()
    }

    /// Whether a publish request has been accepted, and publishing has not ended.
    pub fn is_publishing(&self) -> bool {
        self.role == Role::Publish
    }

    /// Whether a play request has been accepted, and playing has not ended.
    pub fn is_playing(&self) -> bool {
        self.role == Role::Play
    }

    /// Accepts the connection.
    ///
    /// # Errors
    /// There is no [`ServerEvent::Connect`] to answer.
    pub fn accept_connect(&mut self) -> Result<(), Error> {
        let Some(Pending::Connect { transaction, enhanced }) = self.pending else {
            return Err(self.connection.refuse("accepting a connection nobody asked for"));
        };
        self.pending = None;
        let config = self.config.take().unwrap_or_default();
        self.connection.send_window(config.window_ack_size);
        self.connection.send_peer_bandwidth(config.peer_bandwidth);
        self.connection.send_chunk_size(config.chunk_size);
        let mut properties = vec![
            ("fmsVer".to_owned(), Value::string("FMS/3,5,1,525")),
            ("capabilities".to_owned(), Value::Number(31.0)),
            ("mode".to_owned(), Value::Number(1.0)),
        ];
        let mut information =
            command::information("status", code::CONNECT_SUCCESS, "Connection succeeded.");
        information.push(("objectEncoding".to_owned(), Value::Number(0.0)));
        if enhanced {
            // Clients differ in which of the two objects they read.
            properties.extend(config.capabilities.properties());
            information.extend(config.capabilities.properties());
        }
        let arguments = [Value::Object(properties), Value::Object(information)];
        self.connection.send_command(0, "_result", transaction, &arguments);
        self.connection.send_command(0, "onBWDone", 0.0, &[Value::Null]);
        Ok(())
    }

    /// Refuses the connection. The caller closes it once the output is sent. `code` is
    /// [`code::CONNECT_REJECTED`] or [`code::CONNECT_INVALID_APP`].
    ///
    /// # Errors
    /// There is no [`ServerEvent::Connect`] to answer.
    pub fn reject_connect(&mut self, code: &str, description: &str) -> Result<(), Error> {
        let Some(Pending::Connect { transaction, .. }) = self.pending else {
            return Err(self.connection.refuse("rejecting a connection nobody asked for"));
        };
        self.pending = None;
        self.app = None;
        let information = Value::Object(command::information("error", code, description));
        self.connection.send_command(0, "_error", transaction, &[Value::Null, information]);
        Ok(())
    }

    /// Lets the client publish: from now on its media arrive as events.
    ///
    /// # Errors
    /// There is no [`ServerEvent::PublishRequest`] to answer.
    pub fn accept_publish(&mut self) -> Result<(), Error> {
        let Some(Pending::Publish { name }) = &self.pending else {
            return Err(self.connection.refuse("accepting a publisher that did not ask"));
        };
        let description = format!("{name} is now published.");
        self.pending = None;
        self.role = Role::Publish;
        self.connection.set_discard_media(false);
        self.connection.send_user_control(UserControl::StreamBegin(STREAM));
        self.connection.send_status(STREAM, "status", code::PUBLISH_START, &description);
        Ok(())
    }

    /// Refuses to let the client publish; it may ask again. `code` is
    /// [`code::PUBLISH_BAD_NAME`] or [`code::PUBLISH_DENIED`].
    ///
    /// # Errors
    /// There is no [`ServerEvent::PublishRequest`] to answer.
    pub fn reject_publish(&mut self, code: &str, description: &str) -> Result<(), Error> {
        let Some(Pending::Publish { .. }) = &self.pending else {
            return Err(self.connection.refuse("rejecting a publisher that did not ask"));
        };
        self.pending = None;
        self.connection.send_status(STREAM, "error", code, description);
        Ok(())
    }

    /// Lets the client play: media may be sent to it. `recorded` tells the client that it may seek.
    ///
    /// # Errors
    /// There is no [`ServerEvent::PlayRequest`] to answer.
    pub fn accept_play(&mut self, recorded: bool) -> Result<(), Error> {
        let Some(Pending::Play { name, reset }) = &self.pending else {
            return Err(self.connection.refuse("accepting a player that did not ask"));
        };
        let (resetting, starting) =
            (format!("Playing and resetting {name}."), format!("Started playing {name}."));
        let reset = *reset;
        self.pending = None;
        self.role = Role::Play;
        // In the order of 7.2.2.1 and Adobe's server.
        if recorded {
            self.connection.send_user_control(UserControl::StreamIsRecorded(STREAM));
        }
        self.connection.send_user_control(UserControl::StreamBegin(STREAM));
        if reset {
            self.connection.send_status(STREAM, "status", code::PLAY_RESET, &resetting);
        }
        self.connection.send_status(STREAM, "status", code::PLAY_START, &starting);
        // Without this, players in a browser may not access video and audio.
        self.send_data(&[
            Value::string("|RtmpSampleAccess"),
            Value::Boolean(true),
            Value::Boolean(true),
        ])
    }

    /// Refuses to play. The client may make another request. `code` is
    /// [`code::PLAY_STREAM_NOT_FOUND`] or [`code::PLAY_FAILED`].
    ///
    /// # Errors
    /// There is no [`ServerEvent::PlayRequest`] to answer.
    pub fn reject_play(&mut self, code: &str, description: &str) -> Result<(), Error> {
        let Some(Pending::Play { .. }) = &self.pending else {
            return Err(self.connection.refuse("rejecting a player that did not ask"));
        };
        self.pending = None;
        self.connection.send_status(STREAM, "error", code, description);
        Ok(())
    }

    /// Queues audio for this player alone: an FLV audio tag's body, at `timestamp` milliseconds.
    ///
    /// # Errors
    /// Nothing is played, or the payload exceeds 16,777,215 bytes.
    pub fn send_audio(&mut self, timestamp: u32, payload: Bytes) -> Result<(), Error> {
        self.send(message::AUDIO, timestamp, payload)
    }

    /// Queues video for this player alone: an FLV video tag's body, at `timestamp` milliseconds.
    ///
    /// # Errors
    /// The same as those of [`ServerSession::send_audio`].
    pub fn send_video(&mut self, timestamp: u32, payload: Bytes) -> Result<(), Error> {
        self.send(message::VIDEO, timestamp, payload)
    }

    /// Queues a data message for this player alone: an FLV script tag's body (`onMetaData` and
    /// its values in AMF0), at `timestamp` milliseconds.
    ///
    /// # Errors
    /// The same as those of [`ServerSession::send_audio`].
    pub fn send_metadata(&mut self, timestamp: u32, payload: Bytes) -> Result<(), Error> {
        self.send(message::DATA_AMF0, timestamp, payload)
    }

    fn send(&mut self, kind: u8, timestamp: u32, payload: Bytes) -> Result<(), Error> {
        self.check_playing("sending media where nothing is played")?;
        self.connection.send_media(kind, STREAM, timestamp, payload)
    }

    fn send_data(&mut self, values: &[Value]) -> Result<(), Error> {
        let payload = amf0::encode_all(values).into();
        self.connection.send_media(message::DATA_AMF0, STREAM, 0, payload)
    }

    fn check_playing(&self, what: &'static str) -> Result<(), Error> {
        if self.role == Role::Play { Ok(()) } else { Err(self.connection.refuse(what)) }
    }

    /// Tells the player that the whole recording has been sent. The player may then play or seek
    /// again.
    ///
    /// # Errors
    /// Nothing is played.
    pub fn play_complete(&mut self) -> Result<(), Error> {
        self.check_playing("completing what is not played")?;
        self.connection.send_user_control(UserControl::StreamEof(STREAM));
        let information = command::information("status", code::PLAY_COMPLETE, "");
        self.send_data(&[Value::string("onPlayStatus"), Value::Object(information)])?;
        self.connection.send_status(STREAM, "status", code::PLAY_STOP, "Stopped playing.");
        Ok(())
    }

    /// Tells the player that the live stream's publisher has left for good.
    ///
    /// # Errors
    /// Nothing is played.
    pub fn play_unpublished(&mut self) -> Result<(), Error> {
        self.check_playing("unpublishing what is not played")?;
        self.connection.send_user_control(UserControl::StreamEof(STREAM));
        let code = code::PLAY_UNPUBLISH_NOTIFY;
        self.connection.send_status(STREAM, "status", code, "The stream is not published.");
        Ok(())
    }

    /// Tells the player that media from `position` (milliseconds) follow.
    ///
    /// # Errors
    /// Nothing is played.
    pub fn accept_seek(&mut self, position: f64) -> Result<(), Error> {
        self.check_playing("seeking where nothing is played")?;
        self.connection.send_user_control(UserControl::StreamEof(STREAM));
        self.connection.send_user_control(UserControl::StreamBegin(STREAM));
        let description = format!("Seeking {position}.");
        self.connection.send_status(STREAM, "status", code::SEEK_NOTIFY, &description);
        self.connection.send_status(STREAM, "status", code::PLAY_START, "Playing again.");
        Ok(())
    }

    /// Tells the player that it cannot seek.
    ///
    /// # Errors
    /// Nothing is played.
    pub fn reject_seek(&mut self, description: &str) -> Result<(), Error> {
        self.check_playing("refusing to seek where nothing is played")?;
        self.connection.send_status(STREAM, "error", code::SEEK_FAILED, description);
        Ok(())
    }

    /// Answers [`ServerEvent::StreamLength`].
    pub fn answer_stream_length(&mut self, transaction: f64, seconds: f64) {
        let arguments = [Value::Null, Value::Number(seconds)];
        self.connection.send_command(0, "_result", transaction, &arguments);
    }

    /// Sends any status on the client's stream, for cases that the calls above do not cover.
    /// `level` is `status`, `warning` or `error`.
    pub fn send_status(&mut self, level: &str, code: &str, description: &str) {
        self.connection.send_status(STREAM, level, code, description);
    }

    /// Asks the client to connect again, to `tc_url` if it is given (Enhanced RTMP v2, "Reconnect
    /// Request"). Returns false, and sends nothing, where the client does not support this.
    pub fn request_reconnect(&mut self, tc_url: Option<&str>, description: &str) -> bool {
        if self.reconnects {
            let mut information =
                command::information("status", code::RECONNECT_REQUEST, description);
            if let Some(url) = tc_url {
                information.push(("tcUrl".to_owned(), Value::string(url)));
            }
            let arguments = [Value::Null, Value::Object(information)];
            self.connection.send_command(0, "onStatus", 0.0, &arguments);
        }
        self.reconnects
    }

    /// Sends a ping (6.2), which the client answers with [`ServerEvent::Pong`]. The pong returns
    /// `timestamp`, which should be the server's time in milliseconds.
    pub fn ping(&mut self, timestamp: u32) {
        self.connection.send_user_control(UserControl::PingRequest(timestamp));
    }

    fn user_control(&mut self, event: UserControl) {
        match event {
            UserControl::SetBufferLength { milliseconds, .. } => {
                self.inbox.push(ServerEvent::BufferLength { milliseconds });
            }
            UserControl::PingResponse(timestamp) => {
                self.inbox.push(ServerEvent::Pong { timestamp });
            }
            _ => {}
        }
    }

    fn message(&mut self, message: Message) -> Result<(), Error> {
        if !matches!(message.kind, message::COMMAND_AMF0 | message::COMMAND_AMF3) {
            self.inbox.message(message);
            return Ok(());
        }
        let command = Command::read(&message)?;
        if command.name == "connect" {
            if self.app.is_some() {
                return Err(
                    Error::misbehaved("second connect", message.at).on(message.kind, message.csid)
                );
            }
            self.connect(&command);
            return Ok(());
        }
        if self.app.is_none() {
            return Err(Error::misbehaved("command before connect", message.at)
                .on(message.kind, message.csid));
        }
        self.command(&command);
        Ok(())
    }

    fn connect(&mut self, command: &Command) {
        let object = command.arguments.first().unwrap_or(&Value::Null);
        let text = |name| object.property(name).and_then(Value::as_str).unwrap_or_default();
        let (app, query) = split_query(text("app"));
        let app = app.trim_matches('/').to_owned();
        let capabilities = Capabilities::read(object);
        self.reconnects = capabilities.has(Capabilities::RECONNECT);
        self.pending = Some(Pending::Connect {
            transaction: command.transaction,
            enhanced: !capabilities.is_empty(),
        });
        self.inbox.push(ServerEvent::Connect {
            app: app.clone(),
            query,
            tc_url: text("tcUrl").to_owned(),
            flash_ver: text("flashVer").to_owned(),
            capabilities,
        });
        self.app = Some(app);
    }

    fn command(&mut self, command: &Command) {
        let transaction = command.transaction;
        match command.name.as_str() {
            "createStream" => {
                // One stream at a time, because its ID is the one that shared messages have.
                if self.role == Role::None {
                    self.result(transaction, Value::Number(f64::from(STREAM)));
                } else {
                    self.error(transaction, "One stream per connection.");
                }
            }
            "releaseStream" | "_checkbw" | "FCSubscribe" | "FCUnsubscribe" => {
                self.result(transaction, Value::Undefined);
            }
            "FCPublish" => {
                self.result(transaction, Value::Undefined);
                self.fc_status("onFCPublish", code::PUBLISH_START, command.text(0));
            }
            "FCUnpublish" => {
                self.result(transaction, Value::Undefined);
                self.fc_status("onFCUnpublish", code::UNPUBLISH_SUCCESS, command.text(0));
                if self.role == Role::Publish {
                    self.close(Why::Unpublish);
                }
            }
            "publish" => self.publish(command),
            "play" => self.play(command),
            "play2" => self.connection.send_status(
                STREAM,
                "error",
                code::PLAY_FAILED,
                "Switching by play2 is not supported.",
            ),
            "pause" | "pauseRaw" if self.role == Role::Play => {
                let paused = command.argument(0).and_then(Value::as_bool).unwrap_or(true);
                let code = if paused { code::PAUSE_NOTIFY } else { code::UNPAUSE_NOTIFY };
                self.connection.send_status(STREAM, "status", code, "");
                let position = command.number(1).unwrap_or_default();
                self.inbox.push(ServerEvent::Pause { paused, position });
            }
            "seek" if self.role == Role::Play => {
                let position = command.number(0).unwrap_or_default();
                self.inbox.push(ServerEvent::Seek { position });
            }
            "getStreamLength" => {
                let (name, query) = split_query(command.text(0));
                self.inbox.push(ServerEvent::StreamLength { name, query, transaction });
            }
            "closeStream" => self.close(Why::CloseStream),
            "deleteStream" => self.close(Why::DeleteStream),
            // Unexpected answers, and commands that need no action.
            "_result" | "_error" | "onStatus" | "receiveAudio" | "receiveVideo" => {}
            _ if transaction != 0.0 => {
                self.error(transaction, &format!("Unknown method {}.", command.name));
            }
            _ => {}
        }
    }

    fn publish(&mut self, command: &Command) {
        self.close(Why::Replaced);
        let (name, query) = split_query(command.text(0));
        let kind = match command.text(1) {
            "record" => PublishKind::Record,
            "append" => PublishKind::Append,
            _ => PublishKind::Live,
        };
        self.pending = Some(Pending::Publish { name: name.clone() });
        let app = self.app.clone().unwrap_or_default();
        self.inbox.push(ServerEvent::PublishRequest { app, name, query, kind });
    }

    fn play(&mut self, command: &Command) {
        self.close(Why::Replaced);
        let (name, query) = split_query(command.text(0));
        let start = match command.number(1) {
            Some(start) if start >= 0.0 => PlayStart::At(start),
            Some(-1.0 | -1000.0) => PlayStart::Live,
            _ => PlayStart::Any,
        };
        let duration = command.number(2).filter(|duration| *duration >= 0.0);
        let reset = command.argument(3).and_then(Value::as_bool).unwrap_or(true);
        self.pending = Some(Pending::Play { name: name.clone(), reset });
        let app = self.app.clone().unwrap_or_default();
        self.inbox.push(ServerEvent::PlayRequest { app, name, query, start, duration });
    }

    /// Ends publishing or playing, if there is any.
    fn close(&mut self, why: Why) {
        if self.role == Role::Publish {
            self.connection.set_discard_media(true);
            if why != Why::Replaced {
                let code = code::UNPUBLISH_SUCCESS;
                self.connection.send_status(STREAM, "status", code, "Stopped publishing.");
            }
        }
        if self.role != Role::None {
            self.role = Role::None;
            self.inbox.push(ServerEvent::Close { why });
        }
    }

    fn result(&mut self, transaction: f64, value: Value) {
        self.connection.send_command(0, "_result", transaction, &[Value::Null, value]);
    }

    fn error(&mut self, transaction: f64, description: &str) {
        let information = command::information("error", code::CALL_FAILED, description);
        let arguments = [Value::Null, Value::Object(information)];
        self.connection.send_command(0, "_error", transaction, &arguments);
    }

    fn fc_status(&mut self, name: &str, code: &str, stream: &str) {
        let information = Value::Object(command::information("status", code, stream));
        self.connection.send_command(0, name, 0.0, &[Value::Null, information]);
    }
}
