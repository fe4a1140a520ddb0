//! Offers of programs that cannot run here, written after what they were recorded to send.

use testkit::Server;
use testkit::http::Client;

use crate::support::{LIMIT, OFFER, post, server};

/// What OBS Studio 30 offers: ICE and DTLS for the whole session and not for each media description, and
/// groups and sources as libdatachannel writes them.
const OBS: &str = "v=0\r\n\
    o=rtc 2914417305 0 IN IP4 127.0.0.1\r\n\
    s=-\r\n\
    t=0 0\r\n\
    a=group:BUNDLE 0 1\r\n\
    a=group:LS 0 1\r\n\
    a=msid-semantic:WMS *\r\n\
    a=setup:actpass\r\n\
    a=ice-ufrag:oBsX\r\n\
    a=ice-pwd:0123456789abcdefABCDEF\r\n\
    a=ice-options:ice2,trickle\r\n\
    a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:\
    10:11:12:13:14:15:16:17:18:19:1A:1B:1C:1D:1E:1F\r\n\
    m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=mid:0\r\n\
    a=sendonly\r\n\
    a=ssrc:70001 cname:obs\r\n\
    a=ssrc:70001 msid:obs obs-audio\r\n\
    a=msid:obs obs-audio\r\n\
    a=rtcp-mux\r\n\
    a=rtpmap:111 opus/48000/2\r\n\
    a=fmtp:111 minptime=10;maxaveragebitrate=96000;stereo=1;sprop-stereo=1;useinbandfec=1\r\n\
    m=video 9 UDP/TLS/RTP/SAVPF 96\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=mid:1\r\n\
    a=sendonly\r\n\
    a=ssrc:70002 cname:obs\r\n\
    a=ssrc:70002 msid:obs obs-video\r\n\
    a=msid:obs obs-video\r\n\
    a=rtcp-mux\r\n\
    a=rtpmap:96 H264/90000\r\n\
    a=rtcp-fb:96 nack\r\n\
    a=rtcp-fb:96 nack pli\r\n\
    a=rtcp-fb:96 goog-remb\r\n\
    a=fmtp:96 profile-level-id=42e01f;packetization-mode=1;level-asymmetry-allowed=1\r\n";

#[test]
fn what_obs_offers_is_accepted() {
    let server = server("");
    let answer = post(&server, "/live/obs/whip", OBS);
    assert_eq!(answer.status(), 201, "{}", answer.text());
    let media: Vec<_> = answer.text().split("\r\nm=").skip(1).collect();
    assert_eq!(media.len(), 2, "{}", answer.text());
    for (media, codec) in media.iter().zip(["111 opus/48000/2", "96 H264/90000"]) {
        assert!(media.contains(&format!("a=rtpmap:{codec}\r\n")), "{media}");
        assert!(media.contains("a=recvonly\r\n"), "{media}");
        // libdatachannel sends again what is asked for so.
        let asks = media.starts_with("audio") || media.contains("a=rtcp-fb:96 nack\r\n");
        assert!(asks, "{media}");
    }
}

/// What Chromium offers of a video with `sendEncodings` of three rids, without what is not about them.
const CHROMIUM: &str = "m=video 9 UDP/TLS/RTP/SAVPF 96 97\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=mid:1\r\n\
    a=extmap:9 urn:ietf:params:rtp-hdrext:sdes:mid\r\n\
    a=extmap:10 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id\r\n\
    a=extmap:11 urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id\r\n\
    a=sendonly\r\n\
    a=rtcp-mux\r\n\
    a=rtpmap:96 H264/90000\r\n\
    a=rtcp-fb:96 nack\r\n\
    a=rtcp-fb:96 nack pli\r\n\
    a=fmtp:96 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f\r\n\
    a=rtpmap:97 rtx/90000\r\n\
    a=fmtp:97 apt=96\r\n\
    a=rid:h send\r\n\
    a=rid:m send\r\n\
    a=rid:l send\r\n\
    a=simulcast:send h;m;~l\r\n";

/// An offer with this description of its video.
fn with_video(video: &str) -> String {
    let (others, _) = OFFER.split_once("m=video").unwrap();
    format!("{others}{video}")
}

#[test]
fn the_layers_that_chromium_offers_are_accepted() {
    let server = server("");
    let answer = post(&server, "/live/chromium/whip", &with_video(CHROMIUM));
    assert_eq!(answer.status(), 201, "{}", answer.text());
    let (_, video) = answer.text().split_once("\r\nm=video").unwrap();
    for line in [
        "a=rid:h recv",
        "a=rid:m recv",
        "a=rid:l recv",
        // What is paused stays so: its sender has switched it off.
        "a=simulcast:recv h;m;~l",
        "a=extmap:10 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
        "a=extmap:11 urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id",
    ] {
        assert!(video.contains(&format!("\r\n{line}\r\n")), "{line}: {video}");
    }
    // Of alternatives the first is taken, and of five layers four.
    let many = ["n", "o", "p"].map(|rid| format!("a=rid:{rid} send\r\n")).concat();
    let many = format!("{many}a=simulcast:send h,m;l;n;o;p");
    let answer = post(
        &server,
        "/live/many/whip",
        &with_video(&CHROMIUM.replace("a=simulcast:send h;m;~l", &many)),
    );
    assert!(answer.text().contains("\r\na=simulcast:recv h;l;n;o\r\n"), "{}", answer.text());
    assert_eq!(answer.text().matches("a=rid:").count(), 4, "{}", answer.text());
    // Who sends no simulcast need not name layers, and who plays gets none.
    let plain = CHROMIUM.replace("a=simulcast:send h;m;~l\r\n", "");
    let answer = post(&server, "/live/plain/whip", &with_video(&plain));
    assert_eq!(answer.status(), 201, "{}", answer.text());
    for absent in ["a=rid:", "a=simulcast:", "rtp-stream-id"] {
        assert!(!answer.text().contains(absent), "{}", answer.text());
    }
}

#[test]
fn a_session_whose_peer_never_came_can_be_ended() {
    let server = Server::start(env!("CARGO_BIN_EXE_headwater"), ["--control", "127.0.0.1:0"]);
    assert_eq!(post(&server, "/live/obs/whip", OBS).status(), 201);
    let operate = |method: &str, path: &str| {
        let mut client = Client::connect(server.operators(), LIMIT).unwrap();
        client.ask(method, path, &[], b"")
    };
    assert_eq!(operate("DELETE", "/api/v1/sessions/1").status(), 204);
    // Nobody waits for its first datagram any more.
    let line = server.log_line(LIMIT, |line| line.contains("webrtc "));
    assert!(line.contains("an administrator ended this session"), "{line}");
}
