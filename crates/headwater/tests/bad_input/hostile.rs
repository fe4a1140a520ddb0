//! Hostile publishers: the server closes the connection with one log line, memory stays bounded,
//! and a stream published at the same time is not disturbed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use media::flv::TagKind;
use protocol::rtmp::{ClientEvent, PublishKind, Purpose};
use testkit::noise;

use testkit::is_closed_within;
use testkit::rtmp::{self, Client};

use crate::support::{LIMIT, Origin, brisk, clip};
use crate::watcher::Bystander;

/// What the window of the other stream, its viewer's connection and the allocator may add during a
/// test, in KiB.
const SLACK: u64 = 8 << 10;

/// The most memory besides a frame that one publisher may make the server hold, in KiB.
const PER_PUBLISHER: u64 = 4 << 10;

/// The server closes a publisher that is silent for three times four seconds, and a peer without a
/// role after ten seconds. A busy machine does not hold up a client for so long. A bystander may be held up for longer:
/// it waits three target durations for a part, and finds it in the window.
fn start() -> Origin {
    let brisk = brisk("silence = \"4s\"");
    let short = "target_duration = \"1s\"\nwindow = \"4s\"";
    assert!(brisk.contains(short));
    Origin::start(&brisk.replace(short, "target_duration = \"5s\"\nwindow = \"20s\""))
}

/// A chunk header of format 0.
fn chunk(csid: u8, length: u32, kind: u8) -> Vec<u8> {
    let [_, l0, l1, l2] = length.to_be_bytes();
    vec![csid, 0, 0, 0, l0, l1, l2, kind, 1, 0, 0, 0]
}

/// A message in chunks of the size that our sessions have set.
fn message(csid: u8, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = chunk(csid, u32::try_from(payload.len()).expect("short"), kind);
    for (index, piece) in payload.chunks(64 << 10).enumerate() {
        if index > 0 {
            bytes.push(0xc0 | csid);
        }
        bytes.extend_from_slice(piece);
    }
    bytes
}

/// A client that has connected and asked for nothing else.
fn connected(address: SocketAddr) -> Client {
    let connected = |event: &ClientEvent| matches!(event, ClientEvent::Connected { .. });
    let config = rtmp::config(address, "live/victim", Purpose::Publish(PublishKind::Live));
    Client::connect(address, config, connected).expect("it may connect")
}

/// A socket that has finished the handshake and sent nothing since.
fn shaken(address: SocketAddr) -> TcpStream {
    use std::io::Read;
    let mut socket = TcpStream::connect(address).expect("the server listens");
    socket.set_read_timeout(Some(LIMIT)).expect("not zero");
    let mut hello = vec![3];
    hello.extend_from_slice(&[0; 8]);
    hello.extend_from_slice(&noise(99, 1528));
    socket.write_all(&hello).expect("the server takes it");
    let mut answer = vec![0; 1 + 2 * 1536];
    socket.read_exact(&mut answer).expect("the server answers");
    socket.write_all(&answer[1..1537]).expect("the server takes it");
    socket
}

/// Asserts that the server closes the connection with one warning.
#[track_caller]
fn assert_closed(origin: &Origin, socket: &mut TcpStream, what: &str) {
    let peer = socket.local_addr().expect("it was connected");
    assert!(is_closed_within(socket, LIMIT), "{what}: kept open\n{}", origin.log());
    origin.warning(peer);
    let warnings = origin.warnings(peer);
    assert_eq!(warnings.len(), 1, "{what}: {warnings:#?}");
    assert!(warnings[0].contains("rtmp connection ended"), "{what}: {warnings:?}");
}

