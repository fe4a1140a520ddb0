//! A client session and a server session that talk to each other in memory, and a server session
//! with hostile clients.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use bytes::Bytes;
use proptest::prelude::*;
use protocol::rtmp::amf0::{self, Value};
use protocol::rtmp::chunk::{self, Read, Reader, csid, shared_message};
use protocol::rtmp::message::{self, Limits, Message};
use protocol::rtmp::{
    Blame, Capabilities, ClientConfig, ClientEvent, ClientSession, Error, PlayStart, PublishKind,
    Purpose, ServerConfig, ServerEvent, ServerSession, Url, Why, code,
};

const CHUNK_SIZE: usize = 64 << 10;

/// Both sides and the bytes between them.
struct Link {
    client: ClientSession,
    server: ServerSession,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// Everything that the client has sent.
    sent: Vec<u8>,
    /// How many bytes arrive at once.
    piece: usize,
}

impl Link {
    fn new(purpose: Purpose, piece: usize) -> Self {
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

    fn publish(piece: usize) -> Self {
        Self::new(Purpose::Publish(PublishKind::Live), piece)
    }

    fn play(piece: usize) -> Self {
        Self::new(Purpose::Play(PlayStart::Live), piece)
    }

    /// Passes bytes on until nothing changes any more. Returns the events of both sides.
    fn run(&mut self) -> (Vec<ClientEvent>, Vec<ServerEvent>) {
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
    fn connect(&mut self) -> ServerEvent {
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

fn ended(code: &str, why: &str) -> ClientEvent {
    ClientEvent::Ended { code: code.to_owned(), description: why.to_owned() }
}

fn on_meta_data() -> Vec<u8> {
    amf0::encode_all(&[
        Value::string("onMetaData"),
        Value::EcmaArray(vec![("width".to_owned(), Value::Number(1280.0))]),
    ])
}

#[test]
fn publishes_in_pieces_of_any_size() {
    for piece in [1, 7, 1000, usize::MAX] {
        let mut link = Link::publish(piece);
        assert_eq!(
            link.connect(),
            ServerEvent::PublishRequest {
                app: "live".to_owned(),
                name: "x".to_owned(),
                query: "key=value".to_owned(),
                kind: PublishKind::Live,
            }
        );
        assert!(link.client.send_audio(0, Bytes::from_static(b"early")).is_err());
        link.server.accept_publish().unwrap();
        let (client, server) = link.run();
        assert_eq!((client, server), (vec![ClientEvent::Started], vec![]));
        assert!(link.server.is_publishing() && link.client.is_started());

        let key = Bytes::from(vec![0x17; 70_000]);
        link.client.send_metadata(0, &on_meta_data()).unwrap();
        link.client.send_video(0xFFFF_FFF0, key.clone()).unwrap();
        link.client.send_audio(0xFFFF_FFFF, Bytes::from_static(b"sound")).unwrap();
        link.client.send_audio(9, Bytes::new()).unwrap();
        link.client.send_video(10, Bytes::from_static(b"delta")).unwrap();
        let (_, server) = link.run();
        let values = amf0::decode(&on_meta_data()).unwrap();
        assert_eq!(
            server,
            [
                ServerEvent::Metadata { timestamp: 0, values, payload: on_meta_data().into() },
                ServerEvent::Video { timestamp: 0xFFFF_FFF0, payload: key },
                ServerEvent::Audio {
                    timestamp: 0xFFFF_FFFF,
                    payload: Bytes::from_static(b"sound")
                },
                ServerEvent::Video { timestamp: 10, payload: Bytes::from_static(b"delta") },
            ]
        );

        link.client.close();
        let (client, server) = link.run();
        assert_eq!(server, [ServerEvent::Close { why: Why::Unpublish }]);
        assert!(!link.server.is_publishing());
        assert!(client.iter().all(|event| matches!(event, ClientEvent::Status { .. })));
    }
}

#[test]
fn plays_own_and_shared_messages_interleaved() {
    for piece in [13, 1000, usize::MAX] {
        let mut link = Link::play(piece);
        let request = link.connect();
        let ServerEvent::PlayRequest { app, name, query, start, duration } = request else {
            panic!("{request:?}");
        };
        assert_eq!((app.as_str(), name.as_str(), query.as_str()), ("live", "x", "key=value"));
        assert_eq!((start, duration), (PlayStart::Live, None));
        assert!(link.server.send_video(0, Bytes::from_static(b"early")).is_err());
        link.server.accept_play(false).unwrap();
        let (client, server) = link.run();
        assert_eq!(server, [ServerEvent::BufferLength { milliseconds: 3000 }]);
        let [
            ClientEvent::Status { code, .. },
            ClientEvent::Started,
            ClientEvent::Metadata { values, .. },
        ] = &client[..]
        else {
            panic!("{client:?}");
        };
        assert_eq!(code, code::PLAY_RESET);
        assert_eq!(values[0], Value::string("|RtmpSampleAccess"));

        let mut expected = Vec::new();
        for index in 0..50u32 {
            let timestamp = 0xFF_FFF0 + index;
            let payload =
                Bytes::from(vec![
                    index as u8;
                    if index == 20 { 150_000 } else { 1 + 30 * index as usize }
                ]);
            if index % 3 == 0 {
                link.server.send_video(timestamp, payload.clone()).unwrap();
                while let Some(piece) = link.server.poll_output() {
                    link.to_client.extend_from_slice(&piece);
                }
            } else {
                link.to_client.extend_from_slice(&shared_message(
                    csid::SHARED_VIDEO,
                    message::VIDEO,
                    timestamp,
                    &payload,
                    CHUNK_SIZE,
                ));
            }
            if index % 10 == 0 {
                link.server.ping(index);
            }
            expected.push(ClientEvent::Video { timestamp, payload });
        }
        let (client, server) = link.run();
        assert_eq!(client, expected);
        let pongs: Vec<ServerEvent> =
            [0, 10, 20, 30, 40].map(|timestamp| ServerEvent::Pong { timestamp }).into();
        assert_eq!(server, pongs);

        link.server.send_metadata(1, on_meta_data().into()).unwrap();
        link.server.play_unpublished().unwrap();
        let (client, _) = link.run();
        assert!(matches!(&client[0], ClientEvent::Metadata { timestamp: 1, .. }));
        assert_eq!(
            client[1..],
            [ended(code::PLAY_UNPUBLISH_NOTIFY, "The stream is not published.")]
        );
    }
}

#[test]
fn recordings_pause_seek_and_end() {
    let mut link = Link::new(Purpose::Play(PlayStart::At(2500.0)), 64);
    let request = link.connect();
    assert!(
        matches!(request, ServerEvent::PlayRequest { start: PlayStart::At(start), .. } if start == 2500.0)
    );
    link.server.accept_play(true).unwrap();
    link.run();
    link.client.pause(true, 40.0).unwrap();
    link.client.seek(1500.0).unwrap();
    link.client.pause(false, 1500.0).unwrap();
    let (client, server) = link.run();
    assert_eq!(
        server,
        [
            ServerEvent::Pause { paused: true, position: 40.0 },
            ServerEvent::Seek { position: 1500.0 },
            ServerEvent::Pause { paused: false, position: 1500.0 },
        ]
    );
    let codes = |events: &[ClientEvent]| -> Vec<String> {
        let code = |event: &ClientEvent| match event {
            ClientEvent::Status { code, .. } | ClientEvent::Ended { code, .. } => code.clone(),
            other => format!("{other:?}"),
        };
        events.iter().map(code).collect()
    };
    assert_eq!(codes(&client), [code::PAUSE_NOTIFY, code::UNPAUSE_NOTIFY]);
    link.server.accept_seek(1500.0).unwrap();
    link.server.reject_seek("beyond the end").unwrap();
    let (client, _) = link.run();
    assert_eq!(codes(&client), [code::SEEK_NOTIFY, code::PLAY_START, code::SEEK_FAILED]);
    link.server.play_complete().unwrap();
    let (client, _) = link.run();
    assert_eq!(client[0], ended(code::PLAY_COMPLETE, ""));
}

#[test]
fn a_player_asks_for_a_part_and_for_the_length() {
    let url = Url::parse("rtmp://localhost/live/x?key=value").unwrap();
    let mut config = ClientConfig::new(&url, Purpose::Play(PlayStart::At(2500.0)));
    config.capabilities = Capabilities::forward_all();
    config.duration = Some(4000.0);
    let mut link = Link::play(11);
    link.client = ClientSession::new(config, 1);
    assert!(link.client.ask_stream_length().is_err());
    let ServerEvent::PlayRequest { start, duration, .. } = link.connect() else { panic!() };
    assert_eq!((start, duration), (PlayStart::At(2500.0), Some(4000.0)));
    link.server.accept_play(true).unwrap();
    link.run();
    link.client.ask_stream_length().unwrap();
    let (_, server) = link.run();
    let [ServerEvent::StreamLength { name, query, transaction }] = &server[..] else {
        panic!("{server:?}");
    };
    assert_eq!((name.as_str(), query.as_str()), ("x", "key=value"));
    link.server.answer_stream_length(*transaction, 60.5);
    assert_eq!(link.run().0, [ClientEvent::StreamLength { seconds: 60.5 }]);
}

#[test]
fn refusals_reach_the_client_at_each_stage() {
    let rejected = |code: &str, description: &str| ClientEvent::Rejected {
        code: code.to_owned(),
        description: description.to_owned(),
    };
    let mut link = Link::publish(usize::MAX);
    link.run();
    link.server.reject_connect(code::CONNECT_INVALID_APP, "no such app").unwrap();
    assert_eq!(link.run().0, [rejected(code::CONNECT_INVALID_APP, "no such app")]);

    let mut link = Link::publish(usize::MAX);
    link.connect();
    link.server.reject_publish(code::PUBLISH_BAD_NAME, "x is taken").unwrap();
    assert_eq!(link.run().0, [rejected(code::PUBLISH_BAD_NAME, "x is taken")]);
    assert!(link.client.send_video(0, Bytes::from_static(b"x")).is_err());
    assert!(!link.server.is_publishing());

    let mut link = Link::play(usize::MAX);
    link.connect();
    link.server.reject_play(code::PLAY_STREAM_NOT_FOUND, "no x").unwrap();
    assert_eq!(link.run().0, [rejected(code::PLAY_STREAM_NOT_FOUND, "no x")]);
    assert!(!link.server.is_playing());
}

#[test]
fn a_publisher_that_may_not_go_on_learns_why() {
    let mut link = Link::publish(7);
    link.connect();
    link.server.accept_publish().unwrap();
    link.run();
    link.server.send_status("error", code::FAILED, "no room for another track");
    let (client, _) = link.run();
    assert_eq!(client, [ended(code::FAILED, "no room for another track")]);
    assert!(!link.client.is_started());
}

#[test]
fn decisions_nobody_asked_for_are_refused() {
    let mut server = ServerSession::new(ServerConfig::default(), 0);
    let results: [Result<(), Error>; 9] = [
        server.accept_connect(),
        server.reject_connect("", ""),
        server.accept_publish(),
        server.reject_publish("", ""),
        server.accept_play(true),
        server.reject_play("", ""),
        server.play_complete(),
        server.play_unpublished(),
        server.accept_seek(0.0),
    ];
    for result in results {
        assert_eq!(result.unwrap_err().blame, Blame::Caller);
    }
    assert_eq!(server.poll_output(), None);
}

#[test]
fn a_publisher_is_asked_to_reconnect_and_does() {
    let mut link = Link::publish(usize::MAX);
    link.connect();
    link.server.accept_publish().unwrap();
    link.run();
    assert!(link.server.request_reconnect(Some("rtmp://other/live"), "going down"));
    let (client, _) = link.run();
    let asked = ClientEvent::Reconnect {
        tc_url: Some("rtmp://other/live".to_owned()),
        description: "going down".to_owned(),
    };
    assert_eq!(client, [asked]);
    // Media still arrive until the client has moved.
    link.client.send_video(1, Bytes::from_static(b"x")).unwrap();
    assert_eq!(link.run().1.len(), 1);

    let mut again = Link::publish(usize::MAX);
    again.connect();
    again.server.accept_publish().unwrap();
    assert_eq!(again.run().0, [ClientEvent::Started]);
}

/// A client written by hand. It can do what a [`ClientSession`] cannot.
struct Hand {
    server: ServerSession,
    events: Vec<ServerEvent>,
    replies: Vec<Message>,
    reader: Reader,
}

impl Hand {
    /// A client after the handshake.
    fn new() -> Self {
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

    fn connected() -> Self {
        let mut hand = Self::new();
        hand.command("connect", 1.0, &[Value::object([("app", Value::string("/live/?t=1"))])]);
        hand.server.accept_connect().unwrap();
        hand.offer(&[]).unwrap();
        hand
    }

    fn publishing() -> Self {
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
    fn offer(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
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

    fn command(&mut self, name: &str, transaction: f64, arguments: &[Value]) {
        let mut values = vec![Value::string(name), Value::Number(transaction)];
        values.extend_from_slice(arguments);
        self.message(message::COMMAND_AMF0, &amf0::encode_all(&values)).unwrap();
    }

    fn message(&mut self, kind: u8, payload: &[u8]) -> Result<(), Error> {
        let bytes = shared_message(3, kind, 0, payload, chunk::DEFAULT_SIZE);
        self.offer(&bytes)
    }

    /// Names and codes of the commands that were sent since the last call.
    fn answers(&mut self) -> Vec<String> {
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

#[test]
fn every_command_is_answered_as_clients_expect() {
    let mut hand = Hand::connected();
    let [ServerEvent::Connect { app, query, capabilities, .. }] = &hand.events[..] else {
        panic!("{:?}", hand.events);
    };
    assert_eq!((app.as_str(), query.as_str()), ("live", "t=1"));
    assert!(capabilities.is_empty());
    assert_eq!(hand.answers(), ["_result NetConnection.Connect.Success", "onBWDone "]);
    let x = [Value::Null, Value::string("x?k=v")];
    hand.command("releaseStream", 2.0, &x);
    hand.command("FCPublish", 3.0, &x);
    hand.command("createStream", 4.0, &[Value::Null]);
    hand.command("_checkbw", 5.0, &[Value::Null]);
    assert_eq!(
        hand.answers(),
        ["_result ", "_result ", "onFCPublish NetStream.Publish.Start", "_result ", "_result "]
    );
    hand.command("getStreamLength", 6.0, &x);
    assert!(matches!(hand.events.pop(), Some(ServerEvent::StreamLength { transaction: 6.0, .. })));
    hand.server.answer_stream_length(6.0, 12.5);
    hand.command("noSuchThing", 7.0, &[]);
    hand.command("noSuchThing", 0.0, &[]);
    hand.command("play2", 0.0, &[Value::Null, Value::object([("len", Value::Number(1.0))])]);
    assert_eq!(
        hand.answers(),
        ["_result ", "_error NetConnection.Call.Failed", "onStatus NetStream.Play.Failed"]
    );
    // Playing with reset false: no Reset is sent.
    hand.command(
        "play",
        8.0,
        &[
            Value::Null,
            Value::string("x"),
            Value::Number(-2.0),
            Value::Number(5000.0),
            Value::Boolean(false),
        ],
    );
    let request = hand.events.pop().unwrap();
    let ServerEvent::PlayRequest { start: PlayStart::Any, duration: Some(5000.0), .. } = request
    else {
        panic!("{request:?}");
    };
    hand.server.accept_play(false).unwrap();
    hand.offer(&[]).unwrap();
    assert_eq!(hand.answers(), ["onStatus NetStream.Play.Start"]);
    // A second stream would need a message stream ID that shared messages do not have.
    hand.command("createStream", 9.0, &[Value::Null]);
    assert_eq!(hand.answers(), ["_error NetConnection.Call.Failed"]);
    hand.command("deleteStream", 0.0, &[Value::Null, Value::Number(1.0)]);
    assert_eq!(hand.events.pop(), Some(ServerEvent::Close { why: Why::DeleteStream }));
    hand.command("deleteStream", 0.0, &[Value::Null, Value::Number(1.0)]);
    assert_ne!(hand.events.last(), Some(&ServerEvent::Close { why: Why::DeleteStream }));
    hand.command("createStream", 10.0, &[Value::Null]);
    hand.command("publish", 11.0, &[Value::Null, Value::string("y"), Value::string("append")]);
    assert!(matches!(
        hand.events.last(),
        Some(ServerEvent::PublishRequest { kind: PublishKind::Append, .. })
    ));
    hand.server.accept_publish().unwrap();
    hand.offer(&[]).unwrap();
    assert_eq!(hand.answers(), ["_result ", "onStatus NetStream.Publish.Start"]);
    hand.command("closeStream", 0.0, &[Value::Null]);
    assert_eq!(hand.answers(), ["onStatus NetStream.Unpublish.Success"]);
    assert_eq!(hand.events.last(), Some(&ServerEvent::Close { why: Why::CloseStream }));
    assert!(!hand.server.request_reconnect(None, "it does not understand that"));
}

#[test]
fn aggregates_arrive_as_their_parts() {
    let mut hand = Hand::publishing();
    let mut aggregate = Vec::new();
    for index in 0..1000u32 {
        let [_, t0, t1, t2] = index.to_be_bytes();
        aggregate.extend_from_slice(&[8 + (index % 2) as u8, 0, 0, 1, t0, t1, t2, 0, 0, 0, 0]);
        aggregate.push(index as u8);
        aggregate.extend_from_slice(&12u32.to_be_bytes());
    }
    let mut bytes =
        shared_message(4, message::AGGREGATE, 5000, &aggregate, chunk::DEFAULT_SIZE).to_vec();
    bytes.extend_from_slice(&shared_message(4, message::AGGREGATE, 0, &[8, 0, 0, 9], 128));
    hand.offer(&bytes).unwrap();
    assert_eq!(hand.events.len(), 1001);
    assert!(matches!(&hand.events[0], ServerEvent::Audio { timestamp: 5000, .. }));
    assert!(matches!(&hand.events[999], ServerEvent::Video { timestamp: 5999, .. }));
    assert!(
        matches!(&hand.events[1000], ServerEvent::Ignored(error) if error.what.contains("cut off"))
    );
}

#[test]
fn amf3_forms_are_understood_and_bad_metadata_is_ignored() {
    let mut hand = Hand::publishing();
    let mut amf3 = vec![0];
    amf3.extend_from_slice(&amf0::encode_all([&Value::string("@setDataFrame")]));
    amf3.extend_from_slice(&on_meta_data());
    hand.message(message::DATA_AMF3, &amf3).unwrap();
    let Some(ServerEvent::Metadata { payload, values, .. }) = hand.events.pop() else {
        panic!("no metadata");
    };
    assert_eq!((payload, values[0].as_str()), (on_meta_data().into(), Some("onMetaData")));
    // Real AMF3, deep nesting and too many values are refused; the session continues.
    hand.message(message::DATA_AMF3, &[0, 17, 9, 7, 1]).unwrap();
    hand.message(message::DATA_AMF0, &[10, 0, 0, 0, 1].repeat(1000)).unwrap();
    hand.message(message::DATA_AMF0, &vec![5; 100_000]).unwrap();
    hand.message(message::AUDIO, b"sound").unwrap();
    let blames: Vec<Option<Blame>> = hand
        .events
        .iter()
        .map(|event| if let ServerEvent::Ignored(error) = event { Some(error.blame) } else { None })
        .collect();
    let limit = Some(Blame::LimitExceeded);
    assert_eq!(blames, [Some(Blame::Unsupported), limit, limit, None]);
}

#[test]
fn input_is_acknowledged_once_per_window() {
    let mut hand = Hand::publishing();
    hand.message(message::WINDOW_ACK_SIZE, &10_000u32.to_be_bytes()).unwrap();
    hand.replies.clear();
    for _ in 0..100 {
        hand.message(message::VIDEO, &[0; 1000]).unwrap();
    }
    let acknowledgements: Vec<u32> = hand
        .replies
        .iter()
        .filter(|reply| reply.kind == message::ACKNOWLEDGEMENT)
        .map(|reply| u32::from_be_bytes(reply.payload[..].try_into().unwrap()))
        .collect();
    assert_eq!(acknowledgements.len(), 10);
    for (index, pair) in acknowledgements.windows(2).enumerate() {
        assert!((10_000..12_000).contains(&(pair[1] - pair[0])), "{index}: {pair:?}");
    }
    assert!(u64::from(acknowledgements[9]) <= hand.server.position());
    // A window of one byte does not cause an answer to every byte.
    hand.message(message::WINDOW_ACK_SIZE, &1u32.to_be_bytes()).unwrap();
    hand.replies.clear();
    hand.message(message::VIDEO, &[0; 1000]).unwrap();
    assert!(hand.replies.len() <= 2, "{}", hand.replies.len());
    // The answer to Set Peer Bandwidth is a window (5.4.5).
    hand.message(message::SET_PEER_BANDWIDTH, &[0, 0, 16, 0, 2]).unwrap();
    assert!(hand.replies.iter().any(|reply| reply.kind == message::WINDOW_ACK_SIZE));
}

#[test]
fn a_peer_that_asks_and_does_not_read_is_held_up() {
    let mut hand = Hand::connected();
    let ping = shared_message(2, message::USER_CONTROL, 0, &[0, 6, 0, 0, 0, 1], 128);
    let flood = ping.repeat(100_000);
    let mut offered = &flood[..];
    while let Ok(taken) = hand.server.handle_input(offered) {
        offered = &offered[taken..];
        if taken == 0 {
            break;
        }
    }
    assert!(!offered.is_empty());
    assert!(hand.server.output_len() < 70 << 10, "{}", hand.server.output_len());
    // It continues once they are sent.
    while hand.server.poll_output().is_some() {}
    assert!(hand.server.handle_input(offered).unwrap() > 0);
}

#[test]
fn a_server_does_not_keep_the_media_of_who_does_not_publish() {
    let mut hand = Hand::connected();
    hand.events.clear();
    for _ in 0..100 {
        hand.message(message::VIDEO, &vec![0; 1 << 20][..100_000]).unwrap();
        hand.message(message::AGGREGATE, &[0; 1000]).unwrap();
        assert_eq!(hand.server.allocated(), 0);
    }
    assert_eq!(hand.events, []);
}

#[test]
fn a_frame_that_never_ends_takes_what_has_arrived() {
    let mut hand = Hand::publishing();
    let header = [4, 0, 0, 0, 0xFF, 0xFF, 0xFF, message::VIDEO, 1, 0, 0, 0];
    hand.message(message::SET_CHUNK_SIZE, &0xFF_FFFFu32.to_be_bytes()).unwrap();
    hand.offer(&header).unwrap();
    let mut sent = 0;
    while sent < (16 << 20) - 2 {
        let piece = vec![0; ((16 << 20) - 2 - sent).min(100_000)];
        sent += piece.len();
        hand.offer(&piece).unwrap();
        let bound = (2 * sent).clamp(256 << 10, 16 << 20);
        assert!(hand.server.allocated() <= bound, "{} after {sent}", hand.server.allocated());
    }
    assert_eq!(hand.events, []);
    hand.offer(&[0]).unwrap();
    assert!(
        matches!(&hand.events[..], [ServerEvent::Video { payload, .. }] if payload.len() == 0xFF_FFFF)
    );
    assert_eq!(hand.server.allocated(), 0);
}

#[test]
fn commands_out_of_order_end_the_session_for_good() {
    for (mut hand, name) in [(Hand::new(), "createStream"), (Hand::connected(), "connect")] {
        let payload = amf0::encode_all(&[Value::string(name), Value::Number(1.0)]);
        let at = hand.server.position();
        let error = hand.message(message::COMMAND_AMF0, &payload).unwrap_err();
        assert_eq!(error.blame, Blame::PeerMisbehaved);
        assert_eq!((error.message_type, error.csid, error.at), (Some(20), Some(3), at));
        assert_eq!(hand.server.handle_input(&[0]), Err(error.clone()));
        assert_eq!(hand.server.handle_input(&[]), Err(error));
    }
    let mut hand = Hand::connected();
    for payload in [&b""[..], &[5], &[2, 0, 200, b'x'], &[2, 0, 1, b'x', 17]] {
        assert!(hand.message(message::COMMAND_AMF0, payload).is_err());
    }
}

/// The bytes of one direction of a TCP connection, from a capture without losses.
fn capture(name: &str, from_port: u16) -> Vec<u8> {
    let file = std::fs::read(testkit::corpus_dir().join("rtmp").join(name)).unwrap();
    let mut stream = Vec::new();
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (packet, others) = rest[16..].split_at(length);
        rest = others;
        let ip = &packet[14..];
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = &ip[usize::from(ip[0] & 15) * 4..total];
        if u16::from_be_bytes([tcp[0], tcp[1]]) == from_port {
            stream.extend_from_slice(&tcp[usize::from(tcp[12] >> 4) * 4..]);
        }
    }
    stream
}

fn stream(name: &str) -> Vec<u8> {
    std::fs::read(testkit::corpus_dir().join("rtmp").join(name)).unwrap()
}

fn commands(bytes: &[u8], split: usize) -> (Vec<Message>, Vec<String>) {
    let mut reader = Reader::new(Limits::default(), 3073);
    let mut messages = Vec::new();
    for piece in bytes[3073..].chunks(split) {
        let mut input = piece;
        while let Some(read) = reader.read(&mut input).unwrap() {
            if let Read::Message(message) = read {
                messages.push(message);
            }
        }
    }
    let names = messages
        .iter()
        .filter(|message| message.kind == message::COMMAND_AMF0)
        .map(|message| amf0::decode(&message.payload).unwrap()[0].as_str().unwrap().to_owned())
        .collect();
    (messages, names)
}

/// Recorded output of our own clients: a publisher and a player.
fn recorded() -> [Vec<u8>; 2] {
    let mut publisher = Link::publish(usize::MAX);
    publisher.connect();
    publisher.server.accept_publish().unwrap();
    publisher.run();
    publisher.client.send_metadata(0, &on_meta_data()).unwrap();
    for time in 0..20 {
        publisher.client.send_video(40 * time, Bytes::from(vec![0x17; 150])).unwrap();
        publisher.client.send_audio(40 * time, Bytes::from_static(b"\xaf\x01sound")).unwrap();
    }
    publisher.run();
    let mut player = Link::play(usize::MAX);
    player.connect();
    player.server.accept_play(false).unwrap();
    player.run();
    [publisher.sent, player.sent]
}

#[test]
fn what_clients_send_is_read_at_any_split() {
    let [publisher, player] = recorded();
    for split in [1, 100, usize::MAX] {
        let (messages, names) = commands(&publisher, split);
        assert_eq!(names[0], "connect");
        assert!(names.iter().any(|name| name == "publish"), "{names:?}");
        let video = messages.iter().filter(|message| message.kind == message::VIDEO);
        let times: Vec<_> = video.map(|message| message.timestamp).collect();
        assert_eq!(times, (0..20).map(|time| 40 * time).collect::<Vec<_>>());
        let (_, names) = commands(&player, split);
        assert!(names[0] == "connect" && names.iter().any(|name| name == "play"), "{names:?}");
    }
}

#[test]
#[ignore = "corpus"]
fn corpus_recordings_of_adobes_programs_are_read() {
    for split in [1, 100, usize::MAX] {
        let (messages, names) = commands(&stream("fq_client_stream"), split);
        assert!(names.len() > 3 && names[0] == "connect", "{names:?}");
        assert!(names.iter().any(|name| name == "play"), "{names:?}");
        assert!(messages.len() > names.len());

        let (messages, names) = commands(&stream("fq_server_stream"), split);
        assert_eq!(names[0], "_result");
        let media: usize = messages
            .iter()
            .filter(|message| {
                [message::AUDIO, message::VIDEO, message::AGGREGATE].contains(&message.kind)
            })
            .map(|message| message.payload.len())
            .sum();
        assert!(media > 250_000, "{media} bytes of media");
        // Video and audio advance together.
        let mut last = 0;
        for message in messages.iter().filter(|message| message.kind == message::VIDEO) {
            assert!(message.timestamp >= last, "{} after {last}", message.timestamp);
            last = message.timestamp;
        }

        let (_, names) = commands(&capture("fq_rtmp_sample.cap", 1177), split);
        assert_eq!(names[0], "connect");
        let (_, names) = commands(&capture("fq_rtmp_sample.cap", 1935), split);
        assert!(names.iter().any(|name| name == "_result"), "{names:?}");
    }
}

/// Everything that a server does with some input, with random decisions.
fn serve(bytes: &[u8], split: usize, decide: bool) -> Result<usize, Error> {
    let mut server = ServerSession::new(ServerConfig::default(), 0);
    let mut events = 0;
    for piece in bytes.chunks(split) {
        let mut offered = piece;
        loop {
            let taken = server.handle_input(offered)?;
            offered = &offered[taken..];
            let mut told = 0;
            while let Some(event) = server.poll_event() {
                told += 1;
                let _ = match event {
                    ServerEvent::Connect { .. } => server.accept_connect(),
                    ServerEvent::PublishRequest { .. } if decide => server.accept_publish(),
                    ServerEvent::PublishRequest { .. } => {
                        server.reject_publish(code::PUBLISH_BAD_NAME, "")
                    }
                    ServerEvent::PlayRequest { .. } if decide => server.accept_play(true),
                    ServerEvent::PlayRequest { .. } => {
                        server.reject_play(code::PLAY_STREAM_NOT_FOUND, "")
                    }
                    _ => Ok(()),
                };
            }
            events += told;
            // 32 messages, or an aggregate, which cannot contain more messages in so few bytes.
            assert!(told <= 600, "{told} events at once");
            assert!(server.allocated() <= 18 << 20);
            assert!(server.output_len() < 128 << 10);
            let mut sent = 0;
            while let Some(piece) = server.poll_output() {
                sent += piece.len();
            }
            if taken == 0 && told == 0 && sent == 0 {
                assert!(offered.is_empty(), "stuck");
                break;
            }
        }
    }
    Ok(events)
}

#[test]
fn a_recorded_client_is_served_whatever_is_broken_in_it() {
    for recorded in recorded() {
        // It connects and requests to publish or to play.
        break_in_many_ways(&recorded, 2);
    }
}

#[test]
#[ignore = "corpus"]
fn corpus_a_recorded_client_is_served_whatever_is_broken_in_it() {
    break_in_many_ways(&stream("fq_client_stream"), 3);
}

fn break_in_many_ways(recorded: &[u8], events: usize) {
    assert!(serve(recorded, 100, true).unwrap() >= events);
    assert!(serve(recorded, 1, false).unwrap() >= events);
    for end in (0..recorded.len()).step_by(37) {
        let _ = serve(&recorded[..end], 500, true);
    }
    // Every byte after the handshake is changed once, in two ways.
    for at in 3073..recorded.len() {
        for flip in [0xFF, 0x01] {
            let mut broken = recorded.to_vec();
            broken[at] ^= flip;
            if let Err(error) = serve(&broken, 4096, true) {
                assert_ne!(error.blame, Blame::Caller, "{error}");
                assert!(error.at <= broken.len() as u64, "{error}");
            }
        }
    }
}

proptest! {
    #[test]
    fn garbage_at_any_stage_ends_in_an_error_or_nothing(
        garbage in prop::collection::vec(any::<u8>(), 1..3000),
        stage in 0..4,
        split in 1usize..200,
    ) {
        let mut hand = match stage {
            0 => {
                let _ = serve(&garbage, split, true);
                return Ok(());
            }
            1 => Hand::new(),
            2 => Hand::connected(),
            _ => Hand::publishing(),
        };
        for piece in garbage.chunks(split) {
            if let Err(error) = hand.offer(piece) {
                prop_assert_ne!(error.blame, Blame::Caller);
                break;
            }
            prop_assert!(hand.server.allocated() <= 18 << 20);
        }
    }

    #[test]
    fn random_messages_of_known_types_are_survived(
        messages in prop::collection::vec(
            (prop_oneof![Just(1u8), Just(2), Just(3), Just(4), Just(5), Just(6), Just(8), Just(9),
                Just(15), Just(17), Just(18), Just(20), Just(22)],
             prop::collection::vec(any::<u8>(), 0..60)),
            1..20,
        ),
    ) {
        for mut hand in [Hand::connected(), Hand::publishing()] {
            for (kind, payload) in &messages {
                if hand.message(*kind, payload).is_err() {
                    break;
                }
            }
        }
    }
}
