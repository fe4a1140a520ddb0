//! Agrees with a peer's SDP offer.

pub(super) mod codecs;
mod extensions;
pub(super) mod ice;
pub(super) mod keys;
mod simulcast;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rtp::VIDEO_RATE;
use str0m::change::SdpOffer;
use str0m::config::{CryptoProvider, DtlsCert};
use str0m::format::{Codec, PayloadParams};
use str0m::media::{Direction, Frequency, MediaKind, Mid, Pt, Rid, Rids};
use str0m::rtp::Extension;
use str0m::{IceCreds, Rtc};
use tokio::time::Instant;

use super::send::source::{NTP_BEFORE_UNIX, Terms};
use codecs::Offered;
use keys::Keys;
use simulcast::MOST_LAYERS;

/// The longest identification tag of a media description. str0m cuts off what is longer, and browsers
/// number their media descriptions.
const LONGEST_MID: usize = 16;

/// The most media descriptions of an offer. Peers offer one of each kind, and a data channel.
const MOST_MEDIA: usize = 16;

/// Time between two receiver reports for a publisher. Where the offer names no source for retransmissions (RTX), str0m
/// takes video for audio, and would report each 5 s only. Senders compute the loss from these reports: 5 s is too long.
const REPORTS: Duration = Duration::from_secs(1);

/// The server's certificate for DTLS, which all sessions share, and the cryptography.
pub(super) struct Identity {
    crypto: Arc<CryptoProvider>,
    /// The same for viewers.
    apart: Arc<CryptoProvider>,
    certificate: DtlsCert,
}

impl Identity {
    /// Makes a certificate.
    pub(super) fn new() -> Option<Self> {
        let crypto = Arc::new(str0m::crypto::from_feature_flags());
        let certificate = crypto.dtls_provider.generate_certificate()?;
        let apart = Arc::new(keys::apart(&crypto));
        Some(Self { crypto, apart, certificate })
    }

    pub(super) fn crypto(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.crypto)
    }
}

/// An agreement: the connection, and what it carries.
pub(super) struct Agreed {
    pub(super) rtc: Rtc,
    pub(super) answer: String,
    pub(super) own: IceCreds,
    pub(super) peer: IceCreds,
    /// A media description that can carry the codec of video, and one for Opus.
    pub(super) video: Option<Line>,
    pub(super) audio: Option<Line>,
    /// Whether the peer has a media description of video, also if that carries nothing.
    pub(super) wants_video: bool,
    /// The layers in which a publisher sends the video. Empty without simulcast.
    pub(super) layers: Vec<Rid>,
    /// The keys of our side, if the peer plays.
    pub(super) keys: Keys,
}

/// A media description, and the payload type of our codec in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) mid: Mid,
    pub(super) codec: Codec,
    pub(super) payload: Pt,
    /// Whether the peer publishes, and offers to send packets again that are asked for.
    pub(super) sends_again: bool,
    /// If the peer publishes, the identifier of the header extension that has transport-wide sequence numbers. All
    /// lines of a session have the same one.
    pub(super) numbers: Option<u8>,
    /// How packets are sent, if they are.
    pub(super) terms: Option<Terms>,
}

impl Line {
    /// Makes str0m forget the source of what is sent.
    pub(super) fn forget(&self, rtc: &mut Rtc) {
        if let Some(terms) = self.terms {
            rtc.direct_api().remove_stream_tx(terms.ssrc.into());
        }
    }
}

/// Why there is no agreement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The offer is no SDP offer.
    NoOffer(String),
    /// There is no codec in common.
    NoCodec,
}

/// What a peer wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Publish,
    /// It plays. Whether its rendition is chosen by what it tells of its link.
    Play {
        chooses: bool,
    },
}