#[test]
fn garbage_at_any_point_of_the_session() {
    let origin = start();
    let bystander = Bystander::start(&origin);
    let before = origin.memory();
    // The server waits for the rest of anything that may be the beginning of a long message, until
    // a time-out. So all these cases wait at the same time.
    let mut held: Vec<(TcpStream, String)> = Vec::new();
    for seed in 1..=8 {
        let garbage = noise(seed, 200_000);
        let mut first = TcpStream::connect(origin.rtmp).unwrap();
        let _ = first.write_all(&garbage);
        held.push((first, format!("first byte, seed {seed}")));
        let mut second = shaken(origin.rtmp);
        let _ = second.write_all(&garbage);
        held.push((second, format!("after the handshake, seed {seed}")));
        let mut third = connected(origin.rtmp);
        third.raw(&garbage);
        held.push((third.socket, format!("after connect, seed {seed}")));
        let mut fourth = Client::publish(origin.rtmp, &format!("live/victim-{seed}"));
        fourth.raw(&garbage);
        held.push((fourth.socket, format!("after publish, seed {seed}")));
        let mut fifth = Client::publish(origin.rtmp, &format!("live/media-{seed}"));
        for message in &clip()[..60] {
            fifth.send(message);
        }
        fifth.raw(&garbage);
        held.push((fifth.socket, format!("after media, seed {seed}")));
    }
    let during = origin.memory();
    let bound = before + SLACK + held.len() as u64 * PER_PUBLISHER;
    assert!(during < bound, "{before} KiB before, {during} KiB now");
    for (mut socket, what) in held {
        assert_closed(&origin, &mut socket, &what);
    }
    bystander.finish();
}

#[test]
fn garbage_in_media_messages() {
    let origin = start();
    let bystander = Bystander::start(&origin);
    let mut client = Client::publish(origin.rtmp, "live/garbage");
    let peer = client.address();
    // The messages are whole, so only their contents can be wrong. The connection ends if none was
    // good.
    for seed in 1..=2000 {
        let kind = if seed % 2 == 0 { TagKind::Video } else { TagKind::Audio };
        client.tag(kind, seed, noise(seed.into(), 500).into());
    }
    assert!(client.is_closed_within(LIMIT), "{}", origin.log());
    let end = origin.log_line(LIMIT, |line| line.contains("not one good sample"));
    assert!(end.contains(&format!("peer={peer}")) && end.contains("stream=\"garbage\""), "{end}");
    // However many tags were bad, the log has sixteen lines, the number of the others, and the end.
    let warnings = origin.warnings(peer);
    assert!(warnings.len() <= 18, "{}", warnings.len());
    bystander.finish();
}

/// Waits until the server has done with all that a client sent, and holds no message of it any more: it answers a ping
/// after that. It logs what is wrong with a message while it holds it.
fn settle(client: &mut Client) {
    let answer = [0, 7, 1, 2, 3, 4];
    assert!(client.raw(&message(2, 4, &[0, 6, 1, 2, 3, 4])));
    client.socket.set_read_timeout(Some(LIMIT)).expect("a socket may have a time limit");
    let (mut got, mut some) = (Vec::new(), [0; 4096]);
    while !got.windows(answer.len()).any(|bytes| bytes == answer) {
        let read = client.socket.read(&mut some).expect("the server answers a ping");
        assert!(read > 0, "the server has closed the connection");
        got.extend_from_slice(&some[..read]);
    }
}

/// Sends the longest possible multitrack tags of Enhanced RTMP, each on a connection of its own: four
/// million empty tracks, then 31 with sequence headers of half a mebibyte, then 511 short enough to
/// be kept. Calls `then` after each tag. Returns the publisher of the third one.
fn publish_tags_of_many_tracks(origin: &Origin, mut then: impl FnMut()) -> Client {
    let mut empty = b"\x96\x13avc1".to_vec();
    empty.resize((16 << 20) - 2, 0);
    let headers = |count: usize, length: u32| -> Bytes {
        let mut tag = b"\x96\x10avc1".to_vec();
        for track in 0..count {
            tag.push(track as u8);
            tag.extend_from_slice(&length.to_be_bytes()[1..]);
            let record = tag.len();
            // AVCDecoderConfigurationRecord of Baseline, 16 by 16.
            tag.extend_from_slice(
                b"\x01\x42\x00\x0a\xff\xe1\x00\x06\x67\x42\x00\x0a\xfb\xc8\x01\x00\x01\x68",
            );
            tag.resize(record + length as usize, 1);
        }
        tag.into()
    };
    let tags = [
        (empty.clone().into(), "exceeds the limit of"),
        (empty.into(), "exceeds the limit of"),
        (headers(31, 512 << 10), "exceeds the limit of"),
        (headers(511, 32 << 10), "a stream has at most 16 tracks"),
    ];
    let mut clients = Vec::new();
    for (number, (tag, problem)) in tags.into_iter().enumerate() {
        let mut client = Client::publish(origin.rtmp, &format!("live/tracks{number}"));
        client.tag(TagKind::Video, 0, tag);
        origin.log_line(LIMIT, |line| {
            line.contains(&format!("\"tracks{number}\"")) && line.contains(problem)
        });
        settle(&mut client);
        then();
        clients.push(client);
    }
    clients.swap_remove(2)
}

