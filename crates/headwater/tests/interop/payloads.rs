//! HEVC in RTP packets: GStreamer's, which `rtp::h265` reads, and those of `rtp::h265`, which GStreamer reads.

use std::fs;
use std::path::Path;
use std::process::Command;

use media::codec::{Codec, hevc, nal};
use rtp::{AccessUnit, Output, VIDEO_RATE};
use testkit::{Program, decoded_pictures};

use crate::LIMIT;

/// Two seconds of HEVC without B-frames.
const CLIP: &str = "mp4/hevc-aac.mp4";

/// RTP packets in a file, each after its length (RFC 4571).
const PACKETS: &str = "application/x-rtp-stream,media=video,clock-rate=90000,encoding-name=H265";

#[track_caller]
fn gstreamer(pipeline: &str) {
    let mut command = Command::new("gst-launch-1.0");
    Program::output(command.arg("-q").args(pipeline.split_ascii_whitespace()), LIMIT);
}

/// The access units of packets, and their configuration.
#[track_caller]
fn read(packets: &[u8]) -> (Vec<AccessUnit>, hevc::Config) {
    let (mut rest, mut depacketizer, mut units) = (packets, rtp::h265::depacketizer(), Vec::new());
    while let Some((length, after)) = rest.split_first_chunk() {
        let (packet, after) = after.split_at(u16::from_be_bytes(*length).into());
        rest = after;
        // A header without extension and contributing sources.
        assert_eq!(packet[0], 0x80);
        let time = u32::from_be_bytes(packet[4..8].try_into().unwrap());
        depacketizer.push(time, packet[1] & 0x80 != 0, &packet[12..], |output| match output {
            Output::Unit(unit) => units.push(unit),
            Output::Broken(why) => panic!("{why:?}"),
        });
    }
    let Some(Codec::Hevc(config)) = units[0].codec.clone() else { panic!("{units:?}") };
    (units, config)
}

/// The NAL units of an access unit. Those of a keyframe begin with the parameter sets.
fn nals<'a>(unit: &'a AccessUnit, config: &'a hevc::Config) -> impl Iterator<Item = &'a [u8]> {
    let sets = config.nal_units.iter().filter(|_| unit.key).map(AsRef::as_ref);
    sets.chain(nal::units(&unit.data, config.nal_length_size).map(Result::unwrap))
}

/// Packets of the access units, of at most so many bytes.
fn write(units: &[AccessUnit], config: &hevc::Config, most: usize) -> Vec<u8> {
    let (mut packets, mut sequence) = (Vec::new(), 0u16);
    for (number, unit) in (0u32..).zip(units) {
        let payloads = rtp::h265::packetize(nals(unit, config), most);
        for (index, payload) in payloads.iter().enumerate() {
            let marker = if index + 1 == payloads.len() { 0x80 } else { 0 };
            let length = u16::try_from(12 + payload.len()).unwrap();
            packets.extend(length.to_be_bytes());
            packets.extend([0x80, marker | 96]);
            packets.extend(sequence.to_be_bytes());
            packets.extend((number * VIDEO_RATE / 30).to_be_bytes());
            packets.extend([0, 0, 0, 1]);
            packets.extend(&payload[..]);
            sequence += 1;
        }
    }
    packets
}

#[test]
#[ignore = "interop"]
fn hevc_passes_from_gstreamer_and_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    let (packets, stream, back) = (file("packets"), file("stream.hevc"), file("back.hevc"));
    let clip = shown(&testkit::clip(CLIP));
    let expected = decoded_pictures(&clip);
    assert_eq!(expected.len(), 60);
    // Parameter sets share a packet, and each has one of its own.
    for (options, most) in
        [("aggregate-mode=zero-latency", 1120), ("aggregate-mode=max", 300), ("mtu=400", 1120)]
    {
        gstreamer(&format!(
            "filesrc location={clip} ! qtdemux ! h265parse config-interval=-1 ! rtph265pay {options} \
             ! rtpstreampay ! filesink location={}",
            shown(&packets)
        ));
        let (units, config) = read(&fs::read(&packets).unwrap());
        let all = units.iter().flat_map(|unit| nals(unit, &config));
        let bytes: Vec<u8> = all.flat_map(|nal| [&[0, 0, 0, 1], nal].concat()).collect();
        fs::write(&stream, &bytes).unwrap();
        assert!(decoded_pictures(&shown(&stream)) == expected, "{options}: other pictures");
        fs::write(&packets, write(&units, &config, most)).unwrap();
        gstreamer(&format!(
            "filesrc location={} ! {PACKETS} ! rtpstreamdepay ! rtph265depay \
             ! video/x-h265,stream-format=byte-stream,alignment=au ! filesink location={}",
            shown(&packets),
            shown(&back)
        ));
        assert!(fs::read(&back).unwrap() == bytes, "{options}: other bytes");
    }
}
