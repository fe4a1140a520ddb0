//! What clients have sent is read, however it is split.

use bytes::Bytes;
use protocol::rtmp::amf0;
use protocol::rtmp::chunk::{Read, Reader};
use protocol::rtmp::message::{self, Limits, Message};

use super::support::{Link, on_meta_data};

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

pub(crate) fn stream(name: &str) -> Vec<u8> {
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
pub(crate) fn recorded() -> [Vec<u8>; 2] {
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
fn recorded_clients_are_read_at_any_split() {
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