/// A server with another stream would also hold more and more of that stream, so this one has none.
#[test]
fn a_tag_of_millions_of_tracks_takes_the_memory_of_one_message() {
    /// In KiB: one message, also while it arrives, and a session's share.
    const MESSAGE: u64 = (16 << 10) + PER_PUBLISHER;
    let origin = start();
    // The first stream also brings pages of the program into memory.
    let mut client = Client::publish(origin.rtmp, "live/first");
    for message in clip() {
        client.send(message);
    }
    origin.playlist("live/first", "v0");
    client.finish();
    let before = origin.resident_memory();
    publish_tags_of_many_tracks(&origin, || {
        let peak = origin.peak_memory();
        assert!(peak < before + MESSAGE, "{before} KiB before, {peak} KiB at most");
    });
}

/// Also an aggregate of empty messages.
#[test]
fn a_tag_with_millions_of_tracks() {
    let origin = start();
    let bystander = Bystander::start(&origin);
    let mut client = publish_tags_of_many_tracks(&origin, || ());
    // Good messages go on, on the same connection.
    for message in clip() {
        client.send(message);
    }
    origin.playlist("live/tracks2", "v0");
    client.finish();

    let mut client = Client::publish(origin.rtmp, "live/aggregate");
    client.raw(&message(6, 22, &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11].repeat(1 << 20)));
    assert_closed(&origin, &mut client.socket, "a million messages in an aggregate");
    bystander.finish();
}

/// Fifty publishers announce 16 MiB each and send one byte of it. They may hold 4 MiB each, but the
/// server must not hold memory for bytes that never came: 128 KiB each is already more than it
/// gives them.
#[test]
fn message_of_16_mib_that_never_comes() {
    const PUBLISHERS: u64 = 50;
    let origin = start();
    let bystander = Bystander::start(&origin);
    let before = origin.memory();
    let mut held = Vec::new();
    for n in 0..PUBLISHERS {
        let mut client = Client::publish(origin.rtmp, &format!("live/never-{n}"));
        let mut bytes = chunk(6, 0xff_ffff, 9);
        bytes.push(0x17);
        assert!(client.raw(&bytes));
        held.push(client.socket);
    }
    let during = origin.memory();
    assert!(
        during < before + SLACK + PUBLISHERS * 128,
        "{before} KiB before, {during} KiB with {PUBLISHERS} publishers"
    );
    // The sockets stay open here, so no later connection gets the port of one: the log is read by port.
    for (n, socket) in held.iter_mut().enumerate() {
        assert_closed(&origin, socket, &format!("publisher {n}"));
    }
    // The server does not even begin a command of such a length.
    let mut client = connected(origin.rtmp);
    client.raw(&chunk(3, 0xff_ffff, 20));
    assert_closed(&origin, &mut client.socket, "command");
    bystander.finish();
}

