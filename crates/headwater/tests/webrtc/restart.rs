//! Restarts of ICE: a session goes on with other credentials, and over another network.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Instant;

use str0m::format::Codec;
use str0m::ice::{StunMessage, TransId};
use str0m::media::Direction;
use testkit::http::Response;
use testkit::{Server, eventually, uninterrupted};

use crate::peer::{FRAGMENT, Peer};
use crate::play::{Viewer, publish, units};
use crate::support::{LIMIT, OFFER, ask, patch, post, server, socket, value};
use crate::tcp::Bridge;

/// Credentials that a peer may choose.
const OTHER: &str = "a=ice-ufrag:else\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\n";

/// A session of which the test knows all, and whose peer is the test's socket. Another has connected it: a session
/// that never connects ends soon after its offer, whatever comes. This one goes on while checks come.
struct Session {
    url: String,
    tag: String,
    /// Our side's fragment and password.
    own: (String, String),
    peer: UdpSocket,
    _connected: Peer,
}

impl Session {
    #[track_caller]
    fn new(server: &Server, stream: &str) -> Self {
        let path = format!("/live/{stream}/whip");
        let mut connected = Peer::new(server, &path, Direction::SendOnly, Codec::Av1);
        connected.work(|peer| peer.is_connected);
        let answer = &connected.answer;
        let peer = socket();
        peer.connect(server.webrtc.unwrap()).unwrap();
        let url = answer.header("location").unwrap().to_owned();
        Self { url, tag: tag(answer), own: own(answer), peer, _connected: connected }
    }

    /// Asks for a restart with these credentials, and takes what the server says.
    #[track_caller]
    fn restart(&self, server: &Server, credentials: &str) -> (String, String) {
        let told = patch(server, &self.url, Some("*"), credentials);
        assert_eq!(told.status(), 200, "{}", told.text());
        own(&told)
    }

    /// Sends a check of connectivity to the owner of `own`.
    fn check(&self, own: &(String, String), peer: &str) {
        self.peer.send(&request(own, peer)).unwrap();
    }

    /// Waits until a check is answered.
    #[track_caller]
    fn is_answered(&self) {
        self.peer.set_read_timeout(Some(LIMIT)).unwrap();
        let mut bytes = [0; 2048];
        let length = uninterrupted(|| self.peer.recv(&mut bytes)).unwrap();
        let answer = StunMessage::parse(&bytes[..length]).unwrap();
        assert!(answer.is_successful_binding_response());
    }
}

/// A check of connectivity to the owner of these credentials (RFC 8445 7.2.2).
fn request((fragment, password): &(String, String), peer: &str) -> Vec<u8> {
    let name = format!("{fragment}:{peer}");
    let request = StunMessage::binding_request(&name, TransId::new(), true, 1, 1, false);
    let sha1 = str0m::crypto::from_feature_flags().sha1_hmac_provider;
    let hmac = |key: &[u8], parts: &[&[u8]]| sha1.sha1_hmac(key, parts);
    let mut bytes = [0; 200];
    let length = request.to_bytes(Some(password.as_bytes()), &mut bytes, hmac).unwrap();
    bytes[..length].to_vec()
}

#[track_caller]
fn own(told: &Response) -> (String, String) {
    let of = |name| value(told.text(), name).to_owned();
    (of("a=ice-ufrag"), of("a=ice-pwd"))
}

#[track_caller]
fn tag(told: &Response) -> String {
    told.header("etag").unwrap().to_owned()
}

/// Waits until so many datagrams were dropped.
#[track_caller]
fn dropped(server: &Server, count: u64) {
    eventually(LIMIT, "dropped", || server.metric("headwater_webrtc_dropped_total") == count);
}

#[test]
fn the_answer_is_an_sdp_fragment() {
    let server = server("");
    let answer = post(&server, "/live/x/whip", OFFER);
    let (session, first) = (answer.header("location").unwrap().to_owned(), tag(&answer));
    let told = patch(&server, &session, Some("\"*\""), OTHER);
    assert_eq!(told.status(), 200, "{}", told.text());
    assert_eq!(told.header("content-type"), Some("application/trickle-ice-sdpfrag"));
    assert_eq!(tag(&told), format!("\"{}\"", own(&told).0));
    assert_ne!(tag(&told), first);
    // The peer may not have got it, and asks again.
    for again in ["*", first.as_str()] {
        let again = patch(&server, &session, Some(again), OTHER);
        assert_eq!((again.status(), own(&again)), (200, own(&told)));
    }
    // It has the media description of the answer, and the server's addresses.
    for name in ["a=ice-lite", "a=ice-options", "a=group", "m=audio", "a=mid"] {
        let of = |sdp: &Response| {
            sdp.text().lines().find(|line| line.starts_with(name)).map(str::to_owned)
        };
        assert!(of(&told).is_some() && of(&told) == of(&answer), "{name}: {}", told.text());
    }
    for protocol in ["udp", "tcp"] {
        let address = server.webrtc.unwrap();
        let host = format!(" {} {} typ host", address.ip(), address.port());
        let is_it = |line: &str| line.contains(&format!(" {protocol} ")) && line.contains(&host);
        assert!(told.text().lines().any(is_it), "{}", told.text());
    }
    // More candidates with the credentials of either side's newest generation are no restart.
    let more = format!("{OTHER}a=candidate:1 1 UDP 1 192.0.2.1 9 typ host\r\n");
    for tag in [None, Some("*"), Some(tag(&told).as_str())] {
        assert_eq!(patch(&server, &session, tag, &more).status(), 204);
    }
    assert_eq!(patch(&server, &session, Some(&first), &more).status(), 412);
    assert_eq!(ask(&server, "DELETE", &session, &[], b"").status(), 200);
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
}

