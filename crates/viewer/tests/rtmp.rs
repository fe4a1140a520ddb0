//! What a player of RTMP counts, against what its server wrote to the wire.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use media::Sample;
use media::flv::{Message, Packetizer};
use protocol::rtmp::{ServerConfig, ServerEvent, ServerSession};
use support::*;
use testkit::uninterrupted;
use viewer::Options;

/// How many bytes the server writes at once, in turn.
const PIECES: [usize; 6] = [1, 5, 1460, 2, 70_000, 333];

/// What a server has seen of a connection.
#[derive(Debug, Default)]
struct Wire {
    /// Bytes that the server wrote.
    written: u64,
    /// Bytes that the player sent.
    read: u64,
    /// The buffer that the player announced, in milliseconds.
    announced: Option<u32>,
}

/// Serves one player: writes the messages in small pieces, ends the connection, and counts.
fn serve(listener: &TcpListener, chunk_size: usize, messages: &[Message]) -> Wire {
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut session = ServerSession::new(ServerConfig { chunk_size, ..ServerConfig::default() }, 7);
    let mut wire = Wire::default();
    let mut unread = Vec::new();
    let mut buffer = vec![0; 4096];
    let mut left = Some(messages);
    loop {
        let taken = session.handle_input(&unread).unwrap();
        unread.drain(..taken);
        let event = session.poll_event();
        match &event {
            Some(ServerEvent::Connect { .. }) => session.accept_connect().unwrap(),
            Some(ServerEvent::PlayRequest { .. }) => session.accept_play(true).unwrap(),
            Some(ServerEvent::BufferLength { milliseconds }) => {
                wire.announced = Some(*milliseconds);
            }
            _ => {}
        }
        while let Some(piece) = session.poll_output() {
            wire.written += write(&mut socket, &piece);
        }
        if event.is_some() || taken > 0 {
            continue;
        }
        if wire.announced.is_some()
            && let Some(messages) = left.take()
        {
            for message in messages {
                session.send_audio(message.timestamp(), message.payload()).unwrap();
                while let Some(piece) = session.poll_output() {
                    wire.written += write(&mut socket, &piece);
                }
            }
            socket.shutdown(Shutdown::Write).unwrap();
        }
        let size = uninterrupted(|| socket.read(&mut buffer)).unwrap();
        if size == 0 {
            return wire;
        }
        wire.read += size as u64;
        unread.extend_from_slice(&buffer[..size]);
    }
}

/// Writes bytes in small pieces; returns their number.
fn write(socket: &mut TcpStream, mut bytes: &[u8]) -> u64 {
    let mut written = 0;
    for size in PIECES.into_iter().cycle() {
        let (piece, rest) = bytes.split_at(size.min(bytes.len()));
        socket.write_all(piece).unwrap();
        written += piece.len() as u64;
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    written
}

/// A sequence header, and access units that are shorter and longer than chunks and than what a
/// player reads at once.
fn messages() -> Vec<Message> {
    let clip = AudioClip::new(1);
    let packetizer = Packetizer::new(0, &clip.track.codec, clip.track.timescale).unwrap();
    let unit = |(number, size): (i64, usize)| Sample {
        dts: number * 1024,
        data: Bytes::from(vec![0x21; size]),
        ..clip.sample(0)
    };
    let sizes = [300, 1 << 20, 17, 70_000, 128, 1, 400_000];
    let units = (0..).zip(sizes).map(|unit_of| packetizer.sample(&unit(unit_of)).unwrap());
    [packetizer.sequence_header(0).unwrap()].into_iter().chain(units).collect()
}

fn start(chunk_size: usize) -> (String, JoinHandle<Wire>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/live/x", listener.local_addr().unwrap());
    (url, thread::spawn(move || serve(&listener, chunk_size, &messages())))
}

#[test]
fn media_and_overhead_are_the_bytes_on_the_wire_however_reads_split_messages() {
    let media: u64 = messages().iter().map(|message| message.payload().len() as u64).sum();
    for (chunk_size, verify) in [(128, false), (128, true), (4096, false), (1 << 16, false)] {
        let (url, server) = start(chunk_size);
        let report = watch(&url, options(), verify, None, LIMIT);
        let wire = server.join().unwrap();
        // The server ends the connection without ending the stream, once everything is written.
        assert_eq!(failure(&report).0, "dropped", "{report:#?}");
        assert_eq!(report.media_bytes, media, "chunks of {chunk_size} bytes: {report:#?}");
        assert_eq!(report.media_bytes + report.overhead_bytes, wire.written, "{report:#?}");
        assert_eq!(report.sent_bytes, wire.read, "{report:#?}");
        // The least that chunks cost: a byte for each. A handshake has 3,073 bytes.
        let chunks = media / chunk_size as u64;
        let most = chunks + 3073 + 2000;
        assert!((chunks..=most).contains(&report.overhead_bytes), "{report:#?}");
    }
}

#[test]
fn the_buffer_that_a_player_announces_is_the_one_asked_for() {
    assert_eq!(Options::default().announce_buffer, Duration::from_secs(3));
    for millis in [100, 36_000_000] {
        let (url, server) = start(4096);
        let announce_buffer = Duration::from_millis(millis);
        watch(&url, Options { announce_buffer, ..options() }, false, None, LIMIT);
        let wire = server.join().unwrap();
        assert_eq!(wire.announced.map(u64::from), Some(millis));
    }
}
