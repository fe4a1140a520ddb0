//! Offers of programs that cannot run here, written after what they were recorded to send.

use crate::support::{post, server};

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
