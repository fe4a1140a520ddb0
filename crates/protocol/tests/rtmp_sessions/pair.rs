//! A client session and a server session that talk to each other.

use bytes::Bytes;
use protocol::rtmp::amf0::{self, Value};
use protocol::rtmp::chunk::{csid, shared_message};
use protocol::rtmp::{
    Blame, Capabilities, ClientConfig, ClientEvent, ClientSession, Error, PlayStart, PublishKind,
    Purpose, ServerConfig, ServerEvent, ServerSession, Url, Why, code, message,
};

use super::support::{Link, ended, on_meta_data};

const CHUNK_SIZE: usize = 64 << 10;

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
        let media = expected.iter().map(|event| match event {
            ClientEvent::Video { payload, .. } => payload.len() as u64,
            other => panic!("{other:?}"),
        });
        assert_eq!(link.client.media_bytes(), media.sum::<u64>());
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
fn bytes_of_media_count_as_they_come() {
    let mut link = Link::play(usize::MAX);
    link.connect();
    link.server.accept_play(false).unwrap();
    link.run();
    assert_eq!(link.client.media_bytes(), 0);
    link.server.send_video(0, Bytes::from(vec![0x17; 5000])).unwrap();
    let bytes: Vec<u8> = std::iter::from_fn(|| link.server.poll_output()).flatten().collect();
    // The message has one chunk, and so one header.
    let header = bytes.len() - 5000;
    for (at, byte) in bytes.iter().enumerate() {
        assert_eq!(link.client.handle_input(&[*byte]), Ok(1));
        let counted = (at + 1).saturating_sub(header) as u64;
        assert_eq!(link.client.media_bytes(), counted);
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
