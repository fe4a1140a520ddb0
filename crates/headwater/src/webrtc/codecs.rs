//! Codecs of video that sessions carry, and those that an offer has.

use std::collections::HashMap;

use str0m::format::{Codec, FormatParams};

/// The profile of AV1 that all decoders have: Main (AV1 specification A.2). A receiver that does not name
/// another has just this one (RTP Payload Format For AV1, 7.2).
const MAIN: u8 = 0;

/// A codec in an offer, and its parameters there.
pub(super) type Offered = (Codec, FormatParams);

/// The codec of a track, if sessions carry it.
pub(crate) fn carried(codec: &media::Codec) -> Option<Codec> {
    match codec {
        media::Codec::Avc(_) => Some(Codec::H264),
        media::Codec::Av1(config) if config.profile == MAIN => Some(Codec::Av1),
        _ => None,
    }
}

/// A codec's name for people.
pub(super) fn name(codec: Codec) -> &'static str {
    if codec == Codec::Av1 { "AV1" } else { "H.264" }
}

/// The codecs of video in an offer that sessions carry, each once, by the offer's preference: a media
/// description names its payload types in that order (RFC 8866 5.14).
pub(super) fn offered(offer: &str) -> Vec<Offered> {
    let mut codecs: Vec<Offered> = Vec::new();
    for media in offer.split("\nm=").filter_map(|media| media.strip_prefix("video ")) {
        // An offer may have thousands of payload types, so each line is read once.
        let (mut known, mut formats) = (HashMap::new(), HashMap::new());
        for line in media.lines() {
            known.extend(codec(line));
            formats.extend(parameters(line));
        }
        // The port and the protocol are before the payload types.
        let payloads = media.lines().next().unwrap_or_default().split_ascii_whitespace().skip(2);
        for payload in payloads {
            let Some(&codec) = known.get(payload) else { continue };
            let format = match codec {
                Codec::Av1 => formats.get(payload).copied().unwrap_or_default(),
                _ => FormatParams::default(),
            };
            let is_new = !codecs.iter().any(|(known, _)| *known == codec);
            if is_new && format.profile.unwrap_or(MAIN) == MAIN {
                codecs.push((codec, format));
            }
        }
    }
    codecs
}

/// The payload type that a line gives a codec of ours, and the codec.
pub(super) fn codec(line: &str) -> Option<(&str, Codec)> {
    let (payload, encoding) = line.strip_prefix("a=rtpmap:")?.split_once(' ')?;
    let (name, _) = encoding.split_once('/')?;
    match () {
        () if name.eq_ignore_ascii_case("H264") => Some((payload, Codec::H264)),
        () if name.eq_ignore_ascii_case("AV1") => Some((payload, Codec::Av1)),
        () => None,
    }
}

/// The payload type of a line of parameters, and those of AV1.
fn parameters(line: &str) -> Option<(&str, FormatParams)> {
    let (payload, parameters) = line.strip_prefix("a=fmtp:")?.trim_end().split_once(' ')?;
    let mut format = FormatParams::default();
    for (name, value) in parameters.split(';').filter_map(|each| each.trim().split_once('=')) {
        let value = value.parse().ok();
        match name {
            "profile" => format.profile = value,
            "level-idx" => format.level_idx = value,
            "tier" => format.tier = value,
            _ => {}
        }
    }
    Some((payload, format))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(payloads: &str) -> Vec<Codec> {
        let offer = format!(
            "v=0\r\nm=audio 9 x 45\r\na=rtpmap:45 AV1/90000\r\nm=video 9 x {payloads}\r\n\
             a=rtpmap:96 VP8/90000\r\na=rtpmap:97 h264/90000\r\na=rtpmap:98 AV1/90000\r\n\
             a=fmtp:98 profile=1\r\na=rtpmap:99 av1/90000\r\na=fmtp:99 level-idx=8; tier=1\r\n\
             a=rtpmap:100 AV1X/90000\r\na=rtpmap:101 H264/90000\r\n"
        );
        offered(&offer).into_iter().map(|(codec, _)| codec).collect()
    }

    #[test]
    fn codecs_are_in_the_order_of_preference() {
        assert_eq!(of("96 97 99"), [Codec::H264, Codec::Av1]);
        assert_eq!(of("99 101 97 99"), [Codec::Av1, Codec::H264]);
        // Another profile of AV1 is not ours, and what is not in the list is not offered.
        assert_eq!(of("98 97"), [Codec::H264]);
        assert_eq!(of("96 98 100"), []);
        assert_eq!(of(""), []);
        assert_eq!(offered("m=video"), []);
    }

    #[test]
    fn parameters_are_those_of_the_payload_type() {
        let offer = "\nm=video 9 x 99\na=rtpmap:99 AV1/90000\na=fmtp:99 level-idx=8; tier=1;x;y=\n";
        let [(Codec::Av1, format)] = offered(offer)[..] else { panic!() };
        assert_eq!((format.level_idx, format.tier, format.profile), (Some(8), Some(1), None));
    }

    #[test]
    fn the_main_profile_of_av1_is_carried() {
        let av1 = |record: [u8; 4]| {
            let config = media::codec::av1::Config::parse(record.to_vec().into()).unwrap();
            carried(&media::Codec::Av1(config))
        };
        assert_eq!(av1([0x81, 0x04, 0x0c, 0]), Some(Codec::Av1));
        assert_eq!(av1([0x81, 0x24, 0x00, 0]), None);
    }
}
