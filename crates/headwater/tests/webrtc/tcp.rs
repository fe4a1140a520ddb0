//! ICE over TCP, where a network lets no datagrams pass.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use testkit::{Program, Server, eventually, uninterrupted};

use crate::play::{Viewer, units};
use crate::support::{LIMIT, OFFER, Peer, aiortc_by, post, server, socket, unreceived};

/// Bytes that wait in a peer's socket while more are sent to it. Every socket holds twice as many.
const MOST_UNRECEIVED: usize = 100_000;

/// Hands the datagrams of one peer over by TCP, each in a frame (RFC 4571 2), and back: neither str0m nor aiortc
/// opens connections itself.
pub(crate) struct Bridge {
    pub(crate) port: u16,
    /// Packets that came from the server.
    came: Arc<AtomicUsize>,
    /// Whether another connection is to take the place of this one.
    ends: Arc<AtomicBool>,
    newest: Arc<Mutex<Newest>>,
}

/// The newest connection of a bridge.
#[derive(Debug, Default, Clone)]
struct Newest {
    /// How many there were, with this one.
    number: usize,
    /// Whether a packet came.
    is_answered: bool,
    /// Whether a packet of RTP or RTCP came.
    has_media: bool,
    /// Checks of connectivity that the peer sent after the first packet came, and before one of RTP or RTCP.
    checks: usize,
}

