//! AV1 by WHIP and WHEP. str0m packetizes what is published, and puts together what comes to a viewer.

use str0m::format::Codec;
use testkit::Server;

use crate::peer::{
    comes_out_as_it_is, comes_to_str0m, nothing_else_is_shown_when_packets_are_lost,
};
use crate::support::{OFFER, post, server};

/// Two seconds of AV1, with a keyframe a second.
const CLIP: &str = "mp4/av1-aac.mp4";

/// The temporal units of the clip, without temporal delimiters.
fn temporal_units() -> Vec<Vec<u8>> {
    let clip = testkit::clip(CLIP);
    let options = ["-an", "-c", "copy", "-f", "ivf", "-"];
    let ivf = testkit::ffmpeg(["-i", clip.to_str().unwrap()].iter().chain(&options));
    let (mut rest, mut units) = (&ivf[32..], Vec::new());
    while let Some((size, after)) = rest.split_first_chunk() {
        let (unit, after) = after[8..].split_at(u32::from_le_bytes(*size) as usize);
        units.push(unit.strip_prefix(&[0x12, 0]).unwrap_or(unit).to_vec());
        rest = after;
    }
    assert_eq!(units.len(), 60);
    units
}

#[test]
fn ffmpeg_reads_each_temporal_unit_that_str0m_publishes() {
    comes_out_as_it_is(Codec::Av1, CLIP, temporal_units(), "av01.0.");
}

#[test]
fn what_passes_when_packets_are_lost_for_good_shows_the_pictures_that_were_sent() {
    nothing_else_is_shown_when_packets_are_lost(Codec::Av1, CLIP, &temporal_units());
}

#[test]
fn str0m_gets_each_temporal_unit_that_rtmp_brings() {
    comes_to_str0m(Codec::Av1, CLIP, &temporal_units(), |unit| vec![unit.to_vec()]);
}

/// What the server answers to publishers who offer these codecs: payload type 96 is H.264, 45 AV1.
fn answer(server: &Server, stream: &str, payloads: &str, level: &str) -> String {
    let offer = OFFER.replace("SAVPF 96", &format!("SAVPF {payloads}"));
    let av1 = format!("a=rtpmap:45 AV1/90000\r\na=fmtp:45 level-idx={level};profile=0;tier=0\r\n");
    let answer = post(server, &format!("/live/{stream}/whip"), &(offer + &av1));
    assert_eq!(answer.status(), 201, "{}", answer.text());
    answer.text().to_owned()
}

#[test]
fn the_answer_has_the_codec_that_the_publisher_prefers_and_no_other() {
    let server = server("");
    for (index, (payloads, level, wanted, other)) in [
        ("96 45", "5", "96 H264/90000", "AV1"),
        ("45 96", "5", "45 AV1/90000", "H264"),
        ("45", "13", "45 AV1/90000", "H264"),
        ("45 96", "8", "45 AV1/90000", "H264"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = answer(&server, &format!("x{index}"), payloads, level);
        let (_, video) = answer.split_once("\r\nm=video ").unwrap();
        assert!(video.contains(&format!("\r\na=rtpmap:{wanted}\r\n")), "{payloads}: {video}");
        assert!(!video.contains(other), "{payloads}: {video}");
    }
}
