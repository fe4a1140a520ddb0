//! Media pushed over WebSocket by a correct server of another project (tokio-websockets), and by a
//! server that breaks the protocol or the media.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod support;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use support::*;
use testkit::Program;
use tokio::net::{TcpListener, TcpStream};
use tokio_websockets::{CloseCode, Config, Message, ServerBuilder, WebSocketStream};
use viewer::verify::Reference;
use viewer::websocket::accept;
use viewer::{End, Kind, Options};

/// What a server does after the handshake.
#[derive(Debug, Clone)]
enum Say {
    Binary(Vec<u8>),
    Text(String),
    /// A ping; the server sends nothing more until it has the pong.
    Ping,
    Close(u16),
    /// The connection ends without a close.
    Drop,
}

/// Starts a server. The n-th connection gets the n-th list, and all later ones get the last list. A
/// frame has at most `frame` bytes.
fn push(sessions: Vec<Vec<Say>>, frame: usize) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let count = AtomicUsize::new(0);
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Relaxed).min(sessions.len() - 1);
                let session = sessions[number].clone();
                let config = Config::default().frame_size(frame);
                let builder = ServerBuilder::new().config(config);
                let (_, stream) = builder.accept(socket).await.unwrap();
                // Tests need only one connection at a time.
                let _ = say(stream, session).await;
            }
        });
    });
    address
}

async fn say(
    mut stream: WebSocketStream<TcpStream>,
    session: Vec<Say>,
) -> Result<(), tokio_websockets::Error> {
    for what in session {
        match what {
            Say::Binary(data) => stream.send(Message::binary(data)).await?,
            Say::Text(text) => stream.send(Message::text(text)).await?,
            Say::Ping => {
                stream.send(Message::ping("are you there")).await?;
                while let Some(message) = stream.next().await {
                    let message = message?;
                    if message.is_pong() {
                        assert_eq!(&message.into_payload()[..], b"are you there");
                        break;
                    }
                }
            }
            Say::Close(code) => {
                let code = CloseCode::try_from(code).unwrap();
                stream.send(Message::close(Some(code), "that is all")).await?;
                // The client closes, too.
                while stream.next().await.is_some() {}
            }
            Say::Drop => return Ok(()),
        }
    }
    Ok(())
}