/// Agrees with an offer of a peer, which may reach these addresses by UDP and, if so said, by TCP. Of its codecs
/// of video, the answer has `video` alone: so both sides mean the same.
pub(super) fn agree(
    identity: &Identity,
    offer: &str,
    purpose: Purpose,
    video: Option<Offered>,
    addresses: &[SocketAddr],
    takes_tcp: bool,
) -> Result<Agreed, Refusal> {
    let publishes = purpose == Purpose::Publish;
    let no_offer = |why: String| Refusal::NoOffer(why);
    if offer.lines().filter(|line| line.starts_with("m=")).count() > MOST_MEDIA {
        return Err(no_offer(format!("more than {MOST_MEDIA} media descriptions")));
    }
    if let Some(payload) = ambiguous(offer) {
        // str0m panics at such an offer.
        return Err(no_offer(format!("payload type {payload} means two codecs (RFC 8843 10.1.2)")));
    }
    if let Some(mid) = offer
        .lines()
        .filter_map(|line| line.trim_end().strip_prefix("a=mid:"))
        .find(|mid| mid.len() > LONGEST_MID)
    {
        return Err(no_offer(format!("a=mid:{mid} is longer than {LONGEST_MID} characters")));
    }
    // Viewers get no simulcast.
    let taken = video.map(|(codec, _)| codec);
    let most = if publishes { MOST_LAYERS } else { 0 };
    let offer = simulcast::limit(offer, taken, most).map_err(no_offer)?;
    let offer = one_way(&offer, publishes);
    let (offer, extensions) = if publishes { extensions::limit(&offer) } else { (offer, None) };
    let offer = offer.as_str();
    let peer = ice::credentials(offer).and_then(|peer| peer.ok_or("no a=ice-ufrag"));
    let peer = peer.map_err(|why| no_offer(why.to_owned()))?;
    let parsed = SdpOffer::from_sdp_string(offer).map_err(|error| {
        // The error has addresses of memory in it.
        tracing::debug!(%error, "offer");
        no_offer("it cannot be parsed".to_owned())
    })?;
    let own = IceCreds::new();
    let crypto = if publishes { &identity.crypto } else { &identity.apart };
    let mut config = Rtc::builder()
        .set_crypto_provider(Arc::clone(crypto))
        .set_dtls_cert(identity.certificate.clone())
        .set_local_ice_credentials(own.clone())
        .set_ice_lite(true)
        .set_rtp_mode(true)
        .set_stats_interval(None)
        .set_rtcp_report_interval_audio(REPORTS)
        .clear_codecs()
        .enable_opus(true, false)
        .enable_h264(taken == Some(Codec::H264));
    match video {
        // Constrained High is what some encoders name.
        Some((Codec::H264, _)) => {
            config.codec_config().add_h264(102.into(), Some(103.into()), true, 0x64_0c_1f);
        }
        // str0m takes only the very level of AV1 that it has. Ours is the peer's: we decode nothing.
        Some((codec, format)) => {
            let (payload, resend) = (45.into(), Some(46.into()));
            let codecs = config.codec_config();
            codecs.add_config(payload, resend, codec, Frequency::NINETY_KHZ, None, format);
        }
        None => {}
    }
    let numbers = extensions.as_ref().and_then(|map| map.id_of(Extension::TransportSequenceNumber));
    config = match extensions {
        Some(extensions) => config.set_extension_map(extensions),
        None => config.clear_extension_map().set_extension(1, Extension::RtpMid),
    };
    if purpose == (Purpose::Play { chooses: true }) {
        // Feedback on each packet costs, so only those send it who have something to choose from.
        config = config.set_extension(3, Extension::TransportSequenceNumber);
    }
    let now = Instant::now().into_std();
    let (mut rtc, keys) = if publishes {
        (config.build(now), Keys::default())
    } else {
        keys::connection(config, now)
    };
    for candidate in ice::candidates(addresses, takes_tcp) {
        rtc.add_local_candidate(candidate);
    }
    let answer = rtc.sdp_api().accept_offer(parsed).map_err(|error| no_offer(error.to_string()))?;
    if numbers.is_some() {
        // str0m keeps all numbers that it has not reported.
        rtc.direct_api().enable_twcc_feedback();
    }
    let answer = answer.to_sdp_string();
    let wanted = if publishes { Direction::RecvOnly } else { Direction::SendOnly };
    let (mut video, mut audio, mut wants_video) = (None, None, false);
    for mid in answer.lines().filter_map(|line| line.strip_prefix("a=mid:")) {
        let mid = Mid::from(mid.trim_end());
        let Some(media) = rtc.media(mid) else { continue };
        let (kind, direction) = (media.kind(), media.direction());
        if direction != wanted && direction != Direction::SendRecv {
            continue;
        }
        match kind {
            MediaKind::Video => {
                wants_video = true;
                let find = || line(&mut rtc, (mid, taken?), publishes, offer);
                video = video.or_else(find);
            }
            MediaKind::Audio => {
                audio = audio.or_else(|| line(&mut rtc, (mid, Codec::Opus), publishes, offer));
            }
        }
    }
    if video.is_none() && audio.is_none() {
        return Err(Refusal::NoCodec);
    }
    for line in [&mut video, &mut audio].into_iter().flatten() {
        line.numbers = numbers;
    }
    let layers = match video.and_then(|line| rtc.media(line.mid)).map(|media| media.rids_rx()) {
        Some(Rids::Specific(rids)) => rids.clone(),
        _ => Vec::new(),
    };
    if !publishes {
        // What viewers get is sent without str0m, which would keep caches and timers for it.
        [&video, &audio].into_iter().flatten().for_each(|line| line.forget(&mut rtc));
    }
    let answer = together(&answer, &own.ufrag);
    Ok(Agreed { rtc, answer, own, peer, video, audio, wants_video, layers, keys })
}

