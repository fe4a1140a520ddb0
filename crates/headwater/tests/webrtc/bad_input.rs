//! Offers, requests and datagrams that are wrong.

use std::net::UdpSocket;
use std::time::Duration;

use bytes::Bytes;
use media::flv::TagKind;
use protocol::rtmp::ClientEvent;
use testkit::{eventually, rtmp};

use crate::support::{self, LIMIT, OFFER, ask, post, server};

#[test]
fn offers_that_cannot_be_accepted() {
    let server = server("");
    let refused = |path: &str, offer: &str, status: u16, why: &str| {
        let answer = post(&server, path, offer);
        assert_eq!(answer.status(), status, "{}", answer.text());
        assert!(answer.text().contains(why), "{}", answer.text());
    };
    for offer in ["", "hello", "v=0\r\n", "a=ice-ufrag:peer\r\n"] {
        refused("/live/x/whip", offer, 400, "not an SDP offer");
    }
    let without = |line: &str| {
        let kept = OFFER.split_inclusive("\r\n").filter(|kept| !kept.starts_with(line));
        kept.collect::<String>()
    };
    refused("/live/x/whip", &without("a=fingerprint"), 400, "fingerprint");
    refused("/live/x/whip", &without("a=ice-pwd"), 400, "ice");
    let twice = OFFER.replace("111", "96");
    refused("/live/x/whip", &twice, 400, "payload type 96 means two codecs");
    let other = OFFER.replace("H264", "VP8").replace("opus", "PCMA");
    refused("/live/x/whip", &other, 406, "no H.264, AV1, HEVC or Opus is offered");
    // It wants to receive.
    let other = OFFER.replace("sendrecv", "recvonly");
    refused("/live/x/whip", &other, 406, "no H.264, AV1, HEVC or Opus is offered");
    let many = format!("{OFFER}{}", "m=video 9 UDP/TLS/RTP/SAVPF 96\r\n".repeat(1000));
    refused("/live/x/whip", &many, 400, "more than 16 media descriptions");
    let long = format!("{OFFER}{}", "a=x\r\n".repeat(20_000));
    refused("/live/x/whip", &long, 413, "more than 65536 bytes");
    refused("/live/.x/whip", OFFER, 400, "not a stream name");
    refused("/live/x/whep", OFFER, 404, "no such stream");
    let answer = ask(&server, "POST", "/live/x/whip", &[("Content-Type", "text/plain")], b"v=0");
    assert_eq!(answer.status(), 415, "{}", answer.text());
    let sdp = [("Content-Type", "application/sdp")];
    let answer = ask(&server, "POST", "/live/x/whip", &sdp, b"\xff\xfe");
    assert_eq!((answer.status(), answer.text()), (400, "not UTF-8\n"));
    let long = OFFER.replace("a=mid:0", "a=mid:01234567890123456");
    refused("/live/x/whip", &long, 400, "longer than 16 characters");
    for (layers, why) in [
        ("a=rid:a send\r\na=simulcast:send a;a", "a=rid:a names two layers"),
        ("a=rid:<b> send\r\na=simulcast:send <b>", "a=rid:<b> is not of 1 to 8 letters and digits"),
        ("a=rid:123456789 send\r\na=simulcast:send 123456789", "a=rid:123456789 is not of 1 to 8"),
    ] {
        refused("/live/x/whip", &format!("{OFFER}{layers}\r\n"), 400, why);
    }
    let answer = server.get("/live/x/whip");
    assert_eq!((answer.status(), answer.header("allow")), (405, Some("POST, OPTIONS")));
    // Nothing is left of all this.
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
    assert!(server.get("/api/v1/streams").text().contains("\"streams\":[]"));
}