fn binary(pieces: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Vec<Say> {
    pieces.into_iter().map(|piece| Say::Binary(piece.into())).collect()
}

/// The header and fragments of the clip as messages.
fn messages(clip: &AudioClip, fragments: std::ops::Range<u32>) -> Vec<Say> {
    let mut all = binary([clip.header().to_vec()]);
    all.extend(binary(fragments.map(|number| clip.fragment(number))));
    all
}

fn url(address: SocketAddr) -> String {
    format!("ws://{address}/live/x/push?from=live")
}

fn text(text: &str) -> Say {
    Say::Text(text.to_owned())
}

#[test]
fn a_film_by_ffmpeg_comes_whole_through_another_hands_server() {
    let clip = testkit::demo_clip();
    let fragmented = Program::output(
        Command::new("ffmpeg")
            .args(["-v", "error", "-i"])
            .arg(&clip)
            .args(["-map", "0:v:0", "-map", "0:a:0", "-c", "copy", "-f", "mp4"])
            .args(["-movflags", "empty_moov+default_base_moof+frag_keyframe", "-"]),
        LIMIT,
    );
    let mut pieces: Vec<Vec<u8>> = vec![Vec::new()];
    let mut rest = &fragmented[..];
    while !rest.is_empty() {
        let size = u32::from_be_bytes(*rest.first_chunk().unwrap()) as usize;
        let (whole, behind) = rest.split_at(size);
        match &whole[4..8] {
            b"moof" => pieces.push(whole.to_vec()),
            b"mfra" => {}
            _ => pieces.last_mut().unwrap().extend_from_slice(whole),
        }
        rest = behind;
    }
    let bytes: usize = pieces.iter().map(Vec::len).sum();
    let mut session = binary(pieces);
    session.insert(2, Say::Ping);
    session.push(Say::Close(1000));
    let reference = Arc::new(Reference::open(&clip).unwrap());
    // Messages in fragments of 1,000 bytes, and whole ones.
    for frame in [1000, 64 << 20] {
        let address = push(vec![session.clone()], frame);
        let report = verified(&url(address), Some(reference.clone()));
        assert_eq!((report.end, report.troubles.len()), (End::Ended, 0), "{report:#?}");
        let verified = report.verified.unwrap();
        assert!(verified.samples > 100, "{verified:?}");
        assert_eq!((verified.samples, verified.missing), (verified.matched, 0), "{verified:?}");
        assert_eq!(report.media_bytes, bytes as u64);
        assert!(report.startup.is_some() && report.holes == 0, "{report:#?}");
        let unverified = plain(&url(address));
        assert_eq!((unverified.end, unverified.holes), (End::Ended, 0), "{unverified:#?}");
        near(unverified.received, report.received, 0.05);
        assert_eq!(unverified.media_bytes, bytes as u64);
    }
}

#[test]
fn events_switch_restart_and_end() {
    let named = r#"{"event":"hello","renditions":[{"name":"low"}],"rendition":"low"}"#;
    let nameless =
        r#"{"event":"hello","renditions":[{"name":"low"},{"name":"high"}],"timescale":48000}"#;
    let first = text(r#"{"event":"rendition","rendition":"low"}"#);
    check_events(vec![text(nameless), first]);
    check_events(vec![text(named)]);
}

/// Checks that `low` is sent after these messages.
#[track_caller]
fn check_events(mut session: Vec<Say>) {
    let clip = AudioClip::new(8);
    session.extend(messages(&clip, 0..3));
    session.push(text(r#"{"event":"rendition","rendition":"high"}"#));
    session.extend(messages(&clip, 3..5));
    session.push(text(r#"{"event":"discontinuity"}"#));
    session.extend(messages(&clip, 6..8));
    session.push(text(r#"{"event":"end"}"#));
    session.push(Say::Ping);
    let address = push(vec![session], 1 << 20);
    for verify in [true, false] {
        let reference = verify.then(|| clip.reference());
        let report = watch(&url(address), options(), verify, reference, LIMIT);
        assert_eq!((report.end, report.switches), (End::Ended, 1), "{report:#?}");
        assert_eq!((report.troubles.len(), report.holes), (0, 1), "{report:#?}");
        near(report.received, 7.0 * 0.512, 1e-6);
        near(report.missing, 0.512, 1e-6);
        let expected = if verify { 7 * u64::from(UNITS) } else { 0 };
        assert_eq!(report.verified.map_or(0, |verified| verified.matched), expected);
    }
}

#[test]
fn a_lost_connection_is_made_again_and_counted() {
    let clip = AudioClip::new(8);
    for (last, kind) in [(Say::Drop, "dropped"), (Say::Close(1001), "dropped")] {
        let mut first = messages(&clip, 0..3);
        first.push(last);
        let mut second = messages(&clip, 4..8);
        second.push(Say::Close(1000));
        let address = push(vec![first, second], 1 << 20);
        let report = verified(&url(address), Some(clip.reference()));
        assert_eq!((report.end, report.reconnects), (End::Ended, 1), "{report:#?}");
        assert_eq!(report.troubles.get(kind), Some(&1), "{report:#?}");
        assert_eq!((report.troubles.len(), report.holes), (1, 1), "{report:#?}");
        near(report.received, 7.0 * 0.512, 1e-6);
    }
    // If no media came, the viewer does not connect again.
    let report = plain(&url(push(vec![vec![Say::Drop]], 1 << 20)));
    assert_eq!((failure(&report).0, report.reconnects), ("dropped", 0));
}

#[test]
fn the_servers_reason_to_refuse_is_told() {
    let clip = AudioClip::new(2);
    let mut refused = messages(&clip, 0..1);
    refused.push(text(r#"{"event":"error","code":"slow","message":"Reads too slowly."}"#));
    let mut policy = messages(&clip, 0..1);
    policy.push(Say::Close(1008));
    let mut endless = messages(&clip, 0..1);
    let sermon = "ä".repeat(10_000);
    endless.push(text(&format!(r#"{{"event":"error","code":"busy","message":"{sermon}"}}"#)));
    for (session, what) in [
        (refused, "slow Reads too slowly."),
        (policy, "closed with code 1008"),
        (endless, "busy ää"),
    ] {
        let report = plain(&url(push(vec![session], 1 << 20)));
        let (kind, said) = failure(&report);
        assert_eq!(kind, "rejected", "{said}");
        assert!(said.contains(what) && said.contains("/live/x/push"), "{said}");
        assert!(said.chars().count() < 400, "{said}");
        assert_eq!(report.reconnects, 0);
    }
}

#[test]
fn broken_media_are_found_where_they_are() {
    let clip = AudioClip::new(4);
    let whole = |fragments| messages(&clip, fragments);
    let cut = |number| {
        let fragment = clip.fragment(number);
        binary([fragment[..fragment.len() - 1].to_vec()])
    };
    let foreign = {
        let mut sample = clip.samples(2);
        let mut data = sample[3].data.to_vec();
        data[100] ^= 1;
        sample[3].data = data.into();
        binary([clip.write(2, &sample)])
    };
    for (session, kind, what) in [
        ([whole(0..2), cut(2)].concat(), Kind::Corrupt, "ends within a box"),
        ([whole(0..2), foreign].concat(), Kind::Corrupt, "fragment 3"),
        // The last fragment goes back in time.
        ([whole(0..3), binary([clip.fragment(1)])].concat(), Kind::Corrupt, "fragment 2"),
        (binary([clip.fragment(0)]), Kind::Corrupt, "without a header"),
        (binary([vec![0xFF; 40]]), Kind::Garbage, "not an MP4 box"),
    ] {
        let session = [session, vec![Say::Close(1000)]].concat();
        let report = verified(&url(push(vec![session], 1 << 20)), Some(clip.reference()));
        let (found, said) = failure(&report);
        assert_eq!(found, kind.name(), "{said}");
        assert!(said.contains(what) && said.contains("byte "), "{what}: {said}");
    }
}

/// A server that makes the handshake and then sends these bytes.
fn raw_server(bytes: Vec<u8>) -> Server {
    Server::start(move |asked| {
        let key = asked.head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Protocol: headwater.v1\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            accept(key.unwrap())
        );
        vec![Act::Send([head.as_bytes(), &bytes].concat()), Act::Hang]
    })
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let size = u16::try_from(payload.len()).unwrap();
    let mut out = vec![first];
    if size < 126 {
        out.push(size as u8);
    } else {
        out.push(126);
        out.extend_from_slice(&size.to_be_bytes());
    }
    out.extend_from_slice(payload);
    out
}

#[test]
fn a_server_that_breaks_the_protocol() {
    let clip = AudioClip::new(1);
    let good = frame(0x82, &clip.header());
    let bad = |bytes: Vec<u8>| [good.clone(), bytes].concat();
    for (bytes, what) in [
        (bad(vec![0xC2, 1, 0]), "reserved bits"),
        (bad(vec![0x82, 0x81, 1, 2, 3, 4, 5]), "masked"),
        (bad(frame(0x89, &[0; 126])), "control frame"),
        (bad(frame(0x81, b"\"\xFF\"")), "UTF-8"),
        (bad(frame(0x81, b"{")), "JSON"),
        (bad([vec![1, 0], frame(0, &[b'x'; 65_000]).repeat(2)].concat()), "text of more than"),
        (bad(vec![0x82, 127, 0, 0, 0, 0, 0x20, 0, 0, 0]), "message of more than"),
        (bad(frame(0x88, &[3, 238])), "close with code 1006"),
    ] {
        let server = raw_server(bytes);
        let report = plain(&server.url("/x").replace("http", "ws"));
        let (kind, said) = failure(&report);
        assert_eq!(kind, "garbage", "{said}");
        assert!(said.contains(what) && said.contains("byte "), "{what}: {said}");
        assert_eq!((report.troubles.len(), report.reconnects), (1, 0), "{report:#?}");
        assert_eq!(server.asked().len(), 1, "{what}: tried again");
    }
    for (answer, kind) in [
        (status("404 Not Found"), "status"),
        (ok(b"<html>"), "status"),
        (raw("HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"), "garbage"),
        (vec![Act::Close], "dropped"),
        (vec![Act::Hang], "timeout"),
    ] {
        let server = Server::start(move |_| answer.clone());
        // Only an answer that never comes is to try the patience.
        let patience = if kind == "timeout" { Duration::from_millis(300) } else { LIMIT };
        let options = Options { patience, ..options() };
        let report = watch(&server.url("/x").replace("http", "ws"), options, false, None, LIMIT);
        assert_eq!(failure(&report).0, kind, "{report:#?}");
    }
}

#[test]
fn bytes_are_media_framing_or_the_handshakes() {
    let clip = AudioClip::new(3);
    let fragment = |number| clip.stamped(number, 1_000_000);
    let frames =
        [frame(0x82, &clip.header()), frame(0x82, &fragment(0)), frame(0x82, &fragment(1))];
    let media: usize = clip.header().len() + fragment(0).len() + fragment(1).len();
    let server = raw_server([frames.concat(), frame(0x89, b"?"), frame(0x88, &[3, 232])].concat());
    let report = plain(&server.url("/x").replace("http", "ws"));
    assert_eq!((report.end, report.media_bytes), (End::Ended, media as u64), "{report:#?}");
    // Four bytes of framing for each message of 126 bytes or more (5.2), and the head, ping and
    // close.
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Protocol: headwater.v1\r\n\
        Sec-WebSocket-Accept: 0123456789012345678901234567\r\n\r\n";
    assert_eq!(report.overhead_bytes, (head.len() + 3 * 4 + 3 + 4) as u64);
    // The close replaces the pong, because ping and close came at the same time.
    assert_eq!(report.sent_bytes, (server.asked()[0].head.len() + 8) as u64);
    assert_eq!(report.clock, Some(viewer::playback::CaptureClock::Prft), "{report:#?}");
}