/// Makes media that are offered both ways go one way, so that the answer is for one way, too (RFC 9725 4.2). Not
/// all peers can say it: GStreamer offers to take what it sends.
fn one_way(offer: &str, publishes: bool) -> String {
    let way = if publishes { "a=sendonly" } else { "a=recvonly" };
    let lines = offer.split_inclusive('\n').map(|line| match line.strip_prefix("a=sendrecv") {
        Some(end) if end.trim().is_empty() => format!("{way}{end}"),
        _ => line.to_owned(),
    });
    lines.collect()
}

/// Whether a peer offers to send again what is asked for (RFC 4585 4.2).
fn sends_again(offer: &str, payload: Pt) -> bool {
    let ways = [format!("a=rtcp-fb:{payload} nack"), "a=rtcp-fb:* nack".to_owned()];
    offer.lines().any(|line| ways.iter().any(|way| line.trim_end() == way))
}

/// The payload type for a codec in a media description of an offer, and how a player gets packets.
fn line(rtc: &mut Rtc, (mid, codec): (Mid, Codec), publishes: bool, offer: &str) -> Option<Line> {
    let remote = rtc.media(mid)?.remote_pts().to_vec();
    let fits = |params: &&PayloadParams| {
        let spec = params.spec();
        // A viewer must take fragments, which only mode 1 has. All browsers offer it.
        let takes_fragments = spec.format.packetization_mode == Some(1);
        // str0m may have taken another format of HEVC than ours, whose packets are not in order.
        let is_in_order = spec.format.sprop_max_don_diff.is_none_or(|most| most == 0);
        spec.codec == codec
            && remote.contains(&params.pt())
            && (takes_fragments || codec != Codec::H264)
            && is_in_order
    };
    let params = *rtc.codec_config().params().iter().find(fits)?;
    let payload = params.pt();
    if publishes {
        let sends_again = sends_again(offer, payload);
        return Some(Line { mid, codec, payload, sends_again, numbers: None, terms: None });
    }
    let extensions = rtc.media(mid)?.remote_extmap();
    let extension = extensions.id_of(Extension::RtpMid);
    let numbers = extensions.id_of(Extension::TransportSequenceNumber);
    let numbers = numbers.filter(|_| params.fb_transport_cc());
    let mut api = rtc.direct_api();
    let stream = api.stream_tx_by_mid(mid, None)?;
    let resends = stream.rtx().zip(params.resend()).map(|(ssrc, payload)| (*ssrc, *payload));
    let terms = Some(Terms { ssrc: *stream.ssrc(), resends, extension, numbers });
    Some(Line { mid, codec, payload, sends_again: false, numbers: None, terms })
}