impl Bridge {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let datagrams = socket();
        let port = datagrams.local_addr().unwrap().port();
        let bridge =
            Self { port, came: Arc::default(), ends: Arc::default(), newest: Arc::default() };
        let (came, ends) = (Arc::clone(&bridge.came), Arc::clone(&bridge.ends));
        let newest = Arc::clone(&bridge.newest);
        let peer = Arc::new(Mutex::new(Peer::default()));
        // The threads end with the test's process.
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            let mut to_server: Option<TcpStream> = None;
            let mut last_check = Vec::new();
            while let Ok((length, source)) = datagrams.recv_from(&mut buffer) {
                let packet = &buffer[..length];
                if !peer.lock().unwrap().has_sent(source, packet) {
                    continue;
                }
                if ends.swap(false, Ordering::Relaxed)
                    && let Some(old) = to_server.take()
                {
                    // The server may have ended it, too.
                    let _ = old.shutdown(Shutdown::Both);
                }
                let is_check = packet.starts_with(&[0, 1]);
                if is_check {
                    last_check = frame(packet);
                }
                // The server does not wait long for the first packet of a connection.
                let to_server = to_server.get_or_insert_with(|| {
                    let mut to_server = connect(server);
                    // A connection begins with a check.
                    if !is_check {
                        to_server.write_all(&last_check).unwrap();
                    }
                    let (from_server, to_peer) =
                        (to_server.try_clone().unwrap(), datagrams.try_clone().unwrap());
                    let (came, peer) = (Arc::clone(&came), Arc::clone(&peer));
                    let mut opened = newest.lock().unwrap();
                    let number = opened.number + 1;
                    *opened = Newest { number, ..Newest::default() };
                    drop(opened);
                    let newest = Arc::clone(&newest);
                    thread::spawn(move || {
                        hand_back(from_server, &to_peer, &peer, |packet| {
                            came.fetch_add(1, Ordering::Relaxed);
                            let mut newest = newest.lock().unwrap();
                            if newest.number == number {
                                newest.is_answered = true;
                                // STUN has 0 to 3 there, RTP and RTCP have 128 to 191 (RFC 7983 7).
                                newest.has_media |= packet.first() >= Some(&128);
                            }
                        });
                    });
                    to_server
                });
                let mut newest = newest.lock().unwrap();
                let is_between = newest.is_answered && !newest.has_media;
                newest.checks += usize::from(is_check && is_between);
                drop(newest);
                if to_server.write_all(&frame(packet)).is_err() {
                    break;
                }
            }
        });
        bridge
    }

    /// Ends the connection, and opens another one with the peer's next packet.
    fn connect_again(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Connects to the server, which drops what it cannot send. All that it sends while the test's process is not run fits
/// into the buffer.
fn connect(server: SocketAddr) -> TcpStream {
    let connection = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    connection.set_recv_buffer_size(http::net::UNRECEIVED).unwrap();
    connection.connect(&server.into()).unwrap();
    connection.into()
}

/// Hands the server's packets over to the peer.
fn hand_back(
    mut from_server: TcpStream,
    to_peer: &UdpSocket,
    peer: &Mutex<Peer>,
    note: impl Fn(&[u8]),
) {
    let mut length = [0; 2];
    while from_server.read_exact(&mut length).is_ok() {
        let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
        if from_server.read_exact(&mut packet).is_err() {
            break;
        }
        note(&packet);
        let Some(peer) = peer.lock().unwrap().address() else { continue };
        // All that came at once, after a while in which one of them was not run, may not fit.
        while unreceived(peer) > MOST_UNRECEIVED {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = to_peer.send_to(&packet, peer);
    }
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let mut frame = u16::try_from(packet.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(packet);
    frame
}

/// A bridge for a publisher of `live/x`, and one for a viewer. There are media.
fn bridges(server: &Server) -> (Program, [Bridge; 2]) {
    let address = server.webrtc.unwrap();
    let bridges = [Bridge::new(address), Bridge::new(address)];
    let ports = [address.port(), bridges[0].port];
    let publisher = aiortc_by("publish", &server.url("/live/x/whip"), &ports);
    server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
    (publisher, bridges)
}

#[test]
fn a_stream_comes_in_and_goes_out() {
    let server = server("");
    let (_publisher, [publishing, watching]) = bridges(&server);
    assert!(publishing.came.load(Ordering::Relaxed) > 0);
    let mut viewer = Viewer::by(&server, watching.port);
    viewer.play(|viewer| viewer.has_begun() && units(viewer.of("video").values()).0 > 60);
    let video = viewer.of("video");
    let (whole, broken) = units(video.values());
    assert_eq!(broken, 0, "of {whole}");
    // TCP loses nothing.
    let (first, last) = (video.keys().next().unwrap(), video.keys().next_back().unwrap());
    assert_eq!(video.len() as u64, last - first + 1);
    assert!(watching.came.load(Ordering::Relaxed) >= video.len());
    assert_eq!(server.metric("headwater_webrtc_sessions"), 2);
}

#[test]
fn a_new_connection_of_a_peer_gets_the_packets_at_once() {
    let server = server("");
    let (_publisher, bridges) = bridges(&server);
    let mut viewer = Viewer::by(&server, bridges[1].port);
    viewer.play(|viewer| viewer.has_begun() && viewer.packets_of_both() > 0);
    for bridge in &bridges {
        let newest = || bridge.newest.lock().unwrap().clone();
        bridge.connect_again();
        viewer.play(|_| newest().number == 2 && newest().has_media);
        // The peers check each few seconds.
        assert!(newest().checks <= 2, "{:?}", newest());
    }
    let newest = viewer.newest("video");
    viewer.play(|viewer| viewer.newest("video") > newest + 20);
    assert_eq!(server.metric("headwater_webrtc_sessions"), 2);
}

#[test]
fn the_answer_names_the_port_for_both() {
    let address = |answer: &str, protocol: &str, port: u16| {
        let mut lines = answer.lines().filter(|line| line.starts_with("a=candidate:"));
        lines.any(|line| {
            let is_one = line.to_ascii_lowercase().contains(&format!(" {protocol} "));
            is_one && line.contains(&format!(" 127.0.0.1 {port} typ host"))
        })
    };
    let both = server("");
    let port = both.webrtc.unwrap().port();
    let answer = post(&both, "/live/x/whip", OFFER);
    assert!(address(answer.text(), "udp", port), "{}", answer.text());
    assert!(address(answer.text(), "tcp", port), "{}", answer.text());
    assert!(answer.text().contains(" tcptype passive"), "{}", answer.text());

    // Nobody else listens on this port.
    let port = testkit::Port::find();
    let listen = format!("127.0.0.1:{port}");
    let binary = env!("CARGO_BIN_EXE_headwater");
    let one = Server::configured(binary, "[webrtc]\ntcp = false", ["--webrtc", &listen]);
    let port = port.number();
    let answer = post(&one, "/live/x/whip", OFFER);
    assert!(address(answer.text(), "udp", port), "{}", answer.text());
    assert!(!answer.text().contains("tcptype"), "{}", answer.text());
    assert!(TcpStream::connect(one.webrtc.unwrap()).is_err());
}

#[test]
fn connections_of_strangers_end_and_leave_nothing() {
    let server = server("");
    let answer = post(&server, "/live/x/whip", OFFER);
    assert_eq!(answer.status(), 201, "{}", answer.text());
    let connect = || {
        let stream = TcpStream::connect(server.webrtc.unwrap()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    };
    let first_packets = [
        b"".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 20],
        vec![22; 900],
        vec![128; 100],
    ];
    let mut wrong: Vec<_> = first_packets.iter().map(|packet| frame(packet)).collect();
    // Longer than any packet. The server need not wait for it.
    wrong.push(vec![0xff; 2]);
    // A request of HTTP, as it is.
    wrong.push(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec());
    let count = wrong.len();
    for bytes in wrong {
        let mut stream = connect();
        stream.write_all(&bytes).unwrap();
        // It is closed, and nothing was said. A reset says that not all was read.
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.is_empty(), "{bytes:?}: {said:?}");
    }
    // Half a frame, and nothing at all: these end by their peers, or after a while.
    let mut half = connect();
    half.write_all(&[0, 20, 0, 1]).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let silent = connect();
    for mut stream in [half, silent] {
        assert_eq!(uninterrupted(|| stream.read(&mut [0; 1])).unwrap(), 0);
    }
    eventually(LIMIT, "all are counted", || {
        server.metric("headwater_webrtc_dropped_total") > count as u64
    });
    assert_eq!(server.get("/healthz").status(), 200);
}