#[test]
fn a_million_tiny_chunks() {
    const CHUNKS: usize = 1_000_000;
    let origin = start();
    let bystander = Bystander::start(&origin);
    let before = origin.memory();
    let mut client = Client::publish(origin.rtmp, "live/tiny");
    // Set Chunk Size 1, in chunks of the size in force. Then a message that is incomplete even with
    // all these chunks.
    let mut bytes = message(2, 1, &1u32.to_be_bytes());
    bytes.extend_from_slice(&chunk(6, 0xff_ffff, 9));
    bytes.push(0x17);
    for n in 1..CHUNKS {
        bytes.extend_from_slice(&[0xc6, n as u8]);
    }
    assert!(client.raw(&bytes));
    assert_closed(&origin, &mut client.socket, "one message");

    // As many messages of one byte. Each is whole, and none is usable.
    let mut client = Client::publish(origin.rtmp, "live/tiny-messages");
    let mut bytes = message(2, 1, &1u32.to_be_bytes());
    bytes.extend_from_slice(&chunk(6, 1, 9));
    bytes.push(0x97);
    for _ in 1..CHUNKS {
        bytes.extend_from_slice(&[0xc6, 0x97]);
    }
    client.raw(&bytes);
    assert!(client.is_closed_within(LIMIT));
    assert!(origin.warnings(client.address()).len() <= 5, "{}", origin.log());

    // Messages on more chunk streams than anybody needs, none of them finished.
    let mut client = Client::publish(origin.rtmp, "live/tiny-streams");
    let mut bytes = message(2, 1, &1u32.to_be_bytes());
    for n in 0..1000u16 {
        let [high, low] = n.to_be_bytes();
        bytes.extend_from_slice(&[1, low, high, 0, 0, 0, 0xff, 0xff, 0xff, 9, 1, 0, 0, 0, 0x17]);
    }
    client.raw(&bytes);
    assert_closed(&origin, &mut client.socket, "chunk streams");

    let after = origin.memory();
    assert!(after < before + SLACK, "{before} KiB before, {after} KiB after");
    bystander.finish();
}