#[test]
fn restarts_that_are_refused() {
    let server = server("");
    let session = Session::new(&server, "x");
    let of = |tag, body: &str| {
        let told = patch(&server, &session.url, tag, body);
        (told.status(), told.text().to_owned())
    };
    assert_eq!(of(Some("\"else\""), OTHER).0, 412);
    assert_eq!(of(None, OTHER), (428, "an ICE restart needs If-Match: *\n".to_owned()));
    let long = "x".repeat(257);
    for (fragment, why) in [
        ("a=ice-ufrag:else\r\n", "no a=ice-pwd"),
        ("a=ice-pwd:abcdefghijklmnopqrstuv\r\n", "no a=ice-ufrag"),
        (&OTHER.replace("else", "els"), "a=ice-ufrag is not of 4 to 256"),
        (&OTHER.replace("else", "el\0se"), "a=ice-ufrag is not of 4 to 256"),
        (&OTHER.replace("else", "el se"), "a=ice-ufrag is not of 4 to 256"),
        (&OTHER.replace("else", &long), "a=ice-ufrag is not of 4 to 256"),
        (&OTHER.replace("tuv", "tu"), "a=ice-pwd is not of 22 to 256"),
        (&OTHER.replace("uv", &long), "a=ice-pwd is not of 22 to 256"),
    ] {
        let (status, said) = of(Some("*"), fragment);
        assert_eq!(status, 400, "{said}");
        assert!(said.starts_with(&format!("not an SDP fragment: {why}")), "{said}");
    }
    let stranger = session.url.replace("/x/", "/y/");
    assert_eq!(patch(&server, &stranger, Some("*"), OTHER).status(), 404);
    let plain = [("Content-Type", "application/sdp"), ("If-Match", "*")];
    assert_eq!(ask(&server, "PATCH", &session.url, &plain, OTHER.as_bytes()).status(), 415);
    // None of them took the place of what was agreed on.
    assert_eq!(of(Some(&session.tag), "a=candidate:1").0, 204);
    session.check(&session.own, FRAGMENT);
    session.is_answered();
    // A storm of them: one in a second is taken. The others change nothing.
    let (begun, mut taken) = (Instant::now(), Vec::new());
    for number in 0..100 {
        let fragment = format!("else{number}");
        let told = patch(&server, &session.url, Some("*"), &OTHER.replace("else", &fragment));
        match told.status() {
            200 => taken.push((own(&told), fragment)),
            _ => assert_eq!(told.text(), "ICE restarts once a second at most\n"),
        }
    }
    assert!(taken.len() as u64 <= 1 + begun.elapsed().as_secs(), "{} were taken", taken.len());
    let (last, fragment) = taken.last().unwrap();
    session.check(last, fragment);
    session.is_answered();
    assert_eq!(server.metric("headwater_webrtc_sessions"), 1);
}

#[test]
fn both_generations_lead_to_the_session_until_the_new_one_is_proven() {
    let server = server("");
    let (session, other) = (Session::new(&server, "x"), Session::new(&server, "y"));
    for session in [&session, &other] {
        session.check(&session.own, FRAGMENT);
        session.is_answered();
    }
    // A session of which nothing is heard for a while ends.
    let goes_on = || {
        other.check(&other.own, FRAGMENT);
        other.is_answered();
    };
    let next = session.restart(&server, OTHER);
    // The peer may not have heard of it.
    session.check(&session.own, FRAGMENT);
    session.is_answered();
    assert_eq!(server.metric("headwater_webrtc_dropped_total"), 0);
    // Who does not know the new password proves nothing.
    let (fragment, _) = next.clone();
    for wrong in [&session.own.1, &other.own.1] {
        session.check(&(fragment.clone(), wrong.clone()), "else");
    }
    other.check(&(fragment, other.own.1.clone()), FRAGMENT);
    dropped(&server, 3);
    goes_on();
    session.check(&session.own, FRAGMENT);
    session.is_answered();
    // The first request that is right ends the time of the credentials before.
    session.check(&next, "else");
    session.is_answered();
    session.check(&session.own, FRAGMENT);
    dropped(&server, 4);
    goes_on();
    session.check(&next, "else");
    session.is_answered();
    goes_on();
    // So does a further one.
    let mut last = None;
    eventually(LIMIT, "restarted again", || {
        let told = patch(&server, &session.url, Some("*"), &OTHER.replace("else", "last"));
        match told.status() {
            200 => last = Some(own(&told)),
            status => assert_eq!(status, 429, "{}", told.text()),
        }
        last.is_some()
    });
    let last = last.unwrap();
    goes_on();
    session.check(&last, "last");
    session.is_answered();
    session.check(&next, "else");
    session.check(&session.own, FRAGMENT);
    dropped(&server, 6);
    goes_on();
    assert_eq!(server.metric("headwater_webrtc_sessions"), 2);
    // Its URL is the same as ever.
    assert_eq!(ask(&server, "DELETE", &session.url, &[], b"").status(), 200);
    eventually(LIMIT, "ended", || server.metric("headwater_webrtc_sessions") == 1);
    session.check(&last, "last");
    dropped(&server, 7);
}