/// A payload type that an offer gives two meanings, if there is one: another codec, or other parameters,
/// in another media description.
fn ambiguous(offer: &str) -> Option<String> {
    let mut meanings = HashMap::new();
    // What comes before the first media description is about the session.
    for media in offer.split("\nm=").skip(1) {
        let mut own: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for line in media.lines().map(str::trim_end) {
            let value = line.strip_prefix("a=rtpmap:").or_else(|| line.strip_prefix("a=fmtp:"));
            if let Some((payload, _)) = value.and_then(|value| value.split_once(' ')) {
                own.entry(payload).or_default().push(line.to_ascii_lowercase());
            }
        }
        for (payload, mut lines) in own {
            lines.sort();
            let maps = lines.iter().filter(|line| line.starts_with("a=rtpmap:")).count();
            let is_plain = maps < 2 && lines.len() - maps < 2;
            if !is_plain || *meanings.entry(payload).or_insert_with(|| lines.clone()) != lines {
                return Some(payload.to_owned());
            }
        }
    }
    None
}

/// Says in an answer to which moment each RTP time of the video belongs (RFC 7273 5.2): the RTP clock
/// counts from time 0 of the stream, which was captured at `epoch`, in microseconds since 1970. So
/// viewers know how far behind they are. Sender reports say it too, but browsers keep those to
/// themselves.
pub(super) fn tell_clock(answer: &str, epoch: i64) -> String {
    let since_1900 = i128::from(epoch) + i128::from(NTP_BEFORE_UNIX) * 1_000_000;
    let at_1900 = (-since_1900 * i128::from(VIDEO_RATE) / 1_000_000).rem_euclid(1 << 32);
    let mut out = String::with_capacity(answer.len() + 80);
    let mut is_video = false;
    for line in answer.split_inclusive('\n') {
        out.push_str(line);
        if let Some(media) = line.strip_prefix("m=") {
            is_video = media.starts_with("video");
        } else if is_video && line.starts_with("a=mid:") {
            let clock = format!("a=ts-refclk:ntp=/traceable/\r\na=mediaclk:direct={at_1900}\r\n");
            out.push_str(&clock);
        }
    }
    out
}

