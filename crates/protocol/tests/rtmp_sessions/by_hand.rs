//! A server session with clients written by hand, which do what a client session cannot.

use protocol::rtmp::amf0::{self, Value};
use protocol::rtmp::chunk::{self, shared_message};
use protocol::rtmp::{Blame, PlayStart, PublishKind, ServerEvent, Why, message};

use super::support::{Hand, on_meta_data};

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
    // A file's index of keyframes may have that many values.
    let unsupported = Some(Blame::Unsupported);
    assert_eq!(blames, [unsupported, Some(Blame::LimitExceeded), unsupported, None]);
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