#[test]
fn a_restart_is_no_sign_of_life() {
    let server = server("");
    let session = Session::new(&server, "x");
    session.check(&session.own, FRAGMENT);
    session.is_answered();
    let next = session.restart(&server, OTHER);
    eventually(LIMIT, "ended", || server.metric("headwater_webrtc_sessions") == 0);
    assert_eq!(patch(&server, &session.url, Some("*"), OTHER).status(), 404);
    session.check(&next, "else");
    session.check(&session.own, FRAGMENT);
    dropped(&server, 2);
}

#[test]
fn a_connection_by_tcp_stays_when_its_peer_uses_the_new_credentials() {
    let server = server("");
    let session = Session::new(&server, "x");
    let mut connection = TcpStream::connect(server.webrtc.unwrap()).unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    let mut from_server = connection.try_clone().unwrap();
    let mut check = |own, peer| {
        let request = request(own, peer);
        let length = u16::try_from(request.len()).unwrap().to_be_bytes();
        connection.write_all(&[&length, request.as_slice()].concat()).unwrap();
    };
    let mut is_answered = || {
        let mut length = [0; 2];
        from_server.read_exact(&mut length).unwrap();
        let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
        from_server.read_exact(&mut packet).unwrap();
        assert!(StunMessage::parse(&packet).unwrap().is_successful_binding_response());
    };
    check(&session.own, FRAGMENT);
    is_answered();
    let next = session.restart(&server, OTHER);
    check(&session.own, FRAGMENT);
    is_answered();
    check(&next, "else");
    is_answered();
    check(&session.own, FRAGMENT);
    dropped(&server, 1);
    check(&next, "else");
    is_answered();
    // A connection is of one session only.
    let other = Session::new(&server, "y");
    check(&other.own, FRAGMENT);
    dropped(&server, 2);
    check(&next, "else");
    is_answered();
}

#[test]
fn a_viewer_goes_over_to_another_port_without_a_gap() {
    let server = server("");
    let folder = tempfile::tempdir().unwrap();
    let _publisher = publish(&server, folder.path());
    let mut viewer = Viewer::new(&server);
    viewer.play(|viewer| viewer.packets_of_both() > 0);
    viewer.play_on();
    let from = viewer.newest("video");
    // The second restart has another one before it.
    for _ in 0..2 {
        viewer.restart(&server, server.webrtc.unwrap().port());
        let asked = viewer.newest("video");
        viewer.play(|viewer| {
            viewer.sockets.media.last() > Some(&50) && viewer.newest("video") > asked + 20
        });
        // Nothing comes by the old way any more.
        let before = viewer.sockets.media.clone();
        viewer.play_on();
        let media = viewer.sockets.media.clone();
        assert_eq!(media[..media.len() - 1], before[..media.len() - 1], "{media:?}");
        viewer.sockets.close_old();
    }
    viewer.play(|viewer| viewer.missing(from).is_empty());
    let (whole, broken) = units(viewer.of("video").values());
    assert!(whole > 20 && broken == 0, "{broken} of {whole}");
    assert_eq!(server.metric("headwater_webrtc_sessions"), 2);
}

#[test]
fn a_viewer_whose_network_takes_no_datagrams_any_more_goes_over_to_tcp() {
    let server = server("");
    let folder = tempfile::tempdir().unwrap();
    let _publisher = publish(&server, folder.path());
    let mut viewer = Viewer::new(&server);
    viewer.play(|viewer| viewer.packets_of_both() > 0);
    viewer.play_on();
    // Twice, because a connection may follow another.
    for _ in 0..2 {
        let bridge = Bridge::new(server.webrtc.unwrap());
        let before = viewer.newest("video");
        viewer.restart(&server, bridge.port);
        // The old network is gone at once.
        viewer.sockets.close_old();
        viewer.play(|viewer| viewer.sockets.media[0] > 50 && viewer.newest("video") > before);
        // Numbers go on, and TCP loses nothing.
        let from = viewer.newest("video");
        assert!(from < before + 10_000, "{before} {from}");
        viewer.play_on();
        viewer.play(|viewer| viewer.missing(from).is_empty());
    }
    let sources: Vec<_> = viewer.packets.keys().collect();
    assert_eq!(sources.len(), 2, "{sources:?}");
    assert_eq!(server.metric("headwater_webrtc_sessions"), 2);
}