/// Puts all tracks of an answer into one stream: browsers play only such tracks in step. `cname` names
/// their source, as in our reports.
fn together(answer: &str, cname: &str) -> String {
    let mut out = String::with_capacity(answer.len() + 64);
    for line in answer.split_inclusive('\n') {
        if let Some((source, _)) = line.split_once(" cname:")
            && source.starts_with("a=ssrc:")
        {
            out.extend([source, " cname:", cname, "\r\n"]);
            continue;
        }
        match line.strip_prefix("a=msid:").and_then(|ids| ids.split_once(' ')) {
            Some((_, track)) => {
                out.push_str("a=msid:headwater ");
                out.push_str(track);
            }
            None => out.push_str(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::codecs;
    use super::*;

    /// The lines of an offer that are about its codecs and layers, as Chromium writes them.
    const LINES: &[&str] = &[
        "m=video 9 UDP/TLS/RTP/SAVPF 45 46 96 97 98 49",
        "c=IN IP4 0.0.0.0",
        "a=mid:0",
        "a=sendrecv",
        "a=rtcp-mux",
        "a=rtpmap:45 AV1/90000",
        "a=rtcp-fb:45 nack pli",
        "a=fmtp:45 level-idx=5;profile=0;tier=0",
        "a=rtpmap:46 rtx/90000",
        "a=fmtp:46 apt=45",
        "a=rtpmap:96 H264/90000",
        "a=fmtp:96 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42001f",
        "a=rtpmap:97 rtx/90000",
        "a=fmtp:97 apt=96",
        "a=rtpmap:98 AV1/90000",
        "a=fmtp:98 level-idx=5;profile=1;tier=0",
        "a=rtpmap:49 H265/90000",
        "a=fmtp:49 level-id=156;profile-id=1;tier-flag=0;tx-mode=SRST",
        "a=rid:h send pt=45",
        "a=rid:l send",
        "a=simulcast:send h;l",
        "m=audio 9 UDP/TLS/RTP/SAVPF 111",
        "c=IN IP4 0.0.0.0",
        "a=mid:1",
        "a=sendrecv",
        "a=rtcp-mux",
        "a=rtpmap:111 opus/48000/2",
    ];

    const HEAD: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n\
        a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:\
        10:11:12:13:14:15:16:17:18:19:1A:1B:1C:1D:1E:1F\r\na=ice-ufrag:peer\r\n\
        a=ice-pwd:0123456789012345678901\r\na=setup:actpass\r\n";

    /// What is done to the lines: one is left out, written twice, or moved, or a number in all is another one.
    #[derive(Debug, Clone)]
    enum Change {
        Drop(usize),
        Repeat(usize, usize),
        Swap(usize, usize),
        Renumber(usize, usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        let place = || 0..LINES.len();
        let number = || 0usize..NUMBERS.len();
        prop_oneof![
            place().prop_map(Change::Drop),
            (place(), place()).prop_map(|(from, to)| Change::Repeat(from, to)),
            (place(), place()).prop_map(|(one, other)| Change::Swap(one, other)),
            (number(), number()).prop_map(|(from, to)| Change::Renumber(from, to)),
        ]
    }

    const NUMBERS: &[&str] =
        &["45", "46", "96", "97", "98", "49", "111", "0", "127", "300", "H264", "AV1", "H265"];

    proptest! {
        /// str0m panics at some offers. No such one may reach it.
        #[test]
        fn no_offer_panics(changes in prop::collection::vec(change(), 0..8), publishes: bool) {
            let mut lines: Vec<_> = LINES.iter().map(|line| (*line).to_owned()).collect();
            for change in changes {
                match change {
                    Change::Drop(at) if at < lines.len() => _ = lines.remove(at),
                    Change::Repeat(from, to) if from.max(to) < lines.len() => {
                        lines.insert(to, lines[from].clone());
                    }
                    Change::Swap(one, other) if one.max(other) < lines.len() => {
                        lines.swap(one, other);
                    }
                    Change::Renumber(from, to) => {
                        lines.iter_mut().for_each(|it| *it = it.replace(NUMBERS[from], NUMBERS[to]));
                    }
                    _ => {}
                }
            }
            let offer = format!("{HEAD}{}\r\n", lines.join("\r\n"));
            let purpose =
                if publishes { Purpose::Publish } else { Purpose::Play { chooses: true } };
            let identity = Identity::new().unwrap();
            for video in codecs::offered(&offer).into_iter().map(Some).chain([None]) {
                let agreed = agree(&identity, &offer, purpose, video, &[], false);
                let Ok(Agreed { answer, video: line, .. }) = agreed else { continue };
                // No other codec is in the answer than the one that was taken.
                let codecs = codecs::offered(&answer);
                let taken = video.map(|(codec, _)| codec);
                prop_assert!(codecs.iter().all(|(codec, _)| Some(*codec) == taken), "{}", answer);
                prop_assert!(line.is_none_or(|line| Some(line.codec) == taken));
            }
        }
    }

    #[test]
    fn tracks_of_an_answer_are_one_stream() {
        let answer =
            "v=0\r\na=msid:x y\r\na=msid-semantic:WMS x\r\na=ssrc:5 cname:z\r\na=msid:z w\r\n";
        let one = "v=0\r\na=msid:headwater y\r\na=msid-semantic:WMS x\r\na=ssrc:5 cname:me\r\n\
                   a=msid:headwater w\r\n";
        assert_eq!(together(answer, "me"), one);
    }

    #[test]
    fn a_payload_type_means_one_codec() {
        let offer = |first: &str, second: &str| {
            format!("v=0\r\nm=video 9 x 96\r\n{first}\r\nm=audio 9 x 96\r\n{second}\r\n")
        };
        let avc = "a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1";
        let turned = "a=fmtp:96 packetization-mode=1\r\na=rtpmap:96 h264/90000";
        for same in [avc, turned, "a=rtpmap:97 VP8/90000", ""] {
            assert_eq!(ambiguous(&offer(avc, same)), None, "{same}");
        }
        let twice = format!("{avc}\r\na=fmtp:96 packetization-mode=0");
        let other = "a=rtpmap:96 opus/48000/2";
        let bare = "a=rtpmap:96 H264/90000";
        for (first, second) in [(avc, other), (avc, bare), (bare, avc), (twice.as_str(), "")] {
            assert_eq!(ambiguous(&offer(first, second)).as_deref(), Some("96"), "{first} {second}");
        }
    }

    #[test]
    fn the_video_clock_is_told() {
        let answer = "v=0\r\nm=audio 9\r\na=mid:0\r\nm=video 9\r\na=mid:1\r\na=rtcp-mux\r\n";
        // Time 0 is 11 s after 1900, so the clock would have shown -11 s then.
        let told = tell_clock(answer, 11_000_000 - i64::from(NTP_BEFORE_UNIX) * 1_000_000);
        let clock = format!("a=mediaclk:direct={}", (1u64 << 32) - 11 * 90_000);
        let expected = format!(
            "v=0\r\nm=audio 9\r\na=mid:0\r\nm=video 9\r\na=mid:1\r\n\
             a=ts-refclk:ntp=/traceable/\r\n{clock}\r\na=rtcp-mux\r\n"
        );
        assert_eq!(told, expected);
    }

    #[test]
    fn media_that_are_offered_both_ways_go_one_way() {
        let identity = Identity::new().unwrap();
        let mut peer = Rtc::builder().build(Instant::now().into_std());
        let mut sdp = peer.sdp_api();
        for kind in [MediaKind::Video, MediaKind::Audio] {
            sdp.add_media(kind, Direction::SendRecv, None, None, None);
        }
        let offer = sdp.apply().unwrap().0.to_sdp_string();
        assert_eq!(offer.matches("a=sendrecv\r\n").count(), 2, "{offer}");
        let play = Purpose::Play { chooses: false };
        for (purpose, way, sends) in
            [(Purpose::Publish, "a=recvonly\r\n", false), (play, "a=sendonly\r\n", true)]
        {
            let video = codecs::offered(&offer).first().copied();
            let agreed = agree(&identity, &offer, purpose, video, &[], false)
                .unwrap_or_else(|why| panic!("{why:?}"));
            assert_eq!(agreed.answer.matches(way).count(), 2, "{}", agreed.answer);
            assert!(!agreed.answer.contains("sendrecv"), "{}", agreed.answer);
            assert_eq!(agreed.answer.contains("a=ssrc:"), sends, "{}", agreed.answer);
            assert!(agreed.video.is_some() && agreed.audio.is_some());
        }
    }

    #[test]
    fn who_sends_again_says_so() {
        let offer =
            |feedback: &str| format!("m=video 9 x 96\r\na=rtcp-fb:{feedback}\r\na=mid:0\r\n");
        for (feedback, expected) in
            [("96 nack", true), ("* nack", true), ("96 nack pli", false), ("97 nack", false)]
        {
            assert_eq!(sends_again(&offer(feedback), 96.into()), expected, "{feedback}");
        }
    }
}
