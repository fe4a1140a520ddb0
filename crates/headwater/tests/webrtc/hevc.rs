//! HEVC by WHIP and WHEP. str0m packetizes what is published, and puts together what comes to a viewer.

use std::path::Path;

use str0m::format::Codec;
use testkit::Server;
use testkit::http::Response;

use crate::peer::{
    by_rtmp, comes_out_as_it_is, comes_to_str0m, nothing_else_is_shown_when_packets_are_lost,
};
use crate::support::{OFFER, post, server};

/// Two seconds of HEVC without B-frames. The first keyframe is an IDR picture, the second a CRA picture.
const CLIP: &str = "mp4/hevc-aac.mp4";

/// An access unit delimiter with its start code, but for the kinds of slices that it tells.
const DELIMITER: [u8; 6] = [0, 0, 0, 1, 70, 1];

/// The access units of a clip: NAL units after start codes. Keyframes have their parameter sets.
fn access_units(clip: &Path) -> Vec<Vec<u8>> {
    let to_bytes = "hevc_mp4toannexb,hevc_metadata=aud=insert";
    let options = ["-map", "0:v", "-c", "copy", "-bsf:v", to_bytes, "-f", "hevc", "-"];
    let stream = testkit::ffmpeg(["-i", clip.to_str().unwrap()].iter().chain(&options));
    let starts: Vec<_> = stream.windows(6).enumerate().filter(|(_, it)| *it == DELIMITER).collect();
    let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([stream.len()]);
    let units = starts.iter().zip(ends).map(|((at, _), end)| stream[at + 7..end].to_vec());
    units.collect()
}

/// The NAL units between start codes.
fn nals(access_unit: &[u8]) -> Vec<Vec<u8>> {
    let (mut nals, mut nal) = (Vec::new(), Vec::new());
    for &byte in access_unit {
        nal.push(byte);
        if nal.ends_with(&[0, 0, 1]) {
            nal.truncate(nal.len() - 3);
            // NAL units do not end with zeros. The zero belongs to the start code.
            let length = nal.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            nal.truncate(length);
            nals.extend(Some(std::mem::take(&mut nal)).filter(|nal| !nal.is_empty()));
        }
    }
    nals.push(nal);
    nals
}

#[test]
fn ffmpeg_reads_each_access_unit_that_str0m_publishes() {
    comes_out_as_it_is(Codec::H265, CLIP, access_units(&testkit::clip(CLIP)), "hvc1.1.6.L93.");
}

#[test]
fn what_passes_when_packets_are_lost_for_good_shows_the_pictures_that_were_sent() {
    let units = access_units(&testkit::clip(CLIP));
    nothing_else_is_shown_when_packets_are_lost(Codec::H265, CLIP, &units);
}

#[test]
fn str0m_gets_each_access_unit_that_rtmp_brings() {
    let units = access_units(&testkit::clip(CLIP));
    let sent: Vec<_> = units.iter().map(|it| nals(it)).collect();
    assert_eq!((sent.len(), sent[0].len(), sent[1].len()), (60, 4, 1));
    comes_to_str0m(Codec::H265, CLIP, &units, nals);
}

/// An offer of these payload types of video: 96 is H.264, 45 HEVC with these parameters, 47 VP8.
fn offer(payloads: &str, parameters: &str) -> String {
    let offer = OFFER.replace("SAVPF 96", &format!("SAVPF {payloads}"));
    let hevc = format!("a=rtpmap:45 H265/90000\r\na=fmtp:45 {parameters}\r\n");
    offer + &hevc + "a=rtpmap:47 VP8/90000\r\n"
}

#[test]
fn the_answer_has_the_codec_that_the_publisher_prefers_and_no_other() {
    let server = server("");
    let main = "profile-id=1;tier-flag=0;level-id=93;tx-mode=SRST";
    for (index, (payloads, parameters, wanted, other)) in [
        ("96 45", main, "96 H264/90000", "H265"),
        ("45 96", main, "45 H265/90000", "H264"),
        ("45", "level-id=180;profile-id=1;tier-flag=1;tx-mode=SRST", "45 H265/90000", "H264"),
        ("45", "level-id=120", "45 H265/90000", "H264"),
        ("45 96", "profile-id=2;tier-flag=0;level-id=93", "96 H264/90000", "H265"),
        ("45 96", "sprop-max-don-diff=1", "96 H264/90000", "H265"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = post(&server, &format!("/live/x{index}/whip"), &offer(payloads, parameters));
        assert_eq!(answer.status(), 201, "{}", answer.text());
        let (_, video) = answer.text().split_once("\r\nm=video ").unwrap();
        assert!(video.contains(&format!("\r\na=rtpmap:{wanted}\r\n")), "{payloads}: {video}");
        assert!(!video.contains(other), "{payloads}: {video}");
    }
}

#[test]
fn viewers_without_hevc_and_of_hevc_with_b_frames_are_refused_with_a_reason() {
    let main = "profile-id=1;tier-flag=0;level-id=93";
    let watch = |server: &Server, payloads: &str| -> Response {
        post(server, "/live/x/whep", &offer(payloads, main))
    };
    let (server, _publisher) = by_rtmp(CLIP);
    for payloads in ["96", "47"] {
        let answer = watch(&server, payloads);
        assert_eq!(answer.status(), 406, "{}", answer.text());
        let why = "the stream's video is HEVC, which is not offered";
        assert!(answer.text().contains(why), "{payloads}: {}", answer.text());
    }
    // Who offers both gets the one that the stream has.
    let answer = watch(&server, "96 45");
    assert_eq!(answer.status(), 201, "{}", answer.text());
    assert!(answer.text().contains("a=rtpmap:45 H265/90000"), "{}", answer.text());
    // A companion makes nothing of HEVC.
    let (server, _publisher) = by_rtmp("mp4/fragmented-hevc.mp4");
    for payloads in ["45", "96 45", "96"] {
        let answer = watch(&server, payloads);
        assert_eq!(answer.status(), 406, "{}", answer.text());
        assert!(answer.text().contains("the stream has B-frames"), "{payloads}: {}", answer.text());
    }
}
