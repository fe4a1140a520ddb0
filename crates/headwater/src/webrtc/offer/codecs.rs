//! Codecs of video that sessions carry, and those that an offer has.

use std::collections::HashMap;

use str0m::format::{Codec, FormatParams};

/// The profile of AV1 that all decoders have: Main (AV1 specification A.2). A receiver that does not name
/// another has just this one (RTP Payload Format For AV1, 7.2).
const AV1_MAIN: u8 = 0;

/// The same of HEVC: Main (ISO/IEC 23008-2 A.3.2, RFC 7798 7.1), and the tier and the level that are meant where
/// none is named: Main and 3.1.
const HEVC_MAIN: u8 = 1;
const HEVC_DEFAULTS: (u8, u8) = (0, 93);

/// A codec in an offer, and its parameters there.
pub(in crate::webrtc) type Offered = (Codec, FormatParams);

/// The codec of a track, if sessions carry it.
pub(crate) fn carried(codec: &media::Codec) -> Option<Codec> {
    match codec {
        media::Codec::Avc(_) => Some(Codec::H264),
        media::Codec::Av1(config) if config.profile == AV1_MAIN => Some(Codec::Av1),
        media::Codec::Hevc(config) => {
            let of = &config.profile_tier_level;
            (of.profile_space == 0 && of.profile == HEVC_MAIN).then_some(Codec::H265)
        }
        _ => None,
    }
}

/// A codec's name for people.
pub(in crate::webrtc) fn name(codec: Codec) -> &'static str {
    match codec {
        Codec::Av1 => "AV1",
        Codec::H265 => "HEVC",
        _ => "H.264",
    }
}

/// The codecs of video in an offer that sessions carry, each once, by the offer's preference: a media
/// description names its payload types in that order (RFC 8866 5.14).
pub(in crate::webrtc) fn offered(offer: &str) -> Vec<Offered> {
    let mut codecs: Vec<Offered> = Vec::new();
    for media in offer.split("\nm=").filter_map(|media| media.strip_prefix("video ")) {
        // An offer may have thousands of payload types, so each line is read once.
        let known: HashMap<_, _> = media.lines().filter_map(codec).collect();
        let formats = media.lines().filter_map(|line| {
            let (payload, parameters) = line.strip_prefix("a=fmtp:")?.trim_end().split_once(' ')?;
            Some((payload, format(*known.get(payload)?, parameters)))
        });
        let formats: HashMap<_, _> = formats.collect();
        // The port and the protocol are before the payload types.
        let payloads = media.lines().next().unwrap_or_default().split_ascii_whitespace().skip(2);
        for payload in payloads {
            let Some(&codec) = known.get(payload) else { continue };
            let format = formats.get(payload).copied().unwrap_or_else(|| format(codec, ""));
            let is_new = !codecs.iter().any(|(known, _)| *known == codec);
            codecs.extend(format.filter(|_| is_new).map(|format| (codec, format)));
        }
    }
    codecs
}

/// The payload type that a line gives a codec of ours, and the codec.
pub(in crate::webrtc) fn codec(line: &str) -> Option<(&str, Codec)> {
    let (payload, encoding) = line.strip_prefix("a=rtpmap:")?.split_once(' ')?;
    let (name, _) = encoding.split_once('/')?;
    match () {
        () if name.eq_ignore_ascii_case("H264") => Some((payload, Codec::H264)),
        () if name.eq_ignore_ascii_case("AV1") => Some((payload, Codec::Av1)),
        () if name.eq_ignore_ascii_case("H265") => Some((payload, Codec::H265)),
        () => None,
    }
}

/// The format that parameters name. `None` if it is none of ours.
fn format(codec: Codec, parameters: &str) -> Option<FormatParams> {
    let value = |name: &str| {
        let mut pairs = parameters.split(';').filter_map(|each| each.trim().split_once('='));
        pairs.find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let number = |name| value(name).and_then(|value| value.parse().ok());
    let is = |name, expected| value(name).is_none_or(|value| value == expected);
    match codec {
        Codec::Av1 => {
            let (profile, level_idx, tier) =
                (number("profile"), number("level-idx"), number("tier"));
            let format = FormatParams { profile, level_idx, tier, ..FormatParams::default() };
            (profile.unwrap_or(AV1_MAIN) == AV1_MAIN).then_some(format)
        }
        Codec::H265 => {
            let profile = number("profile-id").unwrap_or(HEVC_MAIN);
            // Packets are in the order of decoding, and in one stream of RTP: none has a decoding order number.
            let is_plain = is("sprop-max-don-diff", "0") && is("tx-mode", "SRST");
            let is_ours = is_plain && profile == HEVC_MAIN && is("profile-space", "0");
            let (tier, level) = HEVC_DEFAULTS;
            let (tier, level) =
                (number("tier-flag").unwrap_or(tier), number("level-id").unwrap_or(level));
            let names = Some((profile, tier, level).into());
            let format = FormatParams { h265_profile_tier_level: names, ..FormatParams::default() };
            is_ours.then_some(format)
        }
        _ => Some(FormatParams::default()),
    }
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
    fn formats_of_hevc_are_of_the_main_profile_and_in_the_order_of_decoding() {
        let of = |parameters: &str| {
            let offer = format!("\nm=video 9 x 9\na=rtpmap:9 H265/90000\na=fmtp:9 {parameters}\n");
            let format = offered(&offer).first()?.1.h265_profile_tier_level?;
            Some((format.profile_id(), format.tier_flag(), format.level_id()))
        };
        assert_eq!(of("level-id=156;profile-id=1;tier-flag=1;tx-mode=SRST"), Some((1, 1, 156)));
        assert_eq!(of("Level-ID=180; sprop-max-don-diff=0"), Some((1, 0, 180)));
        for defaults in ["x", "level-id=300", "level-id=31", "profile-space=0"] {
            assert_eq!(of(defaults), Some((1, 0, 93)), "{defaults}");
        }
        for other in ["profile-id=2", "profile-space=1", "tx-mode=MRST", "sprop-max-don-diff=1"] {
            assert_eq!(of(other), None, "{other}");
        }
        let [(Codec::H265, format)] = offered("\nm=video 9 x 9\na=rtpmap:9 h265/90000\n")[..]
        else {
            panic!()
        };
        assert!(format.h265_profile_tier_level.is_some());
    }

    #[test]
    fn the_main_profile_of_hevc_is_carried() {
        let [vps, sps, pps] = testkit::hevc_sets().map(|set| [set.into()]);
        let record = media::codec::hevc::record(&vps, &sps, &pps).unwrap();
        for (general, expected) in [(0x01, true), (0x21, true), (0x02, false), (0x41, false)] {
            let mut record = record.to_vec();
            record[1] = general;
            let config = media::codec::hevc::Config::parse(record.into()).unwrap();
            let carried = carried(&media::Codec::Hevc(config));
            assert_eq!(carried == Some(Codec::H265), expected, "{general:x}");
        }
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