#[test]
fn requests_to_sessions() {
    let server = server("");
    let answer = post(&server, "/live/a/b/whip", OFFER);
    assert_eq!(answer.status(), 201, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/sdp"));
    assert_eq!(answer.header("access-control-expose-headers"), Some("ETag, Location, Retry-After"));
    let webrtc = server.webrtc.unwrap();
    let candidate = format!("{} {} typ host", webrtc.ip(), webrtc.port());
    assert!(answer.text().contains(&candidate), "{}", answer.text());
    assert!(answer.text().contains("a=ice-lite\r\n"), "{}", answer.text());
    let session = answer.header("location").unwrap().to_owned();
    assert!(session.starts_with("/live/a/b/whip/"), "{session}");
    let tag = answer.header("etag").unwrap().to_owned();

    // The name is taken, for WHIP and for RTMP.
    let again = post(&server, "/live/a/b/whip", OFFER);
    assert_eq!((again.status(), again.text()), (409, "already published\n"));
    // Nothing has come yet.
    // The watch page knows this sentence (web/src/watch/engines/webrtc.ts).
    let answer = post(&server, "/live/a/b/whep", OFFER);
    assert_eq!((answer.status(), answer.text().trim_end()), (503, "the stream has no media yet"));

    let known = "a=ice-ufrag:peer\r\na=ice-pwd:0123456789012345678901\r\n";
    let patch = |path: &str, tag: &str| {
        let body = format!("{known}a=candidate:1 1 UDP 1 192.0.2.1 9 typ host\r\n");
        support::patch(&server, path, Some(tag), &body).status()
    };
    assert_eq!(patch(&session, &tag), 204);
    assert_eq!(patch(&session, "*"), 204);
    assert_eq!(patch(&session, "\"other\""), 412);
    let strangers = [
        format!("{session}x"),
        session[..session.len() - 1].to_owned(),
        session.replace("/whip/", "/whep/"),
        session.replace("/a/b/", "/a/c/"),
        "/live/a/b/whip/x".to_owned(),
    ];
    for path in &strangers {
        assert_eq!(patch(path, &tag), 404, "{path}");
        assert_eq!(ask(&server, "DELETE", path, &[], b"").status(), 404, "{path}");
    }
    assert_eq!(ask(&server, "PUT", &session, &[], b"").status(), 405);
    let allowed = ask(&server, "DELETE", "/live/a/b/whip", &[], b"");
    assert_eq!((allowed.status(), allowed.header("allow")), (405, Some("POST, OPTIONS")));
    let allowed = ask(&server, "OPTIONS", "/live/a/b/whip", &[("Origin", "http://x")], b"");
    assert_eq!((allowed.status(), allowed.header("accept-post")), (204, Some("application/sdp")));
    assert_eq!(allowed.header("allow"), Some("POST, OPTIONS"));
    assert_eq!(allowed.header("access-control-allow-origin"), Some("*"));
    let allowed = ask(&server, "OPTIONS", &session, &[], b"");
    assert_eq!((allowed.status(), allowed.header("allow")), (204, Some("DELETE, PATCH, OPTIONS")));

    // A slash at the end says nothing.
    let allowed = server.get("/live/a/b/whip/");
    assert_eq!((allowed.status(), allowed.header("allow")), (405, Some("POST, OPTIONS")));
    let other = post(&server, "/live/a/other/whip/", OFFER);
    assert_eq!(other.status(), 201, "{}", other.text());
    let other = other.header("location").unwrap();
    assert!(other.starts_with("/live/a/other/whip/") && !other.contains("//"), "{other}");
    assert_eq!(ask(&server, "DELETE", &format!("{other}/"), &[], b"").status(), 200);

    assert_eq!(server.metric("headwater_webrtc_sessions"), 1);
    assert_eq!(ask(&server, "DELETE", &session, &[], b"").status(), 200);
    assert_eq!(ask(&server, "DELETE", &session, &[], b"").status(), 404);
    assert_eq!(server.metric("headwater_webrtc_sessions"), 0);
}

#[test]
fn a_name_that_is_published_by_rtmp_is_taken() {
    let server = server("");
    let publisher = rtmp::Client::publish(server.rtmp, "live/x");
    let answer = post(&server, "/live/x/whip", OFFER);
    assert_eq!((answer.status(), answer.text()), (409, "already published\n"));
    drop(publisher);
}

#[test]
fn sessions_have_limits() {
    let server = server(
        "[http]\nunlimited_networks = []\n[webrtc]\nmax_sessions = 3\nmax_sessions_per_address = 2",
    );
    for (name, status) in [("a", 201), ("b", 201), ("c", 429), ("d", 429)] {
        let answer = post(&server, &format!("/live/{name}/whip"), OFFER);
        assert_eq!(answer.status(), status, "{name}: {}", answer.text());
        assert_eq!(answer.header("retry-after").is_some(), status == 429, "{name}");
    }
    // A peer that never sends a datagram loses its place, and its stream's name.
    let wait = 10 * Duration::from_secs(1);
    eventually(LIMIT + wait, "no sessions", || server.metric("headwater_webrtc_sessions") == 0);
    assert_eq!(post(&server, "/live/a/whip", OFFER).status(), 201);
}

#[test]
fn datagrams_of_strangers_leave_nothing() {
    let server = server("");
    let answer = post(&server, "/live/x/whip", OFFER);
    let fragment = answer.header("etag").unwrap().trim_matches('"').to_owned();
    let to = server.webrtc.unwrap();
    let mut sent = 0;
    let mut send_from = |stranger: &UdpSocket, bytes: &[u8]| {
        stranger.send_to(bytes, to).unwrap();
        sent += 1;
    };
    // More than the addresses that a peer may have.
    let strangers: Vec<_> = (0..40).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let mut send = |bytes: &[u8]| send_from(&strangers[0], bytes);
    // All of these fit into the socket's buffer.
    for first in [0, 1, 2, 19, 20, 22, 63, 64, 128, 129, 191, 192, 255] {
        for length in [1, 19, 20, 100] {
            send(&vec![first; length]);
        }
    }
    // Binding requests with the attributes that ICE wants (RFC 8445 7.2.2), in the name of nobody, and in
    // that of the peer. MESSAGE-INTEGRITY is wrong: a stranger does not know the password.
    let attribute = |kind: u16, value: &[u8]| {
        let mut attribute = kind.to_be_bytes().to_vec();
        attribute.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        attribute.extend(value);
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        attribute
    };
    let request = |name: &[u8]| {
        let attributes =
            [attribute(0x0006, name), attribute(0x0024, &[1; 4]), attribute(0x0008, &[7; 20])];
        let attributes = attributes.concat();
        let mut request = [0, 1].to_vec();
        request.extend(u16::try_from(attributes.len()).unwrap().to_be_bytes());
        request.extend([0x21, 0x12, 0xa4, 0x42].iter().chain(&[7; 12]));
        request.extend(attributes);
        request
    };
    for name in [&b""[..], b":", b"nobody:peer", b"0123456789abcdef:peer", b"no colon"] {
        send(&request(name));
    }
    for stranger in &strangers {
        send_from(stranger, &request(format!("{fragment}:peer").as_bytes()));
    }
    eventually(LIMIT, "all are dropped", || {
        server.metric("headwater_webrtc_dropped_total") == sent
    });
    assert_eq!(server.get("/healthz").status(), 200);
}

#[test]
fn without_webrtc_there_is_nothing() {
    let server = server("[webrtc]\nenabled = false");
    assert_eq!(server.webrtc, None);
    assert_eq!(post(&server, "/live/x/whip", OFFER).status(), 405);
    // No method is allowed, and none is named.
    for method in ["GET", "OPTIONS", "POST", "DELETE"] {
        for path in ["/live/x/whip", "/live/x/whep", "/live/x/whep/session"] {
            let answer = ask(&server, method, path, &[], b"");
            assert_eq!(
                (answer.status(), answer.header("allow"), answer.text()),
                (405, Some(""), "there is no WebRTC here\n"),
                "{method} {path}"
            );
        }
    }
    assert_eq!(server.get("/live/x/index.m3u8").status(), 404);
}

#[test]
fn a_stream_may_be_called_whip() {
    let server = server("");
    let clip = testkit::clip("mp4/surround.mp4");
    let publisher = server.publish(clip, &server.rtmp_url("live/a/whip"), &["--loop"]);
    for resource in ["index.m3u8", "manifest.mpd"] {
        let path = format!("/live/a/whip/{resource}");
        server.get_until(&path, LIMIT, |answer| answer.status() == 200);
    }
    let none = ask(&server, "DELETE", "/live/a/whip/session", &[], b"");
    assert_eq!((none.status(), none.text()), (404, "no such session\n"));
    drop(publisher);
}

/// It is there before its tracks are. A viewer who comes then is told to wait, and a player of RTMP waits.
#[test]
fn viewers_wait_for_the_tracks_of_a_publisher_that_returns() {
    let server = server("");
    let header = [&b"\x17\x00\0\0\0"[..], &testkit::avc_record(31)].concat();
    let frame = b"\x17\x01\0\0\0\0\0\0\x02\x65\x88";
    let send = |client: &mut rtmp::Client, from: u32| {
        client.tag(TagKind::Video, from, header.clone().into());
        for number in 0..100 {
            client.tag(TagKind::Video, from + number * 40, Bytes::from_static(frame));
        }
    };
    let mut first = rtmp::Client::publish(server.rtmp, "live/x");
    send(&mut first, 0);
    server.get_until("/live/x/manifest.mpd", LIMIT, |answer| answer.status() == 200);
    drop(first);
    let mut second = rtmp::Client::publish(server.rtmp, "live/x");
    server.get_until("/live/x/manifest.mpd", LIMIT, |answer| answer.status() == 503);
    let answer = post(&server, "/live/x/whep", OFFER);
    assert_eq!(answer.status(), 503, "{}", answer.text());
    assert!(answer.text().contains("has no media yet"), "{}", answer.text());
    let mut player = rtmp::Client::play(server.rtmp, "live/x");
    send(&mut second, 0);
    player.until(|event| matches!(event, ClientEvent::Video { .. })).unwrap();
}

#[test]
fn b_frames_are_refused_with_the_reason() {
    let server = server("[webrtc]\ntranscode = false");
    let clip = testkit::clip("mp4/surround.mp4");
    let publisher = server.publish(clip, &server.rtmp_url("live/x"), &["--loop"]);
    server.get_until("/live/x/index.m3u8", LIMIT, |answer| answer.status() == 200);
    let answer = post(&server, "/live/x/whep", OFFER);
    assert_eq!(answer.status(), 406, "{}", answer.text());
    assert!(answer.text().contains("B-frames"), "{}", answer.text());
    server.log_line(LIMIT, |line| line.contains("for WebRTC viewers: webrtc.transcode = false"));
    drop(publisher);
}