/// The name of a command or data message in AMF0.
fn named(name: &str) -> Vec<u8> {
    let mut bytes = vec![2, 0, u8::try_from(name.len()).expect("short")];
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

#[test]
fn amf_bomb() {
    let origin = start();
    let bystander = Bystander::start(&origin);
    let before = origin.memory();
    let nested: Vec<u8> = [&[3u8, 0, 1, b'a'][..]; 10_000].concat();
    let arrays: Vec<u8> = [&[10u8, 0, 0, 0, 1][..]; 10_000].concat();
    let many: Vec<u8> = [&[10u8, 0, 0, 0xea, 0x60][..], &[5; 60_000]].concat();
    let announced = vec![10u8, 0xff, 0xff, 0xff, 0xff, 5, 5];
    for (what, bomb) in [
        ("nested objects", &nested),
        ("nested arrays", &arrays),
        ("60,000 values", &many),
        ("an array of 4 billion", &announced),
    ] {
        // In a command, before anything is published.
        let mut command = named("releaseStream");
        command.extend_from_slice(&[0, 0x40, 0, 0, 0, 0, 0, 0, 0, 5]);
        command.extend_from_slice(bomb);
        let mut client = connected(origin.rtmp);
        client.raw(&message(3, 20, &command));
        assert_closed(&origin, &mut client.socket, what);
        // In metadata.
        let mut data = named("@setDataFrame");
        data.extend_from_slice(&named("onMetaData"));
        data.extend_from_slice(bomb);
        let mut client = Client::publish(origin.rtmp, "live/bomb");
        client.raw(&message(5, 18, &data));
        if bomb == &announced || bomb == &many {
            // This metadata is not large, only wrong, or it is like the index of a long file: the server
            // ignores it and what it cannot read of it.
            let line = origin.warning(client.address());
            assert!(line.contains("rtmp message ignored"), "{line}");
            client.finish();
        } else {
            assert_closed(&origin, &mut client.socket, what);
        }
    }
    // Unreadable metadata ends the connection if it comes repeatedly.
    let mut client = Client::publish(origin.rtmp, "live/bombs");
    let wrong = message(5, 18, &[&named("onMetaData")[..], &announced].concat());
    client.raw(&wrong.repeat(10_000));
    assert!(client.is_closed_within(LIMIT));
    origin.log_line(LIMIT, |line| line.contains("too many messages that cannot be read"));
    let warnings = origin.warnings(client.address());
    assert!((1..=4).contains(&warnings.len()), "{warnings:#?}");
    let after = origin.memory();
    assert!(after < before + SLACK, "{before} KiB before, {after} KiB after");
    bystander.finish();
}

/// A peer that breaks the protocol is told why before the connection ends, whether it publishes or
/// plays.
#[test]
fn publishers_that_break_the_protocol_are_told_why() {
    let origin = Origin::start("");
    let data = [&named("onMetaData")[..], &vec![0; 1 << 20]].concat();
    let command = [&named("nonsense")[..], &vec![0; 64 << 10]].concat();
    for (bytes, why) in [
        (message(5, 18, &data), "message of 1048589 bytes where 262144 are accepted"),
        (message(3, 20, &command), "message of 65547 bytes where 65536 are accepted"),
        (message(2, 1, &[0; 4]), "chunk size 0"),
        (message(5, 18, &named("bad")[..4]).repeat(100), "cut off"),
    ] {
        let mut publisher = Client::publish(origin.rtmp, "live/told");
        publisher.raw(&bytes);
        publisher.until_failed(why);
        let line = origin.warning(publisher.address());
        assert!(line.contains("stream=\"told\"") && line.contains(why), "{line}");
    }
    // A player that is receiving media.
    let mut publisher = Client::publish(origin.rtmp, "live/told");
    clip().iter().for_each(|message| publisher.send(message));
    let mut player = Client::play(origin.rtmp, "live/told");
    let media = |event: &ClientEvent| matches!(event, ClientEvent::Video { .. });
    player.until(media).unwrap();
    player.raw(&message(2, 1, &[0; 4]));
    player.until_failed("chunk size 0");
}

#[test]
fn handshake_that_never_ends() {
    let origin = start();
    let bystander = Bystander::start(&origin);
    let mut held = Vec::new();
    // A server that waited for one after the other would take four minutes.
    for _ in 0..4 {
        for (what, bytes) in [
            ("nothing", Vec::new()),
            ("one byte", vec![3]),
            ("half of C1", [&[3][..], &noise(5, 700)].concat()),
            ("C1 and half of C2", [&[3][..], &noise(5, 2000)].concat()),
        ] {
            let mut socket = TcpStream::connect(origin.rtmp).unwrap();
            socket.write_all(&bytes).unwrap();
            held.push((socket, what));
        }
        held.push((shaken(origin.rtmp), "no connect"));
        held.push((connected(origin.rtmp).socket, "no publish"));
    }
    for (mut socket, what) in held {
        let peer = socket.local_addr().unwrap();
        assert_closed(&origin, &mut socket, what);
        let line = origin.warning(peer);
        assert!(line.contains("nothing was published or played within 10s"), "{what}: {line}");
    }
    // Single bytes do not count as progress either.
    let mut slow = TcpStream::connect(origin.rtmp).unwrap();
    slow.write_all(&[3]).unwrap();
    let begun = std::time::Instant::now();
    while slow.write_all(&[0]).is_ok() {
        assert!(begun.elapsed() < LIMIT, "kept open");
        std::thread::sleep(Duration::from_millis(20));
    }
    bystander.finish();
}

#[test]
fn media_before_publish_costs_nothing() {
    let origin = Origin::start("");
    let before = origin.memory();
    let mut client = connected(origin.rtmp);
    let frame = message(6, 9, &vec![0x17; 8 << 20]);
    for _ in 0..4 {
        assert!(client.raw(&frame));
    }
    let after = origin.memory();
    assert!(after < before + PER_PUBLISHER, "{before} KiB before, {after} KiB after");
    // The server only dropped the message. Sessions go on.
    let mut client = Client::publish(origin.rtmp, "live/after");
    client.tag(TagKind::Audio, 0, Bytes::from_static(&[0xaf, 0, 0x11, 0x90]));
    client.finish();
}
