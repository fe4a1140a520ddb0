//! A session whose time and whose peer the tests move.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::Arc;

use live::{PublisherInfo, backup};
use quinn_udp::RecvMeta;
use rtp::srtp::{Indices, Sender};
use str0m::Candidate;
use str0m::change::SdpAnswer;
use str0m::format::{Codec, FormatParams};
use str0m::media::{Direction, MediaKind};
use str0m::net::Protocol;
use str0m::rtp::Extension;
use tokio::time::advance;

use super::*;
use crate::Origin;
use crate::access::Grant;
use crate::config::Config;
use crate::sessions::{Doing, Who};
use crate::webrtc::offer::{Agreed, Identity, Line, Purpose, agree, keys};
use crate::webrtc::send::Transport;
use crate::webrtc::send::socket::{BUFFERS, Socket};

/// A session of a publisher, which has a socket of its own.
fn session() -> Session {
    session_with(Rtc::builder().build(Instant::now().into_std()), None)
}

/// The same with this connection and this video.
fn session_with(rtc: Rtc, video: Option<Line>) -> Session {
    let origin = Arc::new(Origin::new(Config::default()));
    let info = PublisherInfo { peer: None, protocol: "whip", rendition: None };
    let publisher = origin.publish("x", backup::Role::Primary, info).unwrap();
    let publish = Publish::new(publisher, (SHORTEST, SHORTEST), (video, &[]), None).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let datagrams = Socket::new(socket).unwrap();
    let who = Who {
        doing: Doing::Publish,
        path: "live/x".to_owned(),
        by: "whip",
        peer: datagrams.address,
    };
    let listed = origin.sessions.begin(who, Grant::default());
    let shared = Shared {
        origin,
        sessions: Default::default(),
        crypto: str0m::crypto::from_feature_flags().into(),
        transport: Transport { datagrams, connections: Default::default() },
        batch: RefCell::default(),
        feeds: Default::default(),
        drain: Default::default(),
    };
    let heard = Instant::now();
    Session {
        rtc,
        role: Role::Publish(Box::new(publish)),
        shared: Rc::new(shared),
        connects: None,
        has_path: false,
        listed,
        refused: None,
        heard,
        paths: Paths::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_before_the_peer_ended_its_session_is_taken() {
    let ends = drive(async |peer, shared, to_session| {
        // The time counts from the request on.
        advance(2 * CLOSING).await;
        send(peer, shared);
        to_session.try_send(Message::End).unwrap();
    });
    assert!(matches!(ends.await, (End::Asked, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_peer_whose_datagrams_wait_is_not_silent() {
    let begun = Instant::now();
    let ends = drive(async |peer, shared, _| {
        send(peer, shared);
        // As if this process was not run meanwhile.
        advance(SILENCE).await;
    });
    assert!(matches!(ends.await, (End::Silent, 1)));
    assert_eq!(begun.elapsed().as_secs(), 2 * SILENCE.as_secs());
}

/// Drives a session while its peer acts, and after that gives it the datagram that the peer has sent. Returns the
/// session's end, and how many datagrams it has taken.
async fn drive(acts: impl AsyncFnOnce(&UdpSocket, &Shared, &mpsc::Sender<Message>)) -> (End, u64) {
    let mut session = session();
    let shared = Rc::clone(&session.shared);
    let (to_session, mut inbox) = mpsc::channel(8);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let all = async {
        acts(&peer, &shared, &to_session).await;
        hand_over(&peer, &shared, &to_session).await
    };
    let end = tokio::select! {
        biased;
        end = session.drive(&mut inbox) => end.unwrap_err(),
        never = all => match never {},
    };
    (end, shared.sessions.dropped())
}

/// Sends a datagram that has no meaning, so that it is counted when it is taken.
fn send(peer: &UdpSocket, shared: &Shared) {
    let datagrams = &shared.transport.datagrams;
    peer.send_to(&[99], datagrams.address).unwrap();
    while !datagrams.is_readable() {
        std::thread::yield_now();
    }
}

/// Gives that datagram to the session, as the task that receives does.
async fn hand_over(
    peer: &UdpSocket,
    shared: &Shared,
    to_session: &mpsc::Sender<Message>,
) -> std::convert::Infallible {
    let (source, destination) = (shared.transport.datagrams.address, peer.local_addr().unwrap());
    let path = Path { protocol: Protocol::Udp, source, destination };
    let mut buffers = vec![vec![0; 100]; BUFFERS];
    let mut metas = [RecvMeta::default(); BUFFERS];
    shared.transport.datagrams.receive(&mut buffers, &mut metas).await.unwrap();
    let datagram = Datagram { path, bytes: [99].into(), came: Instant::now() };
    to_session.send(Message::Datagram(datagram)).await.unwrap();
    std::future::pending().await
}

/// The addresses of a publisher and of the origin.
const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 1001);
const OWN: ([u8; 4], u16) = ([127, 0, 0, 1], 1002);

/// The bytes of the payload of each packet.
const PAYLOAD: [u8; 4] = [0x65, 0x81, 0x82, 0x83];

/// A publisher whose packets the tests write, and its session.
struct Publisher {
    rtc: Rtc,
    session: Session,
    sender: Sender,
    line: Line,
    /// The header extension that names the media description.
    mid: u8,
    indices: HashMap<u32, Indices>,
}

/// A path of the publisher that ends at this port.
fn path(port: u16) -> Path {
    Path { protocol: Protocol::Udp, source: OWN.into(), destination: (PEER.0, port).into() }
}

impl Publisher {
    /// Connects. Time must be paused.
    async fn new() -> Self {
        let now = || Instant::now().into_std();
        let crypto = keys::apart(&str0m::crypto::from_feature_flags());
        let config = Rtc::builder().set_crypto_provider(Arc::new(crypto)).set_rtp_mode(true);
        let (mut rtc, keys) = keys::connection(config, now());
        rtc.add_local_candidate(Candidate::host(PEER.into(), "udp").unwrap());
        let mut sdp = rtc.sdp_api();
        sdp.add_media(MediaKind::Video, Direction::SendOnly, None, None, None);
        let (offer, pending) = sdp.apply().unwrap();
        let video = Some((Codec::H264, FormatParams::default()));
        let (offer, addresses) = (offer.to_sdp_string(), [OWN.into()]);
        let identity = Identity::new().unwrap();
        let agreed = agree(&identity, &offer, Purpose::Publish, video, &addresses, false);
        let Agreed { rtc: mut own, answer, video, .. } =
            agreed.unwrap_or_else(|why| panic!("{why:?}"));
        rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
        let mut connected = 0;
        while connected < 2 {
            let datagrams = [output(&mut rtc, &mut connected), output(&mut own, &mut connected)];
            let sides = [(&mut own, PEER, OWN), (&mut rtc, OWN, PEER)];
            for ((to, source, destination), datagrams) in sides.into_iter().zip(datagrams) {
                for bytes in datagrams {
                    let contents = DatagramRecv::try_from(&bytes[..]).unwrap();
                    let (source, destination) = (source.into(), destination.into());
                    let receive = Receive { proto: Protocol::Udp, source, destination, contents };
                    to.handle_input(Input::Receive(now(), receive)).unwrap();
                }
            }
            advance(Duration::from_millis(20)).await;
        }
        let line = video.unwrap();
        let mid = own.media(line.mid).unwrap().remote_extmap().id_of(Extension::RtpMid).unwrap();
        let (sender, _) = keys.take().unwrap();
        let session = session_with(own, video);
        Self { rtc, session, sender, line, mid, indices: HashMap::new() }
    }

    /// A packet of a source with a transport-wide number.
    fn packet(&mut self, ssrc: u32, number: u16) -> Box<[u8]> {
        let index = self.indices.entry(ssrc).or_insert_with(|| Indices::new(0)).take().unwrap();
        let mid = self.line.mid.as_bytes();
        let mut extensions = vec![self.mid << 4 | (mid.len() as u8 - 1)];
        extensions.extend(mid);
        extensions.push(self.line.numbers.unwrap() << 4 | 1);
        extensions.extend(number.to_be_bytes());
        extensions.resize(extensions.len().next_multiple_of(4), 0);
        let mut packet = vec![0x90, *self.line.payload];
        packet.extend(index.sequence().to_be_bytes());
        packet.extend(7u32.to_be_bytes());
        packet.extend(ssrc.to_be_bytes());
        packet.extend([0xbe, 0xde, 0, extensions.len() as u8 / 4]);
        packet.extend(extensions);
        let header = packet.len();
        packet.extend(PAYLOAD);
        self.sender.protect(index, &mut packet, 0, header).unwrap();
        packet.into()
    }

    /// Gives a datagram to the session, which came on this path.
    fn give(&mut self, path: Path, bytes: Box<[u8]>) -> Result<Instant, End> {
        let came = Instant::now();
        self.session.receive(&Datagram { path, bytes, came });
        self.session.flush(came)
    }

    /// How many packets the session has taken, and how many it has dropped.
    fn taken(&self) -> (u64, u64) {
        let Role::Publish(publish) = &self.session.role else { unreachable!() };
        (publish.meter.bytes() / PAYLOAD.len() as u64, self.session.shared.sessions.dropped())
    }

    /// Lets time pass until the publisher checks its connectivity and nominates the path.
    async fn check(&mut self) -> Box<[u8]> {
        for _ in 0..100 {
            for bytes in output(&mut self.rtc, &mut 0) {
                if binding_request(&bytes).is_some_and(|request| request.use_candidate()) {
                    return bytes.into();
                }
            }
            advance(Duration::from_millis(100)).await;
        }
        panic!("no check");
    }
}

/// What a connection wants to send. Counts that it is connected.
fn output(rtc: &mut Rtc, connected: &mut u32) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    rtc.handle_input(Input::Timeout(Instant::now().into_std())).unwrap();
    loop {
        match rtc.poll_output().unwrap() {
            Output::Timeout(_) => return datagrams,
            Output::Transmit(transmit) => datagrams.push(transmit.contents.to_vec()),
            Output::Event(Event::Connected) => *connected += 1,
            Output::Event(_) => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_before_the_first_never_reaches_str0m() {
    let mut publisher = Publisher::new().await;
    // str0m reports the first at once, and the others together.
    for number in [0, 1, 40_000] {
        let packet = publisher.packet(1, number);
        publisher.give(path(PEER.1), packet).unwrap();
    }
    // It would report 2^64 lost packets now, if it had them all.
    assert_eq!(publisher.taken(), (2, 1));
    for number in [2, 3, 30_000, 50_000, 1] {
        advance(Duration::from_millis(60)).await;
        let packet = publisher.packet(1, number);
        publisher.give(path(PEER.1), packet).unwrap();
    }
    assert_eq!(publisher.taken(), (7, 1));
}

#[tokio::test(start_paused = true)]
async fn a_publisher_with_a_source_for_each_packet_is_ended() {
    let mut publisher = Publisher::new().await;
    let mut ended = None;
    for source in 1..1000 {
        let packet = publisher.packet(source, source as u16);
        if let Err(end) = publisher.give(path(PEER.1), packet) {
            ended = Some((source, end.to_string()));
            break;
        }
    }
    let why = "the publisher sends from too many sources".to_owned();
    assert_eq!(ended, Some((65, why)));
}

#[tokio::test(start_paused = true)]
async fn what_a_publisher_gets_follows_it_soon_to_another_address() {
    let mut publisher = Publisher::new().await;
    let (old, new) = (path(PEER.1), path(PEER.1 + 1));
    let check = publisher.check().await;
    publisher.give(old, check).unwrap();
    assert_eq!(publisher.session.way(old), old);
    advance(Duration::from_millis(500)).await;
    let check = publisher.check().await;
    publisher.give(new, check).unwrap();
    assert_eq!(publisher.session.way(old), old, "it may use both");
    advance(Duration::from_secs(3)).await;
    let check = publisher.check().await;
    publisher.give(new, check).unwrap();
    assert_eq!((publisher.session.way(old), publisher.session.way(new)), (new, new));
    let check = publisher.check().await;
    publisher.give(old, check).unwrap();
    assert_eq!(publisher.session.way(old), old, "it came back");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_heard_of_has_longer_to_connect() {
    // It sends each 4 s, until the time that is told.
    for (sends_until, ends) in [(0, 10), (5, 10), (9, 13), (25, 29), (100, 30)] {
        let mut session = session();
        let begun = Instant::now();
        session.connects = Some(begun);
        let (to_session, mut inbox) = mpsc::channel(8);
        let sends = async {
            for at in (4..=sends_until).step_by(4) {
                sleep_until(begun + Duration::from_secs(at)).await;
                let datagram = Datagram { path: path(PEER.1), bytes: [99].into(), came: begun };
                to_session.try_send(Message::Datagram(datagram)).unwrap();
            }
            std::future::pending().await
        };
        let end = tokio::select! {
            end = session.drive(&mut inbox) => end.unwrap_err(),
            never = sends => match never {},
        };
        assert!(matches!(end, End::NeverConnected(Unconnected::Ice)), "{end}");
        assert_eq!(begun.elapsed().as_secs(), ends, "until {sends_until}");
    }
    // More of what is refused is of no use.
    let mut session = session();
    let begun = Instant::now();
    session.connects = Some(begun);
    session.heard = begun + Duration::from_secs(9);
    session.refused = Some(RtcError::Io(std::io::ErrorKind::Other.into()));
    assert_eq!(session.deadline(), begun + SILENCE);
}
