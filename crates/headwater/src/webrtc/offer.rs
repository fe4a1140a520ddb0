//! Agrees with a peer's SDP offer.

use std::sync::Arc;

use str0m::change::SdpOffer;
use str0m::config::{CryptoProvider, DtlsCert};
use str0m::format::{Codec, PayloadParams};
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::rtp::Extension;
use str0m::{Candidate, IceCreds, Rtc};
use tokio::time::Instant;

/// The most media descriptions of an offer. Peers offer one of each kind, and a data channel.
const MOST_MEDIA: usize = 16;

/// Packets of one viewer's video and audio that may be sent again.
const KEPT: (usize, usize) = (512, 64);

/// The server's certificate for DTLS, which all sessions share, and the cryptography.
pub(super) struct Identity {
    crypto: Arc<CryptoProvider>,
    certificate: DtlsCert,
}

impl Identity {
    /// Makes a certificate.
    pub(super) fn new() -> Option<Self> {
        let crypto = Arc::new(str0m::crypto::from_feature_flags());
        let certificate = crypto.dtls_provider.generate_certificate()?;
        Some(Self { crypto, certificate })
    }
}

/// An agreement: the connection, and what it carries.
pub(super) struct Agreed {
    pub(super) rtc: Rtc,
    pub(super) answer: String,
    pub(super) own: IceCreds,
    /// The peer's ICE user fragment.
    pub(super) peer: String,
    /// A media description that can carry H.264, and one for Opus.
    pub(super) video: Option<Line>,
    pub(super) audio: Option<Line>,
}

/// A media description, and the payload type of our codec in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) mid: Mid,
    pub(super) payload: Pt,
}

/// Why there is no agreement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The offer is no SDP offer.
    NoOffer(String),
    /// There is no codec in common.
    NoCodec,
}

/// Agrees with an offer of a peer that publishes, or that plays.
pub(super) fn agree(
    identity: &Identity,
    offer: &str,
    publishes: bool,
    addresses: &[std::net::SocketAddr],
) -> Result<Agreed, Refusal> {
    let no_offer = |why: String| Refusal::NoOffer(why);
    if offer.matches("m=").count() > MOST_MEDIA {
        return Err(no_offer(format!("more than {MOST_MEDIA} media descriptions")));
    }
    let peer = user_fragment(offer).ok_or_else(|| no_offer("no a=ice-ufrag".to_owned()))?;
    let parsed = SdpOffer::from_sdp_string(offer).map_err(|error| no_offer(error.to_string()))?;
    let own = IceCreds::new();
    let (video_packets, audio_packets) = KEPT;
    let mut config = Rtc::builder()
        .set_crypto_provider(Arc::clone(&identity.crypto))
        .set_dtls_cert(identity.certificate.clone())
        .set_local_ice_credentials(own.clone())
        .set_ice_lite(true)
        .set_rtp_mode(true)
        .set_send_buffer_video(video_packets)
        .set_send_buffer_audio(audio_packets)
        .set_stats_interval(None)
        .clear_codecs()
        .enable_opus(true, false)
        .enable_h264(true);
    // Constrained High is what some encoders name.
    config.codec_config().add_h264(102.into(), Some(103.into()), true, 0x64_0c_1f);
    if !publishes {
        // Transport-wide sequence numbers cost a third of a viewer, and nothing needs them yet.
        config = config.clear_extension_map().set_extension(1, Extension::RtpMid);
    }
    let mut rtc = config.build(Instant::now().into_std());
    for &address in addresses {
        if let Ok(candidate) = Candidate::host(address, "udp") {
            rtc.add_local_candidate(candidate);
        }
    }
    let answer = rtc.sdp_api().accept_offer(parsed).map_err(|error| no_offer(error.to_string()))?;
    let answer = answer.to_sdp_string();
    let wanted = if publishes { Direction::RecvOnly } else { Direction::SendOnly };
    let (mut video, mut audio) = (None, None);
    for mid in answer.lines().filter_map(|line| line.strip_prefix("a=mid:")) {
        let mid = Mid::from(mid.trim_end());
        let Some(media) = rtc.media(mid) else { continue };
        let (kind, direction) = (media.kind(), media.direction());
        let line = line(&rtc, mid, kind);
        let line = line.filter(|_| direction == wanted || direction == Direction::SendRecv);
        match kind {
            MediaKind::Video => video = video.or(line),
            MediaKind::Audio => audio = audio.or(line),
        }
    }
    if video.is_none() && audio.is_none() {
        return Err(Refusal::NoCodec);
    }
    let answer = together(&answer);
    Ok(Agreed { rtc, answer, own, peer, video, audio })
}

/// The payload type for our codec in a media description.
fn line(rtc: &Rtc, mid: Mid, kind: MediaKind) -> Option<Line> {
    let remote = rtc.media(mid)?.remote_pts();
    let codec = if kind == MediaKind::Video { Codec::H264 } else { Codec::Opus };
    let fits = |params: &&PayloadParams| {
        let spec = params.spec();
        // A viewer must take fragments, which only mode 1 has. All browsers offer it.
        let takes_fragments = spec.format.packetization_mode == Some(1);
        spec.codec == codec
            && remote.contains(&params.pt())
            && (takes_fragments || codec == Codec::Opus)
    };
    let payload = rtc.codec_config().params().iter().find(fits)?.pt();
    Some(Line { mid, payload })
}

/// The first ICE user fragment in a description.
pub(super) fn user_fragment(sdp: &str) -> Option<String> {
    let fragment = sdp.lines().find_map(|line| line.trim().strip_prefix("a=ice-ufrag:"))?;
    (4..=256).contains(&fragment.len()).then(|| fragment.to_owned())
}

/// Puts all tracks of an answer into one stream: browsers play only such tracks in step.
fn together(answer: &str) -> String {
    let mut out = String::with_capacity(answer.len());
    for line in answer.split_inclusive('\n') {
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
    use super::*;

    #[test]
    fn tracks_of_an_answer_are_one_stream() {
        let answer = "v=0\r\na=msid:x y\r\na=msid-semantic:WMS x\r\na=msid:z w\r\n";
        let one = "v=0\r\na=msid:headwater y\r\na=msid-semantic:WMS x\r\na=msid:headwater w\r\n";
        assert_eq!(together(answer), one);
    }

    #[test]
    fn user_fragments() {
        assert_eq!(user_fragment("v=0\r\na=ice-ufrag:abcd\r\n").as_deref(), Some("abcd"));
        for sdp in ["", "a=ice-ufrag:abc", "ice-ufrag:abcd"] {
            assert_eq!(user_fragment(sdp), None, "{sdp}");
        }
    }
}
