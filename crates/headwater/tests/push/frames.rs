//! Clients that break RFC 6455 or send too much.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use testkit::push::{Client, Frame, masked};
use testkit::{eventually, time_of, track_of, uninterrupted};

use crate::support::{LIMIT, metric, server};

#[test]
fn a_table_of_what_clients_may_not_send() {
    let server = server("workers = 1");
    let unmasked = vec![0x81, 2, b'{', b'}'];
    let huge = [&[0x81, 0xFF], &(1_u64 << 40).to_be_bytes()[..], &[0; 4]].concat();
    let cases = [
        ("unmasked text", unmasked, 1002),
        ("unmasked close", vec![0x88, 0], 1002),
        ("reserved bit", masked(0xC1, b"{}"), 1002),
        ("reserved opcode", masked(0x83, b"{}"), 1002),
        ("reserved control opcode", masked(0x8B, b""), 1002),
        ("continuation of nothing", masked(0x80, b"{}"), 1002),
        ("message within a message", [masked(0x01, b"{"), masked(0x81, b"{}")].concat(), 1002),
        ("ping in fragments", masked(0x09, b""), 1002),
        ("ping of 126 bytes", masked(0x89, &[b'x'; 126]), 1002),
        ("close with half a code", masked(0x88, &[3]), 1002),
        ("close with code 1005", masked(0x88, &[3, 237]), 1002),
        ("close whose reason is not UTF-8", masked(0x88, &[3, 232, 0xFF]), 1007),
        ("binary message", masked(0x82, b"{}"), 1003),
        ("text that is not UTF-8", masked(0x81, &[0xFF, 0xFE]), 1007),
        ("text that is no JSON", masked(0x81, b"hello"), 1007),
        ("masked rubbish", masked(0x81, &[0x9F; 4000]), 1007),
        ("command that means nothing", masked(0x81, b"{\"seek\":\"x\"}"), 1007),
        ("message of 5,000 bytes", masked(0x81, &[b' '; 5000]), 1009),
        ("message of a terabyte", huge, 1009),
        ("message that never ends", [masked(1, b"{"), masked(0, b"").repeat(100)].concat(), 1009),
        ("pings without end", masked(0x89, b"x").repeat(300), 1008),
        ("pongs without end", masked(0x8A, b"x").repeat(300), 1008),
        ("thousands of seeks", masked(0x81, b"{\"seek\":3}").repeat(2000), 1008),
    ];
    let address = server.http;
    // Right after the handshake, and in the middle of the stream.
    let attempt = &|is_subscribed: bool, what: &str, bytes: &[u8], code: u16| {
        let mut client = Client::connect(address, "/live/demo/push");
        if is_subscribed {
            for _ in 0..20 {
                client.next().unwrap();
            }
        }
        // The server may close before all is sent.
        let _ = client.socket.write_all(bytes);
        assert_eq!(client.closed(), code, "{what}");
    };
    thread::scope(|scope| {
        for (what, bytes, code) in &cases {
            for is_subscribed in [false, true] {
                scope.spawn(move || attempt(is_subscribed, what, bytes, *code));
            }
        }
    });
    assert!(metric(&server, r#"headwater_push_violations_total{code="1002"}"#) >= 22);
    let gauge = r#"headwater_viewers{stream="live/demo",delivery="push"}"#;
    eventually(LIMIT, "all have gone", || metric(&server, gauge) == 0);
}

#[test]
fn pings_are_answered_and_a_close_is_returned() {
    let server = server("");
    let mut client = Client::connect(server.http, "/live/demo/push");
    client.send(0x89, b"are you there");
    let pong = client.until(|frame| frame.opcode == 10);
    assert_eq!(pong.payload, b"are you there");
    // A command in fragments, with a ping between them.
    client.send(0x01, b"{\"se");
    client.send(0x89, b"");
    client.send(0x80, b"ek\":1}");
    client.until(|frame| frame.opcode == 10 && frame.payload.is_empty());
    let event = client.until(|frame| frame.opcode == 1).event();
    assert_eq!((&event["event"], &event["reason"]), (&"discontinuity".into(), &"seek".into()));
    client.send(0x88, &[0x0F, 0xA0, b'b', b'y', b'e']);
    assert_eq!(client.closed(), 4000);
}

/// It is pinged before. (`push::tests` counts the pings.)
#[test]
fn a_silent_viewer_is_pinged_and_then_gone() {
    let server = server("[push]\nping_interval = \"5s\"\n");
    let mut client = Client::connect(server.http, "/live/demo/push");
    client.say("{\"pause\":true}");
    client.send(0x89, b"paused");
    client.until(|frame| frame.opcode == 10);
    let pings: Vec<_> = std::iter::from_fn(|| client.next()).map(|frame| frame.opcode).collect();
    assert!(!pings.is_empty() && pings.iter().all(|&opcode| opcode == 9), "{pings:?}");
    let gauge = r#"headwater_viewers{stream="live/demo",delivery="push"}"#;
    eventually(LIMIT, "it is not counted", || metric(&server, gauge) == 0);
}

#[test]
fn a_paused_viewer_is_sent_nothing_and_goes_on_at_a_keyframe() {
    let server = server("");
    let mut client = Client::connect(server.http, "/live/demo/push");
    for _ in 0..10 {
        client.next().unwrap();
    }
    client.say("{\"pause\":true}");
    client.send(0x89, b"paused");
    client.until(|frame| frame.opcode == 10 && frame.payload == b"paused");
    client.socket.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    let mut byte = [0];
    let quiet = uninterrupted(|| client.socket.read(&mut byte)).unwrap_err();
    assert_eq!(quiet.kind(), std::io::ErrorKind::WouldBlock);
    client.socket.set_read_timeout(Some(LIMIT)).unwrap();
    client.say("{\"pause\":false}");
    assert_eq!(client.next().unwrap().event()["reason"], "pause");
    assert_eq!(&client.next().unwrap().payload[4..8], b"ftyp");
    assert_eq!(client.next().unwrap().opcode, 2);
}

/// The client is told of the seek when it goes on, whether one command or two ask for that.
#[test]
fn a_viewer_that_seeks_while_paused_goes_on_there() {
    let server = server("");
    for commands in
        [&["{\"seek\":TIME,\"pause\":false}"][..], &["{\"seek\":TIME}", "{\"pause\":false}"]]
    {
        let mut client = Client::connect(server.http, "/live/demo/push");
        let is_picture = |frame: &Frame| {
            frame.opcode == 2 && frame.payload[4..8] != *b"ftyp" && track_of(&frame.payload) == 1
        };
        let first = time_of(&client.until(is_picture).payload);
        // By then there is a newer keyframe.
        while time_of(&client.until(is_picture).payload) < first + 3 * 90_000 {}
        client.say("{\"pause\":true}");
        for command in commands {
            client.say(&command.replace("TIME", &format!("{}", first as f64 / 90_000.0)));
        }
        let event = client.until(|frame| frame.opcode == 1 && frame.event()["event"] != "hello");
        assert_eq!(event.event()["reason"], "seek");
        assert_eq!(client.next().unwrap().payload[4..8], *b"ftyp");
        assert!(time_of(&client.until(is_picture).payload) <= first);
    }
}

/// If the server read on after a close, it would never close.
#[test]
fn messages_after_a_close_are_not_read() {
    let server = server("workers = 1");
    let mut client = Client::connect(server.http, "/live/demo/push");
    client.send(0x88, &[3, 232]);
    let block = masked(0x81, b"{\"seek\":1}").repeat(10_000);
    let mut sent = 0;
    while client.socket.write_all(&block).is_ok() {
        sent += block.len();
        assert!(sent < 256 << 20, "it is still read");
    }
}
