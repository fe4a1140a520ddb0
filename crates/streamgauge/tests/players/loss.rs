//! A viewer by WHEP behind a network that loses datagrams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use testkit::demo_clip;
use testkit::http::Client;

use crate::common::{LIMIT, document, origin, start};

/// One in this many datagrams of media gets lost.
const LOSES: usize = 20;
/// The pictures of these times in each period, in units of RTP's video clock, get lost each time that they
/// are sent. The viewer gives them up after [`BUFFER`], and asks for a keyframe if none has come meanwhile. The
/// demo has one each second, so none comes after at least one of two gaps.
const GAP: std::ops::Range<u32> = 90_000..108_000;
const PERIOD: u32 = 225_000;
/// How long the viewer waits for missing packets.
const BUFFER: &str = "200ms";

/// The pictures that get lost for good.
struct Gaps {
    /// Payload types of the video and of its retransmissions, which carry the time of what they repeat
    /// (RFC 4588 4).
    payload_types: Vec<u8>,
    /// Time of the first picture. Viewers begin at a keyframe.
    began: Option<u32>,
}

impl Gaps {
    /// Reads the payload types of an answer.
    fn new(answer: &str) -> Self {
        let maps = answer.lines().filter_map(|line| line.strip_prefix("a=rtpmap:"));
        let video =
            maps.filter_map(|map| map.split_once(' ').filter(|(_, is)| is.ends_with("/90000")));
        Self {
            payload_types: video.map(|(number, _)| number.parse().unwrap()).collect(),
            began: None,
        }
    }

    /// Whether a datagram of RTP (RFC 3550 5.1) falls into a gap.
    fn have(&mut self, datagram: &[u8]) -> bool {
        if !self.payload_types.contains(&(datagram[1] & 0x7f)) {
            return false;
        }
        let time = u32::from_be_bytes(datagram[4..8].try_into().unwrap());
        let since = time.wrapping_sub(*self.began.get_or_insert(time));
        GAP.contains(&(since % PERIOD))
    }
}

/// Relays datagrams between one viewer and the server. Some of the server's media get lost. Its
/// threads end with the process of the test.
fn relay(server: SocketAddr, mut gaps: Gaps) -> u16 {
    let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let (front, back) = (socket(), socket());
    back.connect(server).unwrap();
    let port = front.local_addr().unwrap().port();
    let viewer = Arc::new(Mutex::new(None));
    let (from, to, known) =
        (front.try_clone().unwrap(), back.try_clone().unwrap(), Arc::clone(&viewer));
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((size, source)) = from.recv_from(&mut buffer) {
            let mut known = known.lock().unwrap();
            // The viewer is whoever sends STUN. A server of another test may still send media to a peer that has gone, and
            // this relay may have the same port now.
            if buffer[0] < 4 {
                *known = Some(source);
            }
            if *known == Some(source) {
                let _ = to.send(&buffer[..size]);
            }
        }
    });
    thread::spawn(move || {
        let (mut buffer, mut count) = ([0; 2048], 0);
        while let Ok(size) = back.recv(&mut buffer) {
            // RTP and RTCP (RFC 7983 7).
            if (128..192).contains(&buffer[0]) {
                count += 1;
                if count % LOSES == 0 || gaps.have(&buffer[..size]) {
                    continue;
                }
            }
            if let Some(viewer) = *viewer.lock().unwrap() {
                // A viewer that has gone takes nothing.
                let _ = front.send_to(&buffer[..size], viewer);
            }
        }
    });
    port
}

/// Relays the requests of a viewer. Answers name the port of the relay of datagrams.
fn front(http: SocketAddr, media: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let mut reader = BufReader::new(&socket);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).unwrap();
            }
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            reader.read_exact(&mut body).unwrap();
            let mut words = head.split(' ');
            let (method, path) = (words.next().unwrap(), words.next().unwrap());
            let mut server = Client::connect(http, LIMIT).unwrap();
            server.send(method, path, &[("Content-Type", "application/sdp")], &body).unwrap();
            let answer = server.receive().unwrap();
            let own = format!(" {} typ ", media.port());
            // The request that ends the session is relayed, too, and nothing uses this relay.
            let port = relay(media, Gaps::new(answer.text()));
            let text = answer.text().replace(&own, &format!(" {port} typ "));
            let (status, length) = (answer.status(), text.len());
            let location = answer.header("location").unwrap_or("/");
            let head = format!(
                "HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: {length}\r\n\
                 Connection: close\r\n\r\n"
            );
            (&socket).write_all((head + &text).as_bytes()).unwrap();
        }
    });
    address
}

#[test]
fn lost_packets_come_again_and_lost_pictures_are_holes_and_no_error() {
    let server = origin();
    let front = front(server.http, server.webrtc.unwrap());
    let (url, reference) = (format!("http://{front}/live/demo/whep"), demo_clip());
    let reference = reference.to_str().unwrap();
    let watch = ["watch", &url, "--duration", "16s", "--buffer", BUFFER];
    let watch = watch.into_iter().chain(["--json", "--reference", reference]);
    let (_, document) = document(start(watch));
    let viewer = &document["viewer"];
    assert_eq!((&viewer["end"], &viewer["error"]), (&"time".into(), &().into()), "{viewer:#}");
    let rtp = |key: &str| viewer["rtp"][key].as_u64().unwrap();
    assert!(rtp("recovered") > 0, "{viewer:#}");
    assert!(rtp("lost") > 0 && rtp("keyframe_requests") > 0, "{viewer:#}");
    assert!(viewer["holes"].as_u64().unwrap() > 0, "{viewer:#}");
    // Each picture that passed is the file's.
    assert!(viewer["verified"]["matched"].as_u64().unwrap() > 100, "{viewer:#}");
}
